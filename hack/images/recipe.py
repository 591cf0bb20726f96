"""Which images there are, what each is made of, and what it is therefore called."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from images import containerfile, debian, keys
from images.containerfile import Stage

ROOT = Path(__file__).resolve().parents[2]
CONTAINERFILE = ROOT / "builders" / "images" / "Containerfile"
# Smallest first: each is usable as soon as it is there. A name is the stage's name.
NAMES = ("server", "operator", "builder")
# Built where they are asked for by name.
OPTIONAL = ("builder-tensorflow", "server-vllm")
ACCELERATORS = ("cpu", "cuda")


@dataclass(frozen=True)
class Recipe:
    """The Containerfile with the arguments that it gets on this machine.

    Attributes:
        arguments: of the build: ``DEBIAN``, ``ACCELERATOR``.
    """

    text: str
    context: Path
    arguments: Mapping[str, str]

    @classmethod
    def read(cls, accelerator: str = ACCELERATORS[0]) -> Recipe:
        """From the repository, for one of ``ACCELERATORS``, on the Debian that ``ENGINEWRIGHT_BASE_IMAGE`` names."""
        return cls(CONTAINERFILE.read_text(), ROOT, {"DEBIAN": base_image(), "ACCELERATOR": accelerator})

    def reference(self, name: str) -> str:
        """``localhost/enginewright-<name>:<digest of all that it is made of>``."""
        return f"{self.repository(name)}:{self.key(name)}"

    def repository(self, name: str) -> str:
        return f"localhost/enginewright-{name}"

    def key(self, name: str) -> str:
        return keys.stage_key(name, self._stages, self.context, self.arguments)[: keys.KEY_LENGTH]

    def containerfile(self, name: str) -> str:
        """The stages that the image needs alone: buildah before 1.31 runs every stage above the target."""
        return containerfile.only(self.text, self.arguments, name)

    def build_arguments(self) -> dict[str, str]:
        """Arguments of the build: those of the key, and for each stage that another mounts its key."""
        mounted = {other for stage in self._stages.values() for other in stage.stages}
        return {**self.arguments, **{name.upper().replace("-", "_"): self.key(name) for name in sorted(mounted)}}

    def snapshot(self, directory: Path) -> Recipe:
        """The same with a copy of all inputs in ``directory``, so that an edit during a build does not tear it.

        Times and modes are set alike, because they count where a builder asks whether a copied file changed.
        """
        for path in sorted({path for stage in self._stages.values() for path in stage.inputs}):
            source, target = self.context / path, directory / path
            if not source.exists():
                raise keys.MissingInputError(f"{source} is copied into an image and is not there")
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(
                    source, target, ignore=shutil.ignore_patterns(*keys.IGNORED), copy_function=shutil.copyfile
                )
            else:
                shutil.copyfile(source, target)
        for copied in (directory, *directory.rglob("*")):
            copied.chmod(0o755)
            os.utime(copied, (0, 0))
        return replace(self, context=directory)

    @cached_property
    def _stages(self) -> dict[str, Stage]:
        return containerfile.parse(self.text, self.arguments)


def base_image() -> str:
    """The Debian to build on: the user's, or the one that :mod:`images.debian` makes."""
    given = os.environ.get("ENGINEWRIGHT_BASE_IMAGE", "")
    return given or f"{OWN_BASE}:{keys.text_key(debian.RECIPE)}"


OWN_BASE = "localhost/enginewright-debian"

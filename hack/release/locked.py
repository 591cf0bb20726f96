"""Python packages of an image by the locks that its Containerfile installs: known without a build."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from images import containerfile
from images.containerfile import Stage
from images.recipe import CONTAINERFILE, NAMES, OPTIONAL, ROOT
from release.contents import Package

# Images by accelerator: the operator is the same on both.
IMAGES = {"cpu": (*NAMES, *OPTIONAL), "cuda": tuple(name for name in (*NAMES, *OPTIONAL) if name != "operator")}
_INSTALL = re.compile(r"/install-locked \S+?(?: \S+/([\w.-]+\.txt))?(?:;|$)")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Locked:
    """What an image is locked by.

    Attributes:
        locks: paths in the repository, sorted.
        packages: all that they pin and the image installs, sorted; of two environments in one image, both.
    """

    locks: tuple[str, ...]
    packages: tuple[Package, ...]


def locked(tree: Path, image: str, accelerator: str) -> Locked:
    """Of ``tree``, a copy of the repository.

    Raises:
        ValueError: the Containerfile has no such image, or installs a lock in a way that is not known here.
    """
    text = (tree / CONTAINERFILE.relative_to(ROOT)).read_text()
    stages = containerfile.parse(text, {"DEBIAN": "debian", "ACCELERATOR": accelerator})
    if image not in stages:
        raise ValueError(f"{CONTAINERFILE.relative_to(ROOT)} has no stage '{image}'")
    installed = {lock: without for stage in _below(stages, image) for lock, without in _installed(stage)}
    packages = {package for lock, without in installed.items() for package in _packages(tree, lock, without)}
    return Locked(tuple(sorted(installed)), tuple(sorted(packages)))


def _below(stages: dict[str, Stage], image: str) -> list[Stage]:
    """The image's stage, those that it starts from, and those whose files they have."""
    found: dict[str, Stage] = {}
    waiting = [image]
    while waiting:
        name = waiting.pop()
        if name in stages and name not in found:
            found[name] = stages[name]
            waiting += [stages[name].parent, *stages[name].stages]
    return list(found.values())


def _installed(stage: Stage) -> list[tuple[str, str]]:
    """The lock that a stage installs, and the file that names what it leaves out, empty for none."""
    runs = [match for line in stage.instructions if line.startswith("RUN ") for match in _INSTALL.finditer(line)]
    locks = [path for path in stage.inputs if PurePosixPath(path).parent.name == "requirements"]
    if len(runs) != len(locks) or len(locks) > 1:
        raise ValueError(f"stage '{stage.name}' copies {locks or 'no lock'} and installs {len(runs)}: a bill of its "
                         "packages needs one install-locked for one lock of a stage")
    return [(lock, f"builders/images/{run[1]}" if run[1] else "") for lock, run in zip(locks, runs, strict=True)]


def _packages(tree: Path, lock: str, without: str) -> set[Package]:
    left_out = set((tree / without).read_text().splitlines()) if without else set()
    return {Package("pypi", name, version) for name, version in _PIN.findall((tree / lock).read_text())
            if name not in left_out}

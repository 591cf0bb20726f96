"""buildah with a store of our own, so that images of other projects are neither seen nor touched."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# What of a build's output tells how far it is.
_PROGRESS = re.compile(r"^(Prepared|Installed|Bytecode compiled|export checked)\b")
_STAGE = re.compile(r"^\[(\d+/\d+)\] STEP 1/\d+: FROM .* AS (\S+)$")


class BuildError(Exception):
    """A step failed; the message says what to do.

    Attributes:
        log: the file whose last lines explain it, where there is one.
    """

    def __init__(self, message: str, log: Path | None = None) -> None:
        super().__init__(message)
        self.log = log


@dataclass(frozen=True)
class Buildah:
    """Images below ``cache``; ``progress`` is called with a line for each noteworthy step of a build."""

    cache: Path
    progress: Callable[[str], None]

    @property
    def scratch(self) -> Path:
        """For large temporary files; buildah also keeps the caches of builds here."""
        return self._directory("tmp")

    @property
    def _run_root(self) -> Path:
        """Locks and mounts of this store, which must not outlive a boot."""
        store = hashlib.sha256(str(self.cache.absolute()).encode()).hexdigest()[:8]
        return Path(os.environ.get("XDG_RUNTIME_DIR") or "/run") / f"enginewright-images-{store}"

    def log(self, name: str) -> Path:
        return self._directory("logs") / f"{name}.log"

    def has(self, reference: str) -> bool:
        return bool(self._run("images", "--quiet", "--filter", f"reference={reference}").strip())

    def references(self, repository: str) -> list[str]:
        """Names of the images of ``repository`` (``host/name``, without a tag)."""
        return self._run("images", "--format={{.Name}}:{{.Tag}}", "--filter", f"reference={repository}").split()

    def remove(self, references: list[str]) -> None:
        """Forget images, and the layers that no other image needs."""
        if references:
            self._run("rmi", *references)

    def build(
        self,
        context: Path,
        containerfile: Path,
        reference: str,
        log: Path,
        *,
        target: str = "",
        arguments: Mapping[str, str] | None = None,
        secrets: Mapping[str, Path] | None = None,
    ) -> None:
        """Build ``target`` of ``containerfile`` as ``reference``; unchanged layers come from the store.

        Raises:
            BuildError: with the log of the build.
        """
        options = ["--isolation=chroot", "--layers", f"--file={containerfile}", f"--tag={reference}"]
        options += [f"--target={target}"] if target else []
        options += [f"--build-arg={name}={value}" for name, value in (arguments or {}).items()]
        options += [f"--secret=id={name},src={path}" for name, path in (secrets or {}).items()]
        command = self._command("build", *options, str(context))
        with (
            log.open("w") as stream,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self._environment()
            ) as process,
        ):
            for line in process.stdout or ():
                stream.write(line)
                self._report(line.rstrip())
        if process.returncode != 0:
            raise BuildError(f"{reference} cannot be built", log)

    def push(self, reference: str, destination: str, *options: str) -> None:
        """Copy an image out of the store; ``destination`` is ``transport:details``."""
        self._run("push", "--quiet", *options, reference, destination)

    def pull(self, source: str, reference: str) -> None:
        """Copy an image into the store as ``reference``."""
        image = self._run("pull", "--quiet", source).split()[-1]
        self._run("tag", image, reference)

    @contextmanager
    def mounted(self, reference: str) -> Iterator[Path]:
        """The image's root, for as long as the context is open. What is written there goes with it."""
        container = self._run("from", "--pull-never", reference).strip()
        try:
            yield Path(self._run("mount", container).strip())
        finally:
            self._run("rm", container)

    def environment_of(self, reference: str) -> dict[str, str]:
        """Variables that the image sets."""
        entries = json.loads(self._run("inspect", "--type=image", reference))["OCIv1"]["config"]["Env"]
        return dict(entry.split("=", 1) for entry in entries)

    def forget(self) -> None:
        """Remove all working containers and images, with what is mounted for them."""
        self._run("rm", "--all")
        self._run("rmi", "--all", "--force")
        shutil.rmtree(self._run_root, ignore_errors=True)

    def _report(self, line: str) -> None:
        if stage := _STAGE.match(line):
            self.progress(f"stage {stage[1]}: {stage[2]}")
        elif _PROGRESS.match(line):
            self.progress(line)

    def _run(self, *arguments: str) -> str:
        command = self._command(*arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=self._environment())
        if done.returncode != 0:
            raise BuildError(f"{' '.join(command)} failed: {done.stderr.strip()}")
        return done.stdout

    def _command(self, *arguments: str) -> list[str]:
        return ["buildah", f"--root={self._directory('store')}", f"--runroot={self._run_root}", *arguments]

    def _environment(self) -> dict[str, str]:
        return os.environ | {"TMPDIR": str(self.scratch)}

    def _directory(self, name: str) -> Path:
        directory = self.cache / name
        directory.mkdir(parents=True, exist_ok=True)
        return directory

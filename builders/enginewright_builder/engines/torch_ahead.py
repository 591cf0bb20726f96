"""PyTorch's packages, compiled beside the builds: the one for every batch takes longer than all of TensorRT's first
builds, most of it on the CPU, so that it never fitted into a build's budget.

The process opens the source once more, and so holds it once more in the GPU's memory. It uses the GPU for seconds of a
minute or two, and is stopped while candidates are timed. No build needs it: what it could not compile is compiled
again, alone, when its turn comes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.contract import Interface, dumps, load
from enginewright_builder.engines.base import BuildContext, Rung
from enginewright_builder.engines.beside import BesideProcess, environment
from enginewright_builder.sources.formats import Located
from enginewright_builder.system import end_with_parent

_FOLDER, _JOB = "beside", "job.json"
# Of the GPU's memory that is free: the weights in FP32 and as they are compiled, examples, and a context.
_LEAST_BYTES, _TIMES_WEIGHTS = 4 << 30, 4
# Of a compilation, should the clock be set meanwhile.
_LEAST_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the process gets: the source as the build found it, ``folder``, where the package goes, and ``workspace``,
    where the compiler finds what it kept of other packages. ``batch`` is as in :meth:`SourceModel.torch_program`."""

    path: str
    format: str
    precision: str
    folder: str
    workspace: str
    device: str
    batch: int = 0
    interface: Interface | None = None


class PackageAhead:
    """See :class:`BesideProcess`."""

    makes_engine = True

    def __init__(self, rung: Rung, package: Path, process: BesideProcess) -> None:
        self._rung, self._package, self.process = rung, package, process
        self._began = time.time()
        self.pause, self.resume, self.cancel = process.pause, process.resume, process.cancel

    @classmethod
    def started(cls, rung: Rung, context: BuildContext, source: Located, package: str) -> PackageAhead:
        """``package`` is the name of the file that the compiler writes."""
        folder = context.folder(rung) / _FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        device = "cuda" if context.device.accelerator == "gpu" else "cpu"
        job = Job(path=str(source.path), format=source.format, precision=rung.precision, folder=str(folder),
                  workspace=str(context.workspace), device=device, batch=rung.one_batch, interface=context.stated)
        (folder / _JOB).write_text(dumps(job))
        words = [sys.executable, "-m", "enginewright_builder.engines.torch_ahead", str(folder / _JOB)]
        return cls(rung, folder / package, BesideProcess.started(words, environment(), folder))

    @property
    def running(self) -> bool:
        return self.process.running

    @property
    def made(self) -> bool:
        return not self.running and self._package.is_file()

    def finish(self, target: Path, context: BuildContext) -> float:
        """Waits for it, moves the package to ``target``, and returns how many seconds it took. 0 where it failed, of
        whatever cause. Raises :class:`OutOfTimeError`."""
        if self.process.cancelled:
            return 0.0
        if self.running:
            context.progress(0.1, f"waiting for {self._rung.name}, which is compiled beside the builds")
        code, errors = self.process.ended(context.time_left())
        if code or not self._package.is_file():
            lines = [line for line in errors.splitlines() if line.strip()] or [f"it ended with status {code}"]
            context.progress(0.1, f"{self._rung.name} is compiled again, alone: {lines[-1][:300]}")
            return 0.0
        seconds = self._package.stat().st_mtime - self._began
        os.replace(self._package, target)
        return max(seconds, _LEAST_SECONDS)


def main(arguments: Sequence[str]) -> None:
    """The process."""
    end_with_parent()
    from enginewright_builder.engines.torch_compile import compile_program
    from enginewright_builder.models import load_model

    job = load(Job, Path(arguments[0]).read_text())
    folder = Path(job.folder)
    source = load_model(Located(path=Path(job.path), format=job.format), job.interface, folder, job.device)
    program = source.torch_program(job.precision, job.batch)
    if program is None:
        raise SystemExit("the source cannot be traced by torch.export")
    compile_program(program, folder, Path(job.workspace), tf32=job.precision == "tf32")


def room(weights: int, running: int) -> bool:
    """Whether the GPU has memory for the model once more; ``weights`` is their size in bytes. Of those that are
    ``running`` some may not have taken theirs yet."""
    import torch

    each = max(_LEAST_BYTES, _TIMES_WEIGHTS * weights)
    return torch.cuda.is_available() and torch.cuda.mem_get_info()[0] >= each * (1 + running)


if __name__ == "__main__":
    main(sys.argv[1:])

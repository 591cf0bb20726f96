"""A graph that is quantised beside the builds: ModelOpt's process on half of the CPUs, and never on the GPU, where it
would disturb what TensorRT measures. It is stopped while candidates are timed. No build needs it: what it could not
write is written again, alone, when its turn comes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from enginewright_builder.engines.modelopt_graphs import QUANTIZE, Job, check_written, command, environment
from enginewright_builder.errors import BuilderError
from enginewright_builder.tensors import Tensors

_FOLDER = "beside"
# As niceness: TensorRT's own work on the CPU comes first.
_NICE = 10


class GraphAhead:
    """Runs until it ends or is cancelled; a process and its children."""

    def __init__(self, job: Job, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self._job, self._process, self._errors = job, process, errors

    @classmethod
    def started(cls, precision: str, source: Path, target: Path, batches: Sequence[Tensors]) -> GraphAhead:
        """``target`` is where :meth:`finish` will be asked to put it."""
        job = Job(task=QUANTIZE, source=str(source), target=str(target.parent / _FOLDER / target.name),
                  precision=precision, beside=True)
        words = command(job, batches)
        errors = (Path(job.target).parent / "errors.txt").open("wb+")
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors, stdin=subprocess.DEVNULL,
                                   start_new_session=True, env={**environment(), "CUDA_VISIBLE_DEVICES": ""})
        with contextlib.suppress(OSError):  # it has ended already
            cpus = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(process.pid, cpus[len(cpus) // 2:])
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
        return cls(job, process, errors)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def cancel(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._errors.close()

    def finish(self, target: Path, progress: Callable[[float, str], None]) -> bool:
        """Waits for it, and moves what it wrote to ``target``, a name as it was started with. False where it failed, of
        whatever cause: alone, and with the GPU, it may go well."""
        if self._errors.closed:
            return False
        if self.running:
            progress(0.02, f"waiting for the {self._job.precision} graph that is written beside the builds")
        try:
            code = self._process.wait()
            self._errors.seek(0)
            check_written(self._job, code, self._errors.read().decode(errors="replace"))
        except BuilderError as error:
            progress(0.02, f"the {self._job.precision} graph is written again, alone: {error.message}")
            return False
        written = Path(self._job.target)
        for path in written.parent.glob(f"{written.name}*"):  # and its weights, where they are too large for it
            os.replace(path, target.parent / path.name)
        return True

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.running:
                os.killpg(self._process.pid, number)

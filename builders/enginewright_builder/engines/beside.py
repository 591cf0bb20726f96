"""A process beside the builds: on half of the CPUs, after the builds' own work, stopped and gone on with as a whole."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from enginewright_builder.engines.base import OutOfTimeError

# As niceness: TensorRT's own work on the CPU comes first.
_NICE = 10


def environment() -> dict[str, str]:
    """In which a Python process finds all that this one does, and nothing in the current folder: a build by hand may
    run among downloaded files."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1"}


class BesideProcess:
    """Runs until it ends or is cancelled; a process and its children."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self._process, self._errors = process, errors

    @classmethod
    def started(cls, words: Sequence[str], environment: Mapping[str, str], folder: Path) -> Self:
        """``folder`` is where its last words are kept."""
        errors = (folder / "errors.txt").open("wb+")
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors, stdin=subprocess.DEVNULL,
                                   start_new_session=True, env=environment)
        with contextlib.suppress(OSError):  # it has ended already
            cpus = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(process.pid, cpus[len(cpus) // 2:])
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
        return cls(process, errors)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def cancelled(self) -> bool:
        return self._errors.closed

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def cancel(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._errors.close()

    def ended(self, seconds: float = math.inf) -> tuple[int, str]:
        """Waits for it: its status, and what it wrote to stderr. Raises :class:`OutOfTimeError` where it takes longer
        than ``seconds``; it goes on then."""
        try:
            code = self._process.wait(None if math.isinf(seconds) else max(0.0, seconds))
        except subprocess.TimeoutExpired as late:
            raise OutOfTimeError from late
        self._errors.seek(0)
        return code, self._errors.read().decode(errors="replace")

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.running:
                os.killpg(self._process.pid, number)

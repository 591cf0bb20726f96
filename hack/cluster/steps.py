"""What the user sees: a line for each step with its time, and on failure the end of the log that tells why."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOG_LINES = 20


class ClusterError(Exception):
    """Something the user can act on: the message says what failed and what to do.

    Attributes:
        log: the file whose last lines explain it, where there is one.
    """

    def __init__(self, message: str, log: Path | None = None) -> None:
        super().__init__(message)
        self.log = log


def say(text: str) -> None:
    """Progress goes to standard error: standard output is for results (paths, kubeconfig)."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print `title` with the seconds it took, when it is done or has failed."""
    began = time.monotonic()
    try:
        yield
    except BaseException:
        say(f"  ✗ {title} failed after {time.monotonic() - began:.1f} s")
        raise
    say(f"  ✓ {title} ({time.monotonic() - began:.1f} s)")


def tail(log: Path, lines: int = LOG_LINES) -> str:
    """The last `lines` lines of `log`; empty when there is none."""
    try:
        with log.open(errors="replace") as stream:
            return "".join(deque(stream, maxlen=lines))
    except FileNotFoundError:
        return ""


def explain(error: ClusterError) -> str:
    """The whole message for the terminal, with the end of the log."""
    if error.log is None:
        return f"error: {error}"
    end = tail(error.log).rstrip() or "(empty)"
    return f"error: {error}\n--- last {LOG_LINES} lines of {error.log} ---\n{end}"

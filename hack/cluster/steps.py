"""What the user sees: a line for each step with its time, and on failure the end of the log that tells why."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOG_LINES = 20
# A step that has said nothing for so long says that it goes on: who watches knows that nothing hangs.
QUIET_S = 4.0


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
    _open.said = time.monotonic()
    print(text, file=sys.stderr, flush=True)


class _Open:
    """The steps that are under way, the innermost last, each with the time of its begin; and when the last line was
    said."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, float]] = []
        self.said = time.monotonic()
        self.ended = threading.Event()

    def begin(self, title: str) -> float:
        began = time.monotonic()
        if not self.steps:
            self.said, self.ended = began, threading.Event()
            threading.Thread(target=self._go_on, args=(self.ended,), daemon=True, name="steps").start()
        self.steps.append((title, began))
        return began

    def end(self) -> None:
        self.steps.pop()
        if not self.steps:
            self.ended.set()

    def _go_on(self, ended: threading.Event) -> None:
        while not ended.wait(max(0.05, self.said + QUIET_S - time.monotonic())):
            now, steps = time.monotonic(), self.steps[-1:]
            if steps and now - self.said >= QUIET_S:
                title, began = steps[0]
                say(f"    {title}: {now - began:.0f} s")


_open = _Open()


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print `title` with the seconds it took, when it is done or has failed, and now and then while it goes on."""
    began = _open.begin(title)
    try:
        yield
    except BaseException:
        say(f"  ✗ {title} failed after {time.monotonic() - began:.1f} s")
        raise
    finally:
        _open.end()
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

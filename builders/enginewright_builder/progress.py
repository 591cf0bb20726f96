"""Progress of a build as the operator, the plugin and people read it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Protocol, TextIO

from enginewright_builder.contract import BUILD_STEPS, Outcome, Progress, dumps


class Sink(Protocol):
    def progress(self, line: Progress) -> None: ...

    def outcome(self, outcome: Outcome) -> None: ...


class JsonLines:
    """One JSON object a line. Keeps the stream it was made with: libraries that print are hushed elsewhere."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout

    def progress(self, line: Progress) -> None:
        self._write(dumps(line))

    def outcome(self, outcome: Outcome) -> None:
        self._write(outcome.to_json())

    def _write(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


class Tracker:
    """Turns progress within a step into progress of the whole, which never goes back."""

    def __init__(self, sink: Sink) -> None:
        self._sink, self._step, self._fraction = sink, "resolve", 0.0

    @property
    def current(self) -> str:
        return self._step

    def step(self, name: str, detail: str = "") -> Callable[[float, str], None]:
        """Begins step ``name`` and returns what reports its own fraction, 0 to 1."""
        names = list(BUILD_STEPS)
        begin, end = BUILD_STEPS[name], BUILD_STEPS[names[min(names.index(name) + 1, len(names) - 1)]]
        self._step = name
        self._report(begin, detail)

        def report(fraction: float, text: str) -> None:
            self._report(begin + (end - begin) * min(max(fraction, 0.0), 1.0), text)

        return report

    def note(self, detail: str) -> None:
        """Something worth knowing at this point."""
        self._report(self._fraction, detail)

    def _report(self, fraction: float, detail: str) -> None:
        self._fraction = max(self._fraction, fraction)
        self._sink.progress(Progress(step=self._step, fraction=round(self._fraction, 4), detail=detail))


def own_stdout() -> TextIO:
    """Standard output for our lines alone: what libraries print, in Python or not, goes to standard error from here
    on."""
    sys.stdout.flush()
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return stream

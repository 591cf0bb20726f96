"""Progress of a TensorRT build: its nested phases as one fraction that never falls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# A convolutional network takes some hundred thousand steps; told one by one, they would cost more than they do.
REPORT_SECONDS = 0.5


@dataclass
class _Phase:
    steps: int
    parent: str
    done: int = 0


class Phases:
    """TensorRT tells of phases by name, each with a number of steps, one of which may itself be a phase.

    It calls from several threads, and starts phases one after another at the top, so the fraction of a top phase alone
    would start again: each new one takes half of what is left.
    """

    def __init__(self, report: Callable[[float, str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._report, self._clock, self._lock = report, clock, threading.Lock()
        self._open: dict[str, _Phase] = {}
        self._finished, self._fraction, self._reported = 0.0, 0.0, float("-inf")

    def start(self, name: str, parent: str | None, steps: int) -> None:
        with self._lock:
            self._open[name] = _Phase(steps=max(1, steps), parent=parent or "")
            self._show(name)

    def step(self, name: str, index: int) -> None:
        """Step ``index``, from 0, of phase ``name`` is complete."""
        with self._lock:
            if name in self._open:
                self._open[name].done = index + 1
                self._show(name)

    def finish(self, name: str) -> None:
        with self._lock:
            phase = self._open.pop(name, None)
            if phase is not None and not phase.parent:
                self._finished += (1.0 - self._finished) / 2
                self._show(name)

    def _show(self, name: str) -> None:
        now = self._clock()
        if now - self._reported < REPORT_SECONDS:
            return
        self._reported = now
        self._fraction = max(self._fraction, self._finished + (1.0 - self._finished) / 2 * self._inside(""))
        self._report(self._fraction, f"TensorRT: {name}")

    def _inside(self, parent: str) -> float:
        """How far the open phases below ``parent`` are, on average."""
        below = [(name, phase) for name, phase in self._open.items() if phase.parent == parent]
        if not below:
            return 0.0
        return sum(min(1.0, (phase.done + self._inside(name)) / phase.steps) for name, phase in below) / len(below)


def monitor(trt: Any, phases: Phases, time_left: Callable[[], float]) -> Any:
    """``phases`` as TensorRT's ``IProgressMonitor``; it must outlive the build. TensorRT ends the build, without an
    engine, after the first step that is complete when no ``time_left``, in seconds, is left."""

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            phases.start(phase_name, parent_phase, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            phases.step(phase_name, step)
            return time_left() > 0

        def phase_finish(self, phase_name: str) -> None:
            phases.finish(phase_name)

    return Monitor()

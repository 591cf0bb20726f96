"""Time in a build: the budget that measurements share, and how long each step took."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from enginewright_builder.progress import Tracker

# Shares of the time budget, and what each measurement takes at least and at most, in seconds: more adds no certainty.
# Candidates on a GPU are many, and each call is short; the race ends by itself once it is decided.
MEASURE_SHARE, MEASURE_SECONDS = 0.10, {"cpu": (2.0, 5.0), "gpu": (2.0, 90.0)}
SWEEP_SHARE, SWEEP_SECONDS = 0.40, (8.0, 25.0)
# Each point that what ships is compared by: plain serving, joined lengths.
COMPARED_SHARE, COMPARED_SECONDS = 0.08, (1.0, 2.0)
# The load under which the server's memory is seen to grow; it ends once it no longer does.
MEMORY_SHARE, MEMORY_SECONDS = 0.05, (3.0, 15.0)


class Budget:
    """Time left of the request's ``build_budget_seconds``. It shrinks measurements; the gate is never shortened."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic, *, already: float = 0.0) -> None:
        """``already`` seconds were spent before."""
        self._seconds, self._clock, self._begin = seconds, clock, clock() - already

    @property
    def spent(self) -> float:
        return self._clock() - self._begin

    @property
    def seconds(self) -> float:
        return self._seconds

    @property
    def left(self) -> float:
        """Negative once it is overspent."""
        return self._seconds - self.spent

    def leave_out(self, seconds: float) -> None:
        """They count as if they had not gone by."""
        self._begin += seconds

    def share(self, part: float, bounds: tuple[float, float]) -> float:
        """``part`` of what is left, within ``bounds``."""
        low, high = bounds
        return max(low, min(high, part * self.left))


class Steps:
    """Seconds of each step, for the report."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker, self.seconds = tracker, dict[str, float]()

    @contextmanager
    def step(self, name: str, detail: str = "") -> Iterator[Callable[[float, str], None]]:
        begin = time.monotonic()
        try:
            yield self.tracker.step(name, detail)
        finally:
            self.seconds[name] = round(time.monotonic() - begin, 3)


def now() -> str:
    """RFC 3339, UTC, whole seconds: as Kubernetes writes times."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

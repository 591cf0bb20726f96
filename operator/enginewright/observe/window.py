"""What the scraper remembers of one object: bounded, and made into the core's plain ``SignalWindow`` on demand."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from enginewright.core.observed import Sample, SignalWindow

# Smoothing looks at the newest few; two minutes are for people who look at a status.
SAMPLES: Final = 120


class Window:
    """``started`` is seconds on the monotonic clock of all times here."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._recommended: dict[int, float] = {}
        self._failures = FailureCounts()

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    def recommend(self, time: float, replicas: int) -> None:
        """Stabilisation asks for the least and the most within a window, so of each value only the newest time counts:
        that bounds what is kept, however long the window is."""
        self._recommended.pop(replicas, None)
        self._recommended[replicas] = time

    def count_failures(self, totals: Mapping[str, float], pods: Iterable[str]) -> None:
        self._failures.update(totals, pods)

    def view(self) -> SignalWindow:
        return SignalWindow(
            started=self._started,
            samples=tuple(self._samples),
            recommendations=tuple((time, replicas) for replicas, time in self._recommended.items()),
            failures=self._failures.since_first_seen(),
        )


class FailureCounts:
    """Turns counters that start at any value, and restart at zero with their server, into failures since first seen."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._grown: dict[str, float] = {}

    def update(self, totals: Mapping[str, float], pods: Iterable[str]) -> None:
        """``totals`` by pod as scraped; pods that are not among ``pods`` any more are forgotten."""
        for pod, total in totals.items():
            before = self._last.get(pod, total)
            grown = total - before if total >= before else total
            self._grown[pod] = self._grown.get(pod, 0.0) + grown
            self._last[pod] = total
        kept = set(pods)
        for counts in (self._last, self._grown):
            for pod in counts.keys() - kept:
                del counts[pod]

    def since_first_seen(self) -> Mapping[str, float]:
        return dict(self._grown)

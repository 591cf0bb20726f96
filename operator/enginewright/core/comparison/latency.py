"""How long both revisions take: the ratio of their means second by second, and their 99th percentiles."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from enginewright.core.sequential import Interval, Series
from enginewright.core.signals import Traffic

# Chance of a wrong word, however long the analysis takes.
ALPHA: Final = 0.001
# Requests of each side that make one pair of means; seconds are put together until they hold so many.
PAIR_REQUESTS: Final = 5.0
# From about here on the noise of a second's mean is the machine's, not that of few requests.
ENOUGH_REQUESTS: Final = 20.0
# One second counts at most as eight times slower or faster: a stall is one event.
MOST_LOG_RATIO: Final = math.log(8.0)
# Load a replica may get more or less than the other side's before time in the queue is left out.
FAIR_LOAD: Final = 1.5
# Of the quantiles that Triton exports: prometheus-cpp's default for a summary (max_age of its Summary).
TAIL_WINDOW: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class Latency:
    """By one measure, the logarithm of the candidate's mean over the stable revision's. ``mine`` and ``theirs`` are
    both means in milliseconds, 0 where ``name`` alone says enough; ``absent`` where neither was asked for anything that
    has it."""

    name: str
    ratio: Interval | None
    mine: float = 0.0
    theirs: float = 0.0
    absent: bool = False


class Part:
    """What one side did, added up; numbers as :class:`Traffic` has them."""

    __slots__ = ("busy", "failed", "queued", "replicas", "requests")

    def __init__(self) -> None:
        self.requests = self.failed = self.busy = self.queued = 0.0
        self.replicas = 0

    def add(self, one: Traffic) -> None:
        self.requests += one.requests
        self.failed += one.failed
        self.busy += one.busy
        self.queued += one.queued
        self.replicas += one.replicas


class Ratio:
    """Logarithm of the candidate's mean latency over the stable revision's, of neighbouring seconds that are put
    together until both sides have enough requests for a mean.

    The logarithm of a mean of n requests is too small by variance / 2n (delta method). That cancels out where both get
    as many; where not, it is put right by the variance that the pairs themselves show.
    """

    def __init__(self) -> None:
        self._series = Series()
        self._few = 0.0
        self._mine, self._theirs = Part(), Part()

    def add(self, candidate: Traffic, stable: Traffic) -> None:
        mine, theirs = self._mine, self._theirs
        mine.add(candidate)
        theirs.add(stable)
        if min(mine.requests, theirs.requests) >= PAIR_REQUESTS and min(mine.busy, theirs.busy) > 0:
            one, other = 1 / mine.requests, 1 / theirs.requests
            weight = 1 / (one + other + 1 / ENOUGH_REQUESTS)
            self._series.add(_log_ratio(mine, theirs), weight, slope=(one - other) / 2)
            self._few += one + other
            self._mine, self._theirs = Part(), Part()

    def interval(self, alpha: float = ALPHA) -> Interval | None:
        if not self._series.count:
            return None
        return self._series.interval(alpha, tilt=self._series.scatter() / self._few)


def alike_loaded(candidate: Part | Traffic, stable: Part | Traffic) -> bool:
    """Whether a replica of each gets about as many requests; not where one gets none."""
    mine, theirs = (side.requests / max(1, side.replicas) for side in (candidate, stable))
    return min(mine, theirs) > 0 and 1 / FAIR_LOAD <= mine / theirs <= FAIR_LOAD


def _log_ratio(candidate: Part, stable: Part) -> float:
    """Replicas that get more requests have longer queues, which is no fault of theirs: under unlike load the queue is
    left out on both sides."""
    mine, theirs = candidate.busy, stable.busy
    if not alike_loaded(candidate, stable):
        mine, theirs = mine - candidate.queued, theirs - stable.queued
    if min(mine, theirs) <= 0:
        mine, theirs = candidate.busy, stable.busy
    found = math.log((mine / candidate.requests) / (theirs / stable.requests))
    return max(-MOST_LOG_RATIO, min(MOST_LOG_RATIO, found))


@dataclass
class Tail:
    """Logarithms of both sides' p99 in milliseconds, and of their ratio, once in ``TAIL_WINDOW`` seconds.

    Triton's p99 is that of the last minute, so that the values of one minute are of the same requests: one alone
    counts. The first is left out, since the first requests of a replica that has just started are in it.
    """

    candidate: Series = field(default_factory=Series)
    stable: Series = field(default_factory=Series)
    ratio: Series = field(default_factory=Series)
    newest: tuple[float, float] | None = None
    due: float | None = None

    def add(self, time: float, mine: float | None, theirs: float | None) -> None:
        """Of a round at ``time``, in seconds; only one that has both counts."""
        if not (mine and theirs):
            return
        if self.due is None:
            self.due = time + TAIL_WINDOW
        elif time >= self.due:
            self.due = time + TAIL_WINDOW
            self.newest = mine, theirs
            self.candidate.add(math.log(mine))
            self.stable.add(math.log(theirs))
            self.ratio.add(math.log(mine / theirs))

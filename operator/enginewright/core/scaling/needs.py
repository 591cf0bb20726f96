"""How many replicas are needed now: for what arrives, for what will arrive when a new one answers, for what waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from enginewright.core.scaling import arrivals, backlog
from enginewright.core.scaling.capacity import Capacity, replicas_for, thinned
from enginewright.core.scaling.forecast import REACH, Forecast, forecast
from enginewright.core.scaling.latency import share_by_latency
from enginewright.core.scaling.limits import ScaleLimits
from enginewright.core.scaling.seen import Belief, believe
from enginewright.core.scaling.trust import overfull, slower_than_believed
from enginewright.core.signals import Sample

# Burstiness is of the last minute: bursts of an hour ago say nothing about how requests come now.
RECENT = 60.0
# What is left over when new replicas answer is to be gone after this part of a cold start more.
DRAIN = 0.5
# Times the replicas that arrivals ask for, for the sake of one that is slower than the others or behind: a sick one
# gets half the share, not all that it takes to spare it every request. So for the sake of what requests take: where the
# objective is hardly more than that, no number would do.
AT_MOST = 2
# While the first replicas start, and no more than so many cold starts are known, the mean is of a load that had hardly
# begun: nothing says yet that a higher rate is chance, and a replica too many goes after as many cold starts.
BEGUN = 2.0
# Nothing reacts faster than it looks.
LEAST_COLD_START = 1.0


def looked_back(capacity: Capacity) -> float:
    """Seconds of arrivals that say what is needed now."""
    return RECENT + REACH * _cold(capacity)


def _cold(capacity: Capacity) -> float:
    return max(LEAST_COLD_START, capacity.cold_start_seconds)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the rule is made of, so that a study can leave each part out."""

    dispersion: bool = True
    forecast: bool = True
    backlog: bool = True
    floor: bool = True
    budget: bool = True
    memory: bool = True
    latency: bool = True
    start: bool = True


@dataclass(frozen=True, kw_only=True)
class Needed:
    """``up`` replicas are needed now, and fewer than ``down`` would be too few even if a little more came. ``rate`` and
    ``ahead`` are requests a second, ``late`` requests of all queues that will still wait when a new replica answers.
    ``capacity`` is what is believed of a replica, ``share`` how much that is of what was measured, ``slower`` the
    requests a second of each that does less than the others."""

    up: int
    down: int
    rate: float
    ahead: float
    late: float
    dispersion: float
    forecast: Forecast | None
    capacity: Capacity
    share: float
    slower: Mapping[str, float]

    @property
    def cold(self) -> float:
        return _cold(self.capacity)


class Needs:
    """By what the build measured, what was seen since, the limits, and the parts that count."""

    def __init__(self, capacity: Capacity, limits: ScaleLimits, parts: Parts) -> None:
        self._capacity = capacity
        self._limits = limits
        self._parts = parts
        self._cold = _cold(capacity)

    def of(self, seen: Sequence[arrivals.Interval], wish: int, samples: Sequence[Sample], current: int) -> Needed:
        """``seen`` are the samples' intervals, at least one; ``wish`` is what queue depth alone asks for, ``current``
        what is asked for now."""
        recent = arrivals.since(seen, RECENT)
        spread = arrivals.dispersion(recent)
        belief = self._belief(recent, spread, samples)
        slowest, patience = belief.slowest, belief.slowest.patience(self._limits.target)
        dispersion = arrivals.dispersion_over(recent, patience, spread) if self._parts.dispersion else 1.0
        rate = ahead = self._rate(seen, recent, spread, samples[-1])
        found = forecast(seen, self._cold) if self._parts.forecast else None
        if found is not None and found.votes:
            ahead = max(rate, found.rate)

        def for_rate(comes: float, capacity: Capacity = belief.fleet) -> int:
            return replicas_for(comes, capacity, patience, dispersion, self._limits.max_replicas)

        def for_each(comes: float) -> int:
            fleet = min(for_rate(comes), AT_MOST * for_rate(comes, belief.full))
            return fleet if slowest == belief.fleet else min(AT_MOST * fleet, for_rate(comes, slowest))

        up, down = for_each(ahead), for_each(ahead * (1 + self._limits.tolerance))
        behind = self._behind(rate, patience, belief, samples) if self._parts.backlog else []
        drained = backlog.replicas_to_drain(behind, rate, max(patience, DRAIN * self._cold))
        if drained > up:
            up = max(up, min(drained, AT_MOST * for_rate(ahead), self._limits.max_replicas + 1))
        if any(AT_MOST * one.throughput >= belief.fleet.throughput for one in behind):
            # Each that went would leave its share to the queue that is to be gone. One that is sick keeps none.
            down = max(down, current)
        up, down = self._believing_the_queue(up, down, rate, wish, belief, samples)
        if self._limits.bounded:
            up, down = max(up, wish), max(down, wish)
        late = sum(one.waiting for one in behind)
        return Needed(up=up, down=max(up, down), rate=rate, ahead=ahead, late=late, dispersion=dispersion,
                      forecast=found, capacity=belief.fleet, share=belief.share, slower=belief.own)

    def _rate(self, seen: Sequence[arrivals.Interval], recent: Sequence[arrivals.Interval], spread: float,
              newest: Sample) -> float:
        level = arrivals.level(recent, spread)
        if self._parts.start and newest.starting and arrivals.covered(seen) < BEGUN * self._cold:
            return max(level, arrivals.highest(recent))
        return level

    def _belief(self, recent: Sequence[arrivals.Interval], spread: float, samples: Sequence[Sample]) -> Belief:
        if not self._parts.memory:
            return believe(samples[-1:], self._capacity)
        if not self._parts.latency:
            return believe(samples, self._capacity)
        patience = self._capacity.patience(self._limits.target)
        dispersion = thinned(arrivals.dispersion_over(recent, patience, spread), max(1, samples[-1].ready))
        return believe(samples, self._capacity, share_by_latency(samples, self._capacity, patience, dispersion))

    def _behind(self, rate: float, patience: float, belief: Belief, samples: Sequence[Sample]) -> list[backlog.Queue]:
        """What will be queued too long when a replica that is asked for now answers."""
        here = backlog.queues(samples, belief)
        left = backlog.left_over(here, rate, samples[-1].starting, belief.fleet.throughput, self._cold)
        return backlog.late(left, backlog.ordinary(rate, len(left), belief.slowest.compute_seconds, patience))

    def _believing_the_queue(self, up: int, down: int, rate: float, wish: int, belief: Belief,
                             samples: Sequence[Sample]) -> tuple[int, int]:
        """While more wait than can be answered in time, and nothing is seen that explains it, no fewer replicas will do
        than queue depth alone asks for; and where they do less than is believed of them, so many are needed."""
        patience = belief.slowest.patience(self._limits.target)
        each = backlog.ordinary(rate, samples[-1].ready, belief.slowest.compute_seconds, patience)
        doubted = overfull(samples, each, belief)
        if not doubted:
            return up, down
        if slower_than_believed(samples, doubted):
            up = max(up, wish)
        return up, max(down, wish)

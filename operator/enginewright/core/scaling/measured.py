"""Replicas from arrivals and backlog, with what one replica was measured to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from enginewright.core.observed import Sample, SignalWindow
from enginewright.core.reasons import Reason
from enginewright.core.scaling import arrivals
from enginewright.core.scaling.backlog import left_over, ordinary
from enginewright.core.scaling.capacity import Capacity, largest_rate, late_shares, replicas_for
from enginewright.core.scaling.floor import Fleet, least_floor
from enginewright.core.scaling.forecast import Forecast, forecast
from enginewright.core.scaling.limits import ScaleDecision, ScaleLimits
from enginewright.core.scaling.queue import replicas_text, within
from enginewright.core.scaling.trust import overfull, slower_than_measured

# Burstiness is of the last minute: bursts of an hour ago say nothing about how requests come now.
RECENT = 60
# What is left over when new replicas answer is to be gone after this part of a cold start more.
DRAIN = 0.5
# Steps of a replay in a cold start.
STEPS = 4
# Nothing reacts faster than it looks.
LEAST_COLD_START = 1.0


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the rule is made of, so that a study can leave each part out."""

    clumps: bool = True
    forecast: bool = True
    backlog: bool = True
    floor: bool = True


@dataclass(frozen=True, kw_only=True)
class Needed:
    """``up`` replicas are needed now, and fewer than ``down`` would be too few even if a little more came. ``rate`` and
    ``ahead`` are requests a second, ``late`` requests of the queue that will still wait when a new replica answers."""

    up: int
    down: int
    rate: float
    ahead: float
    late: float
    clumps: float
    forecast: Forecast | None


class Rule:
    """One decision. ``seen`` are the window's intervals, at least one."""

    def __init__(self, capacity: Capacity, limits: ScaleLimits, parts: Parts) -> None:
        self._capacity = capacity
        self._limits = limits
        self._parts = parts
        self._patience = capacity.patience(limits.target)
        self._cold = max(LEAST_COLD_START, capacity.cold_start_seconds)

    def decide(self, window: SignalWindow, seen: Sequence[arrivals.Interval], queued: float, wish: int, current: int,
               now: float) -> ScaleDecision:  # fmt: skip
        """``queued`` requests of all replicas, smoothed; ``wish`` is what queue depth alone asks for."""
        needed = self.needed(seen, queued, wish, window.samples)
        wanted = current
        if needed.up > current:
            wanted = max(current, min(within(window, self._limits.up_window, now, needed.up)))
        elif needed.down < current:
            wanted = self._down(window, seen, needed, current, now)
        wanted = self._limits.clamp(wanted)
        reason, message = self._explain(needed, queued, current, wanted)
        voted = needed.forecast is not None and needed.forecast.votes
        return ScaleDecision(
            replicas=wanted, recommendation=needed.down, reason=reason, message=message, queue_depth=queued,
            rate=needed.rate, forecast=needed.ahead if voted else None,
        )  # fmt: skip

    def needed(self, seen: Sequence[arrivals.Interval], queued: float, wish: int, samples: Sequence[Sample]) -> Needed:
        recent, newest = seen[-RECENT:], samples[-1]
        clumps = arrivals.clumps(recent, self._patience) if self._parts.clumps else 1.0
        rate = ahead = arrivals.level(recent, arrivals.dispersion(recent))
        found = forecast(seen, self._cold) if self._parts.forecast else None
        if found is not None and found.votes:
            ahead = max(rate, found.rate)
        up, down = self._for_rate(ahead, clumps), self._for_rate(ahead * (1 + self._limits.tolerance), clumps)
        late = 0.0
        if self._parts.backlog:
            late = left_over(queued, rate, newest.ready, newest.starting, self._capacity)
            late = max(0.0, late - ordinary(rate, self._capacity, self._patience))
        if late:
            up = max(up, self._for_backlog(rate, late))
        up, down = self._believing_the_queue(up, down, rate, wish, samples)
        return Needed(up=up, down=max(up, down), rate=rate, ahead=ahead, late=late, clumps=clumps, forecast=found)

    def _believing_the_queue(self, up: int, down: int, rate: float, wish: int, samples: Sequence[Sample]
                             ) -> tuple[int, int]:  # fmt: skip
        """``wish`` is what queue depth alone asks for. While more wait than can be answered in time no fewer replicas
        will do; and where they do less than was measured, so many are needed."""
        if not overfull(samples, ordinary(rate, self._capacity, self._patience)):
            return up, down
        if slower_than_measured(samples, self._capacity.throughput):
            up = max(up, wish)
        return up, max(down, wish)

    def _for_rate(self, rate: float, clumps: float) -> int:
        return replicas_for(rate, self._capacity, self._patience, clumps, self._limits.max_replicas)

    def _for_backlog(self, rate: float, late: float) -> int:
        """Serves what comes and takes the backlog away in time."""
        in_time = max(self._patience, DRAIN * self._cold)
        wanted = math.ceil((rate + late / in_time) / self._capacity.throughput)
        return min(wanted, self._limits.max_replicas + 1)

    def _down(self, window: SignalWindow, seen: Sequence[arrivals.Interval], needed: Needed, current: int, now: float
              ) -> int:  # fmt: skip
        """Down to the most that was needed in the down window, which must have been watched for its full length; with a
        window of our own choice, a cold start, no further than to a fleet that would have met the objective before."""
        ours = self._limits.down_window is None
        held = self._cold if self._limits.down_window is None else self._limits.down_window
        most = max(within(window, held, now, needed.down))
        if now - window.started < held or most >= current:
            return current
        return self._floor(window, seen, needed, most, current) if ours and self._parts.floor else most

    def _floor(self, window: SignalWindow, seen: Sequence[arrivals.Interval], needed: Needed, low: int, high: int
               ) -> int:  # fmt: skip
        """Looked for when a step of the replay is complete: it says nothing new in between."""
        step = self._cold / STEPS
        times = [sample.time for sample in window.samples[-2:]]
        if times[0] // step == times[-1] // step:
            return high
        each = largest_rate(self._capacity, self._patience, 1 + (needed.clumps - 1) / low)
        lates = late_shares(self._capacity, self._patience, 1 + (needed.clumps - 1) / low)

        def need(rate: float, backlog: float) -> int:
            over = backlog - ordinary(rate, self._capacity, self._patience)
            wanted = min(math.ceil(rate / each), self._limits.max_replicas) if each else self._limits.max_replicas
            return max(wanted, self._for_backlog(rate, over)) if over > 0 else wanted

        def late(rate: float, replicas: int) -> float:
            load = rate / (replicas * self._capacity.throughput) if replicas else 1.0
            return lates[min(len(lates) - 1, int(load * (len(lates) - 1)))]

        fleet = Fleet(need=need, late=late, throughput=self._capacity.throughput, cold=self._cold,
                      patience=self._patience)  # fmt: skip
        cells = arrivals.merged(seen, step)
        return least_floor(cells, fleet, low, high, self._capacity.allowed)

    def _explain(self, needed: Needed, queued: float, current: int, wanted: int) -> tuple[Reason, str]:
        """No figure that moves from second to second, unless something is done: the text stands in status."""
        if wanted != current:
            return Reason.SCALING, f"{self._figures(needed, queued)}: {replicas_text(wanted)} instead of {current}."
        if needed.up > self._limits.max_replicas and current >= self._limits.max_replicas:
            return Reason.AT_LIMIT, (
                f"Arrivals and the queue ask for more than autoscaling.maxReplicas {self._limits.max_replicas}: raise "
                f"it, or the objective."
            )
        return Reason.STEADY, (
            f"Follows arrivals and the queue: {self._each()}, between {self._limits.min_replicas} and "
            f"{self._limits.max_replicas} replicas."
        )

    def _figures(self, needed: Needed, queued: float) -> str:
        said = [f"{queued:.0f} queued requests", f"{needed.rate:.1f} requests/s"]
        if needed.ahead > needed.rate:
            said.append(f"{needed.ahead:.1f} expected in {self._cold:.0f} s")
        if needed.late:
            said.append(f"{needed.late:.0f} would still wait then")
        return ", ".join([*said, self._each()])

    def _each(self) -> str:
        each = largest_rate(self._capacity, self._patience)
        if self._capacity.objective_seconds is None:
            return f"one replica does {each:.1f} requests/s with {self._limits.target:g} queued"
        percentile = f"p{self._capacity.percentile:g}"
        return f"one replica does {each:.1f} requests/s within {1000 * self._patience:g} ms at {percentile}"

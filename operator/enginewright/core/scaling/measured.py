"""Replicas from arrivals and backlog, with what one replica was measured and seen to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from enginewright.core.reasons import Reason
from enginewright.core.scaling import arrivals
from enginewright.core.scaling.backlog import ordinary
from enginewright.core.scaling.capacity import Capacity, largest_rate, late_shares, thinned
from enginewright.core.scaling.floor import Fleet, least_floor
from enginewright.core.scaling.lean import leaning
from enginewright.core.scaling.limits import ScaleDecision, ScaleLimits
from enginewright.core.scaling.lost import lost
from enginewright.core.scaling.needs import DRAIN, Needed, Needs, Parts
from enginewright.core.scaling.queue import queued_text, replicas_text, within
from enginewright.core.scaling.work import ahead_text, rate_text, size_text
from enginewright.core.signals import Sample, SignalWindow

# Cold starts without a need for a replica until it goes: one that is needed again costs a cold start, and a request
# that waits for it. After one alone, chance in the arrivals makes replicas go back and forth.
HELD = 2.0
# Seconds that the objective is held over: as long as samples are kept.
HOUR = 3600.0
# What was lost is won back over what is left of the hour, or over this if that is longer.
SOON = 1800.0
# Steps of a replay in a cold start.
STEPS = 4


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The floor that was found from what came before ``moment``, for this question."""

    moment: float
    question: tuple[object, ...]
    floor: int


class Rule:
    """One decision. ``seen`` are the window's newest intervals, at least one, as far back as
    :func:`~enginewright.core.scaling.needs.looked_back` says."""

    def __init__(self, capacity: Capacity, limits: ScaleLimits, parts: Parts) -> None:
        self._capacity = leaning(capacity, limits.prefer)
        self._limits = limits
        self._parts = parts

    def decide(self, window: SignalWindow, seen: Sequence[arrivals.Interval], queued: float, wish: int, current: int,
               now: float) -> ScaleDecision:
        """``queued`` requests of all replicas, smoothed; ``wish`` is what queue depth alone asks for."""
        needed = Needs(self._capacity, self._limits, self._parts).of(seen, wish, window.samples, current)
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
            rate=needed.rate, forecast=needed.ahead if voted else None, up=needed.up,
        )

    def _down(self, window: SignalWindow, seen: Sequence[arrivals.Interval], needed: Needed, current: int, now: float
              ) -> int:
        """Down to the most that was needed in the down window, which must have been watched for its full length; with a
        window of our own choice, some cold starts, no further than to a fleet that would have met the objective
        before."""
        ours = self._limits.down_window is None
        held = HELD * needed.cold if self._limits.down_window is None else self._limits.down_window
        most = max(within(window, held, now, needed.down))
        if now - window.started < held or most >= current:
            return current
        return self._floor(window, seen, needed, most, current) if ours and self._parts.floor else most

    def _floor(self, window: SignalWindow, seen: Sequence[arrivals.Interval], needed: Needed, low: int, high: int
               ) -> int:
        """By what came until the last whole step of the replay: it says nothing new in between."""
        step = needed.cold / STEPS
        moment = seen[-1].time // step * step
        question = (low, high, needed.capacity, thinned(needed.dispersion, low))
        known = window.notes.get(_Found)
        if isinstance(known, _Found) and (known.moment, known.question) == (moment, question):
            return known.floor
        cells = arrivals.merged([one for one in arrivals.intervals(window.samples) if one.time <= moment], step)
        fleet = self._fleet(needed, low)
        allowed = self._capacity.allowed
        left = self._left(cells, window.samples, needed) if self._parts.budget else allowed
        floor = least_floor(cells, fleet, low, high, allowed, left)
        window.notes[_Found] = _Found(moment=moment, question=question, floor=floor)
        return floor

    def _left(self, cells: Sequence[arrivals.Interval], samples: Sequence[Sample], needed: Needed) -> float:
        """The share of requests that may still be late, so that over an hour no more are than the objective allows:
        what a cold start has cost, or a burst that was not seen before, is to be won back."""
        allowed = self._capacity.allowed
        came, covered = sum(cell.arrived for cell in cells), sum(cell.seconds for cell in cells)
        if not came:
            return allowed
        ahead = came * max(SOON, HOUR - covered) / covered
        late = lost(samples, needed.capacity, needed.capacity.patience(self._limits.target))
        return min(allowed, max(0.0, (allowed * (came + ahead) - late) / ahead))

    def _fleet(self, needed: Needed, low: int) -> Fleet:
        capacity, most = needed.capacity, self._limits.max_replicas
        patience, dispersion = capacity.patience(self._limits.target), thinned(needed.dispersion, low)
        each, lates = largest_rate(capacity, patience, dispersion), late_shares(capacity, patience, dispersion)
        in_time = max(patience, DRAIN * needed.cold)

        def need(rate: float, backlog: float) -> int:
            over = backlog - ordinary(rate, 1, capacity.compute_seconds, patience)
            wanted = min(math.ceil(rate / each), most) if each else most
            return max(wanted, min(math.ceil((rate + over / in_time) / capacity.throughput), most + 1))

        def late(rate: float, replicas: int) -> float:
            load = rate / (replicas * capacity.throughput) if replicas else 1.0
            return lates[min(len(lates) - 1, int(load * (len(lates) - 1)))]

        return Fleet(need=need, late=late, throughput=capacity.throughput, cold=needed.cold, patience=patience)

    def _explain(self, needed: Needed, queued: float, current: int, wanted: int) -> tuple[Reason, str]:
        """No figure that moves from second to second, unless something is done: the text stands in status."""
        if wanted != current:
            return Reason.SCALING, f"{self._figures(needed, queued)}: {replicas_text(wanted)} instead of {current}."
        if needed.up > self._limits.max_replicas and current >= self._limits.max_replicas:
            return Reason.AT_LIMIT, (
                f"Arrivals and the queue ask for more than {self._limits.ceiling}: raise that limit, or the "
                f"objective{', or autoscaling.targetQueueDepth' if self._limits.bounded else ''}."
            )
        bound = f", with {self._limits.target:g} queued at most" if self._limits.bounded else ""
        return Reason.STEADY, (
            f"Follows arrivals and the queue: {self._each(needed)}{bound}, {self._limits.span}."
        )

    def _figures(self, needed: Needed, queued: float) -> str:
        bound = f" (at most {self._limits.target:g} each)" if self._limits.bounded else ""
        parts = [f"{queued_text(f'{queued:.0f}')}{bound}", rate_text(needed.rate, needed.capacity)]
        if needed.ahead > needed.rate:
            parts.append(f"{ahead_text(needed.ahead, needed.capacity)} expected in {needed.cold:.0f} s")
        if needed.late:
            parts.append(f"{needed.late:.0f} would still wait then")
        return ", ".join([*parts, self._each(needed)])

    def _each(self, needed: Needed) -> str:
        capacity, patience = needed.capacity, needed.capacity.patience(self._limits.target)
        each = largest_rate(capacity, patience)
        seen = "" if needed.share == 1 else f", seen at {100 * needed.share:.0f} % of what the build measured"
        if needed.slower:
            name = min(needed.slower, key=needed.slower.__getitem__)
            seen += f" ({name} at {100 * needed.slower[name] / self._capacity.throughput:.0f} %: remove it if it stays)"
        lean = "" if self._limits.prefer == "balanced" else f", by prefer {self._limits.prefer}"
        does = f"one replica does {rate_text(each, capacity)}{size_text(capacity)}"
        if capacity.objective_seconds is None:
            return f"{does} with {self._limits.target:g} queued{lean}{seen}"
        first = "first tokens " if capacity.work else ""
        return f"{does} {first}within {1000 * patience:g} ms at p{capacity.percentile:g}{lean}{seen}"

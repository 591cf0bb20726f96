"""The scaler's one entry."""

from __future__ import annotations

from dataclasses import replace

from enginewright.core.reasons import Reason
from enginewright.core.scaling.arrivals import intervals
from enginewright.core.scaling.backlog import OVERDUE
from enginewright.core.scaling.cache import guarded
from enginewright.core.scaling.capacity import Capacity
from enginewright.core.scaling.limits import ScaleDecision, ScaleLimits
from enginewright.core.scaling.measured import Rule
from enginewright.core.scaling.needs import Parts, looked_back
from enginewright.core.scaling.queue import by_queue
from enginewright.core.scaling.steps import limited
from enginewright.core.scaling.zero import asleep, to_sleep
from enginewright.core.signals import SignalWindow

ALL_PARTS = Parts()
# After a restart a second or two say nothing of a rate yet.
LEAST_INTERVALS = 5
# What waited while replicas started is gone so many seconds after, or more are needed.
SETTLED = 10.0
# Seconds after which a replica is not expected any more, where no cold start was measured.
STARTS_WITHIN = 120.0
# Whether the most that is allowed is too few is seen when all of them have answered for a while.
AWAITED = "Replicas are starting or have just become ready: the operator waits to see whether they are enough."


def decide_replicas(
    window: SignalWindow | None, current: int, limits: ScaleLimits, now: float, capacity: Capacity | None = None,
    parts: Parts = ALL_PARTS,
) -> ScaleDecision:
    """How many replicas should run, when ``current`` are asked for. ``now`` is on the window's monotonic clock. Without
    ``capacity``, or samples that tell arrivals, queue depth alone decides."""
    found = guarded(_by_load(window, current, limits, now, capacity, parts), window, current, limits, now)
    if found.reason == Reason.AT_LIMIT and window is not None and _awaited(window, current, now, capacity):
        found = replace(found, reason=Reason.SCALING, message=AWAITED)
    return limited(found, window, current, limits, now)


def _awaited(window: SignalWindow, current: int, now: float, capacity: Capacity | None) -> bool:
    """Whether replicas that were asked for start, or have just become ready, or are so new that no sample has them
    yet."""
    if window.asked and (current > window.asked[-1][1] or now - window.asked[-1][0] <= SETTLED):
        return True
    overdue = OVERDUE * capacity.cold_start_seconds if capacity else STARTS_WITHIN
    ages = [age for sample in window.samples if now - sample.time <= SETTLED for age in sample.starting]
    return any(age <= overdue for age in ages)


def _by_load(
    window: SignalWindow | None, current: int, limits: ScaleLimits, now: float, capacity: Capacity | None, parts: Parts
) -> ScaleDecision:
    if limits.min_replicas == 0:
        if current == 0:
            return asleep(window, limits, now)
        awake = _by_load(window, current, replace(limits, min_replicas=1), now, capacity, parts)
        return to_sleep(window, current, limits, now) or awake
    queue = by_queue(window, current, limits, now)
    if window is None or capacity is None or queue.hold or queue.queue_depth is None:
        return queue
    seen = intervals(window.samples, looked_back(capacity), LEAST_INTERVALS)
    if len(seen) < LEAST_INTERVALS:
        return queue
    if now - seen[-1].time > limits.stale_after:
        return _unknown_rate(queue, current, limits)
    return Rule(capacity, limits, parts).decide(window, seen, queue.queue_depth, queue.recommendation, current, now)


def _unknown_rate(queue: ScaleDecision, current: int, limits: ScaleLimits) -> ScaleDecision:
    """The queue may still ask for more; that nothing is known to arrive takes no replica away."""
    if queue.replicas > current:
        return queue
    kept = limits.clamp(current)
    return replace(
        queue, replicas=kept, recommendation=max(kept, queue.recommendation), reason=Reason.HOLDING, hold=True,
        message=f"Arrivals are unknown: not every replica answers, or counters were reset. Replicas stay at {kept}.",
    )

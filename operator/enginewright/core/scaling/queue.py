"""Replicas from queue depth alone, where nothing measured may be used: pure arithmetic over a window of samples.

The rule is the Kubernetes HorizontalPodAutoscaler's for an average value (``desired = ceil(total / target)``, a
tolerance around the target, a stabilisation window each way: kubernetes.io, "Horizontal Pod Autoscaling", algorithm
details), with three differences that a queue wants:

* The total is a *median* of the last few scrapes, so one short spike, however tall, moves nothing. A first scrape that
  would scale up is followed by another one sooner than usual (:func:`awaits_another`).
* A replica that said nothing (missed scrape, still starting) counts as *empty* when that would scale up and as *at its
  target* when that would scale down: ignorance never moves a replica in either direction.
* Without any fresh answer it *holds*: an unknown queue is not an empty one.

Limits are the user's explicit wish, so they apply at once, held or not.
"""

from __future__ import annotations

import itertools
import math
import statistics

from enginewright.core.reasons import Reason
from enginewright.core.scaling.limits import DOWN_WINDOW, ScaleDecision, ScaleLimits
from enginewright.core.signals import Sample, SignalWindow

# Samples whose median is taken: a spike counts once two samples in a row show it.
SMOOTHING_SAMPLES = 3
# A scale-up needs this many fresh samples: after a restart the first one alone may be a spike.
SAMPLES_TO_SCALE_UP = 2


def by_queue(window: SignalWindow | None, current: int, limits: ScaleLimits, now: float) -> ScaleDecision:
    """How many replicas should run, when ``current`` are asked for. ``now`` is on the window's monotonic clock."""
    samples = believable(window, limits, now)
    if window is None or not samples:
        return holding(current, limits, why_unknown(window, limits, now))
    low = statistics.median_low(_total(sample, current, 0.0) for sample in samples)
    high = statistics.median_high(_total(sample, current, limits.target) for sample in samples)
    wish = _wish(low, high, len(samples), current, limits)
    ceiling = max(within(window, _down(limits), now, wish))
    wanted = limits.clamp(_stabilised(window, wish, ceiling, current, limits, now))
    reason, message = _explain(ceiling, wanted, current, low, limits)
    return ScaleDecision(replicas=wanted, recommendation=wish, reason=reason, message=message, queue_depth=low)


def awaits_another(window: SignalWindow, current: int, limits: ScaleLimits, now: float) -> bool:
    """Whether the newest sample alone asks for more replicas, and the median does not yet. The next sample then tells a
    queue from a spike, and need not be waited for as long as others."""
    samples = believable(window, limits, now)
    if not samples or samples[-1] is not window.samples[-1] or current >= limits.max_replicas:
        return False
    most = limits.target * current * (1 + limits.tolerance)
    totals = [_total(sample, current, 0.0) for sample in samples]
    return totals[-1] > most and (len(totals) < SAMPLES_TO_SCALE_UP or statistics.median_low(totals) <= most)


def believable(window: SignalWindow | None, limits: ScaleLimits, now: float) -> list[Sample]:
    """The newest few fresh samples in which at least one replica answered."""
    if window is None:
        return []
    fresh = itertools.takewhile(lambda sample: now - sample.time <= limits.stale_after, reversed(window.samples))
    answered = (sample for sample in fresh if sample.pending and sample.time <= now)
    return list(itertools.islice(answered, SMOOTHING_SAMPLES))[::-1]


def _total(sample: Sample, current: int, silent: float) -> float:
    """Queued requests of all replicas when each silent one of ``current`` is taken to hold ``silent``."""
    return sum(sample.pending.values()) + silent * max(0, current - len(sample.pending))


def _wish(low: float, high: float, samples: int, current: int, limits: ScaleLimits) -> int:
    capacity = limits.target * current
    if low > capacity * (1 + limits.tolerance):
        return math.ceil(low / limits.target) if samples >= SAMPLES_TO_SCALE_UP else current
    if high < capacity * (1 - limits.tolerance):
        return max(limits.min_replicas, math.ceil(high / limits.target))
    return current


def _stabilised(window: SignalWindow, wish: int, ceiling: int, current: int, limits: ScaleLimits, now: float) -> int:
    """Up to the least that was wished in the up window, down to the most that was wished in the down window; down only
    when the window has been watched for its full length."""
    floor = min(within(window, limits.up_window, now, wish))
    if now - window.started < _down(limits):
        ceiling = max(ceiling, current)
    return min(max(current, floor), ceiling)


def _down(limits: ScaleLimits) -> float:
    return DOWN_WINDOW if limits.down_window is None else limits.down_window


def within(window: SignalWindow, seconds: float, now: float, newest: int) -> list[int]:
    """The wishes of the last ``seconds``, this moment's included."""
    return [newest, *(replicas for time, replicas in window.recommendations if 0 <= now - time < seconds)]


def holding(current: int, limits: ScaleLimits, why: str) -> ScaleDecision:
    """Keeps what there is. The recommendation is that too, so a blind minute never counts towards scaling down."""
    kept = limits.clamp(current)
    return ScaleDecision(
        replicas=kept, recommendation=kept, reason=Reason.HOLDING, hold=True, message=f"{why} Replicas stay at {kept}."
    )


def why_unknown(window: SignalWindow | None, limits: ScaleLimits, now: float) -> str:
    if window is None or not window.samples:
        return "The operator has not asked a replica for its queue depth yet."
    if now - window.samples[-1].time > limits.stale_after:
        return f"The last queue depth is older than {limits.stale_after:g} s."
    return "No replica reports its queue depth."


def _explain(ceiling: int, wanted: int, current: int, total: float, limits: ScaleLimits) -> tuple[Reason, str]:
    """No figure that moves from second to second, unless something is done: the text stands in status."""
    if wanted != current:
        return Reason.SCALING, (
            f"{queued_text(f'{total:g}')} on {replicas_text(current)} (target {limits.target:g} each): "
            f"{replicas_text(wanted)}."
        )
    if ceiling > limits.max_replicas and current >= limits.max_replicas:
        return Reason.AT_LIMIT, (
            f"The queue asks for more than {limits.ceiling}: raise that limit, or autoscaling.targetQueueDepth."
        )
    return Reason.STEADY, (
        f"Follows the queue: {limits.target:g} queued requests per replica, {limits.span}."
    )


def queued_text(count: str) -> str:
    """``count`` is the number as it is to be shown."""
    return f"{count} queued request{'' if count == '1' else 's'}"


def replicas_text(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"

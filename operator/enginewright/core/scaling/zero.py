"""To no replica and back, where ``minReplicas`` is 0: nothing but requests decides.

Down goes it only after a time in which no request came, as every replica's own counters tell; what is unknown
counts as a request. Up it goes with the first request that the activator holds: one replica, and once that answers its
own queue says whether more are needed. How much was held until then tells how long it took to start.
"""

from __future__ import annotations

import itertools

from enginewright.core.reasons import Reason
from enginewright.core.scaling.limits import ScaleDecision, ScaleLimits
from enginewright.core.scaling.queue import replicas_text
from enginewright.core.signals import Sample, SignalWindow

ONE = 1


def asleep(window: SignalWindow | None, limits: ScaleLimits, now: float) -> ScaleDecision:
    """While no replica is asked for."""
    answered = [sample for sample in window.samples if sample.held is not None] if window else []
    held = answered[-1].held if answered else None
    if held:
        requests = "1 request waits" if held == 1 else f"{held:.0f} requests wait"
        return _decision(ONE, f"{requests} and no replica runs: {replicas_text(ONE)}.", held)
    if window is None or now - (answered[-1].time if answered else window.started) <= limits.stale_after:
        return ScaleDecision(
            replicas=0, recommendation=0, reason=Reason.SCALED_TO_ZERO, queue_depth=held,
            message=f"No request came for {limits.zero_after:g} s: no replica runs, and the next request starts one.",
        )
    why = f"The activator has not answered for {limits.stale_after:g} s"
    return _decision(ONE, f"{why}: {replicas_text(ONE)}, so that no request waits unseen.", None)


def to_sleep(window: SignalWindow | None, current: int, limits: ScaleLimits, now: float) -> ScaleDecision | None:
    """None unless nothing has come for long enough, and an activator answers that can hold what comes next."""
    if window is None or not window.samples or window.samples[-1].held is None:
        return None
    since = quiet_since(window.samples)
    fresh = now - window.samples[-1].time <= limits.stale_after
    if since is None or not fresh or now - since < limits.zero_after:
        return None
    return _decision(0, f"No request for {limits.zero_after:g} s: no replica instead of {current}.", 0.0)


def quiet_since(samples: tuple[Sample, ...]) -> float | None:
    """From when on, by all samples since, no request came and none waited; None while one does or that is unknown."""
    if not samples or _busy(samples[-1]):
        return None
    quiet = itertools.takewhile(lambda sample: not _busy(sample), reversed(samples))
    oldest = sum(1 for _ in quiet)
    last = samples[max(0, len(samples) - oldest - 1)]
    if last.occupied_at is not None and not _came(last):
        return last.occupied_at
    # What a sample tells is of the time since the one before it.
    return last.time


def _busy(sample: Sample) -> bool:
    return _came(sample) or sample.busy


def _came(sample: Sample) -> bool:
    """A hit of the response cache is no work, but a client asked."""
    return sample.arrived != 0 or bool(sample.hits)


def _decision(replicas: int, message: str, held: float | None) -> ScaleDecision:
    return ScaleDecision(replicas=replicas, recommendation=replicas, reason=Reason.SCALING, message=message,
                         queue_depth=held)

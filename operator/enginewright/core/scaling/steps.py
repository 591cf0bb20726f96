"""How far one decision may go: what came or went within each period counts, as in the HorizontalPodAutoscaler's scaling
policies. Of several policies the one that allows most counts (its ``selectPolicy: Max``). Fewest and most replicas hold
at once: they are a wish, not a reaction to the load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from enginewright.core.reasons import Reason
from enginewright.core.scaling.limits import ScaleDecision, ScaleLimits, Step
from enginewright.core.scaling.queue import replicas_text
from enginewright.core.signals import SignalWindow


def limited(found: ScaleDecision, window: SignalWindow | None, current: int, limits: ScaleLimits, now: float
            ) -> ScaleDecision:
    """``found`` as far as steps let it go, with what holds it said."""
    asked = window.asked if window else ()
    here = limits.clamp(current)
    if found.replicas > here and limits.up_steps:
        most = max(here, *(_most(step, _before(asked, now - step.period, current)) for step in limits.up_steps))
        if most < found.replicas:
            return _held_back(found, most, current, "behavior.scaleUp adds", limits.up_steps)
    if found.replicas < here and limits.down_steps:
        least = min(here, *(_least(step, _before(asked, now - step.period, current)) for step in limits.down_steps))
        if least > found.replicas:
            return _held_back(found, least, current, "behavior.scaleDown removes", limits.down_steps)
    return _with_bounds(found, current, limits)


def _before(asked: Sequence[tuple[float, int]], moment: float, current: int) -> int:
    """How many were asked for at ``moment``, or as long ago as is known."""
    known = [replicas for time, replicas in asked if time <= moment]
    return known[-1] if known else asked[0][1] if asked else current


def _most(step: Step, before: int) -> int:
    """From none, one may always start."""
    return max(1, math.ceil(before * (1 + step.value / 100)) if step.percent else before + step.value)


def _least(step: Step, before: int) -> int:
    return max(0, math.floor(before * (1 - step.value / 100)) if step.percent else before - step.value)


def _held_back(found: ScaleDecision, replicas: int, current: int, what: str, steps: Sequence[Step]) -> ScaleDecision:
    rule = f"autoscaling.{what} {' or '.join(map(str, steps))} at most"
    if replicas != current:
        return replace(found, replicas=replicas, message=f"{found.message} {replicas_text(replicas)} for now: {rule}.")
    # Without the figures of the moment: the text stands in status.
    up = found.replicas > current
    # A slow scale-up lacks nothing: no limit need be raised.
    message = f"{'More' if up else 'Fewer'} replicas are needed, but have to wait: {rule}."
    return replace(found, replicas=replicas, reason=Reason.AT_LIMIT if up else Reason.SCALING, message=message)


def _with_bounds(found: ScaleDecision, current: int, limits: ScaleLimits) -> ScaleDecision:
    """A change that is as large as it is for the sake of minReplicas, of a schedule or of the cost."""
    why = ""
    if current < found.replicas == limits.min_replicas:
        why = limits.least or f"autoscaling.minReplicas {limits.min_replicas}"
    elif found.replicas == limits.max_replicas and max(current, found.recommendation) > found.replicas:
        why = limits.most
    if not why or found.replicas == current:
        return found
    return replace(found, reason=found.reason if found.hold else Reason.SCALING, message=f"{found.message} By {why}.")

"""Who takes the model's requests where ``minReplicas`` is 0: replicas, or the activator while none answers.

On the way down the Service leaves the replicas first, and the activator still passes requests on to them; when nothing
leads to them any more but through it, that way is closed and they are stopped. On the way up both ways open together,
in the pass that sees a replica ready. Until there is an activator that answers nothing of this happens, and one replica
at least runs.
"""

from __future__ import annotations

from enginewright.core.context import PassContext
from enginewright.core.decide.desired import Way
from enginewright.core.observed import Observed


def way(ctx: PassContext, wanted: int) -> Way:
    return _way(ctx, wanted) if asked_for(ctx) and ctx.observed.holds else Way.DIRECT


def _way(ctx: PassContext, wanted: int) -> Way:
    if wanted:
        return Way.DIRECT if ctx.serving.answering else Way.HELD
    return Way.LEAVING if ctx.serving.answering and not taken_over(ctx.observed) else Way.HELD


def asked_for(ctx: PassContext) -> bool:
    return ctx.spec.autoscaling is not None and ctx.spec.autoscaling.min_replicas == 0


def taken_over(observed: Observed) -> bool:
    """Whether everything that comes through the Service comes to the activator."""
    ready = [entry for entry in observed.endpoints if entry.ready and not entry.terminating]
    selected = observed.service is not None and observed.service.activator
    return selected and bool(ready) and all(entry.activator for entry in ready)

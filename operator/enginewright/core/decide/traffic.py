"""Who gets requests, as data: shares of what comes through a Gateway, and who takes them while no replica answers.

The weights in the routes follow the rollout, and the rollout waits for them. Revisions' Services come first, then the
routes, then what the rollout does; a revision is stopped only in a pass that sees no route send it traffic any more.
The other way round, what is not asked for any more goes: routes, and once they are gone, the Services.

Where ``minReplicas`` is 0 replicas take the requests, or the activator while none answers. On the way down the Service
leaves the replicas first, and the activator still passes requests on to them; when nothing leads to them any more but
through it, that way is closed and they are stopped. On the way up both ways open together, in the pass that sees a
replica ready. Until there is an activator that answers nothing of this happens, and one replica at least runs. Where
``minReplicas`` is no longer 0, an activator that stands in goes once a replica answers.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from enginewright.core.context import PassContext
from enginewright.core.decide.desired import Desired, Way
from enginewright.core.observed import Observed
from enginewright.core.routing import HTTP_ROUTE, WHOLE, Weights, answerable


@dataclass(frozen=True, kw_only=True)
class Routing:
    """``weights`` are to be written, empty for nothing. ``backends`` are the revisions that are to have a Service of
    their own, ``used`` those whose Service stays as well. Some route still sends traffic to those that are
    ``leaving``; ``unclear`` says that routes had better stay as they are for now."""

    weights: Weights = field(default_factory=dict)
    backends: tuple[str, ...] = ()
    used: frozenset[str] = frozenset()
    leaving: frozenset[str] = frozenset()
    unclear: bool = False


def routing(ctx: PassContext, desired: Desired, made: tuple[str, ...], *, complete: bool) -> Routing:
    """``made`` are revisions whose Deployment is about to be made. What is ``complete`` has its Service even while it
    has no replica, and so no Deployment. Without a Gateway in the spec nothing is used."""
    seen, serving = ctx.observed.gateway, ctx.serving
    if ctx.spec.rollout.gateway is None:
        return Routing()
    proven = tuple(desired.weights) if complete else ()
    backends = tuple(dict.fromkeys((*(view.revision for view in serving.alive), *made, *proven)))
    wanted = desired.weights or _as_before(ctx)
    weights = answerable(wanted, seen.ready)
    unclear = _unclear(ctx, wanted, weights.keys() - set(backends))
    if unclear:
        weights = {}
    used = seen.routed.union(weights, backends, (view.revision for view in ctx.observed.deployments))
    return Routing(weights=weights, backends=backends, used=used, leaving=seen.routed - weights.keys(),
                   unclear=unclear)


def _unclear(ctx: PassContext, wanted: Weights, stopped: Set[str]) -> bool:
    """A Service that was just made has nothing behind it yet, which says nothing of its replicas; and of revisions that
    are ``stopped`` the Service may be gone."""
    made = any(ctx.serving.answering.get(name) and name not in ctx.observed.gateway.ready for name in wanted)
    return made or not all(map(ctx.has_backend, stopped))


def _as_before(ctx: PassContext) -> Weights:
    """Where nothing is said, traffic stays where it is."""
    if before := ctx.observed.gateway.weights.get(HTTP_ROUTE):
        return before
    return {ctx.serving.stable.revision: WHOLE} if ctx.serving.stable else {}


def way(ctx: PassContext, wanted: int) -> Way:
    """An activator that stands in and is not asked for any more does so until a replica answers: nothing else would
    take requests meanwhile."""
    if not ctx.observed.holds:
        return Way.DIRECT
    if to_zero(ctx):
        return _way(ctx, wanted)
    stands_in = ctx.observed.service is not None and ctx.observed.service.activator
    return Way.HELD if stands_in and wanted and not ctx.serving.answering else Way.DIRECT


def _way(ctx: PassContext, wanted: int) -> Way:
    if wanted:
        return Way.DIRECT if ctx.serving.answering else Way.HELD
    return Way.LEAVING if ctx.serving.answering and not taken_over(ctx.observed) else Way.HELD


def to_zero(ctx: PassContext) -> bool:
    """Whether the last replica may go, so that the activator has to hold requests."""
    return ctx.spec.autoscaling is not None and ctx.spec.autoscaling.min_replicas == 0


def taken_over(observed: Observed) -> bool:
    """Whether everything that comes through the Service comes to the activator, and will."""
    return observed.service is not None and observed.service.activator and held(observed)


def held(observed: Observed) -> bool:
    """Whether everything that comes through the Service comes to the activator now: nodes follow the endpoints, which
    are a moment behind what the Service selects."""
    ready = [entry for entry in observed.endpoints if entry.ready and not entry.terminating]
    return bool(ready) and all(entry.activator for entry in ready)

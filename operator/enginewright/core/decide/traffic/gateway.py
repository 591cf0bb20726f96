"""Shares of what comes through a Gateway: the weights in the routes follow the rollout, and the rollout waits for them.

Revisions' Services come first, then the routes, then what the rollout does; a revision is stopped only in a pass that
sees no route send it traffic any more. The other way round, what is not asked for any more goes: routes, and once they
are gone, the Services.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from enginewright.core.context import PassContext
from enginewright.core.decide.desired import Desired
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

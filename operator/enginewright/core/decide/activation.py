"""Who takes the model's requests where ``minReplicas`` is 0: replicas, or the activator while none answers.

On the way down the Service leaves the replicas first, and the activator still passes requests on to them; when nothing
leads to them any more but through it, that way is closed and they are stopped. On the way up both ways open together,
in the pass that sees a replica ready. Until there is an activator that answers nothing of this happens, and one replica
at least runs.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto

from enginewright.core import labels
from enginewright.core.conditions import Verdict, good
from enginewright.core.context import PassContext, applied_as, apply_if_changed, earliest
from enginewright.core.decide import children
from enginewright.core.decide.analysis import starting_trouble
from enginewright.core.decide.rollout import RolloutResult
from enginewright.core.decide.serving import Serving
from enginewright.core.manifests import (
    NOBODY,
    activator,
    activator_name,
    activator_service,
    backend_name,
    backend_service,
    service,
)
from enginewright.core.observed import Observed
from enginewright.core.plan import Action, Apply, Delete, Scale
from enginewright.core.reasons import Condition, Reason

# The slices of the Service tell when it has left the replicas; should that be missed, another look does.
LEAVING_CHECK = 1.0


class Way(Enum):
    """DIRECT: the Service selects replicas. LEAVING: it selects the activator, which passes requests on to replicas.
    HELD: it selects the activator, which reaches nobody."""

    DIRECT = auto()
    LEAVING = auto()
    HELD = auto()


def with_activator(ctx: PassContext, serving: Serving, wanted: int, rollout: RolloutResult) -> RolloutResult:
    """``rollout`` with the Service before the activator while that is to take the requests."""
    if ctx.spec.suspend or not (_wished(ctx) or _left_over(ctx)):
        return rollout
    way = _way(ctx, serving, wanted)
    aim, others = _aim(ctx, serving, rollout.actions)
    if way is Way.LEAVING:
        others = tuple(action for action in others if not _stops(action))
    backend = backend_service(ctx.owner, NOBODY if way is Way.HELD else aim)
    applied = applied_as(ctx.observed, backend)
    opened = apply_if_changed(backend, applied, f"requests that are held go to {_named(way, aim)}",
                              force=applied is not None)
    mine = (*opened, *_deployment(ctx)) if _wished(ctx) else _remove(ctx, way, opened)
    return replace(
        rollout, actions=(*mine, *_routed(ctx, way, aim, rollout.actions), *others),
        requeue=earliest(rollout.requeue, LEAVING_CHECK) if way is Way.LEAVING else rollout.requeue,
    )


def held_verdict(ctx: PassContext, serving: Serving, revision: str, wanted: int) -> Verdict | None:
    """``Available`` while the activator answers for ``revision``; None when it does not, or in vain."""
    if ctx.spec.suspend or serving.traffic or not _taken_over(ctx.observed):
        return None
    if not wanted:
        return good(Condition.AVAILABLE, Reason.SCALED_TO_ZERO, "No request comes and no replica runs: the next one is "
                    "held, and starts a replica.")
    deployed = serving.stable or serving.deployment(revision)
    if deployed is None or starting_trouble(ctx, deployed, deployed.revision):
        return None
    return good(Condition.AVAILABLE, Reason.WAKING, "Requests are held until a replica is ready.")


def _wished(ctx: PassContext) -> bool:
    return ctx.spec.autoscaling is not None and ctx.spec.autoscaling.min_replicas == 0


def _left_over(ctx: PassContext) -> bool:
    """From a spec that asked for it before."""
    name, seen = ctx.obj.name, ctx.observed
    mine = {f"Deployment/{activator_name(name)}", f"Service/{backend_name(name)}"}
    return bool(mine & seen.applied.keys()) or (seen.service is not None and seen.service.activator)


def _way(ctx: PassContext, serving: Serving, wanted: int) -> Way:
    if not (_wished(ctx) and ctx.observed.holds):
        return Way.DIRECT
    if wanted:
        return Way.DIRECT if serving.answering else Way.HELD
    return Way.LEAVING if serving.answering and not _taken_over(ctx.observed) else Way.HELD


def _taken_over(observed: Observed) -> bool:
    """Whether everything that comes through the Service comes to the activator."""
    ready = [entry for entry in observed.endpoints if entry.ready and not entry.terminating]
    selected = observed.service is not None and observed.service.activator
    return selected and bool(ready) and all(entry.activator for entry in ready)


def _aim(ctx: PassContext, serving: Serving, actions: tuple[Action, ...]) -> tuple[str, tuple[Action, ...]]:
    """The revision that the Service selects where replicas take the requests, :data:`children.EVERY` included; and
    ``actions`` without what says so."""
    others = tuple(action for action in actions if not _routes(ctx, action))
    for action in actions:
        if isinstance(action, Apply) and _routes(ctx, action):
            return str(action.manifest["spec"]["selector"].get(labels.REVISION, "")), others
    seen = ctx.observed.service
    if seen is not None and not seen.activator:
        return seen.revision, others
    return (serving.stable.revision if serving.stable else children.EVERY), others


def _routes(ctx: PassContext, action: Action) -> bool:
    if not isinstance(action, Apply) or action.manifest["kind"] != "Service":
        return False
    return bool(action.manifest["metadata"]["name"] == ctx.obj.name)


def _routed(ctx: PassContext, way: Way, aim: str, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """The model's Service, where it is to change; not before anything asks for it."""
    seen = ctx.observed.service
    if way is Way.DIRECT:
        if seen is None or not seen.activator:
            return tuple(action for action in actions if _routes(ctx, action))
        return (Apply(manifest=service(ctx.owner, aim), why="replicas take the requests again"),)
    if seen is None and not any(_routes(ctx, action) for action in actions):
        return ()
    manifest = activator_service(ctx.owner)
    applied = applied_as(ctx.observed, manifest) if seen and seen.activator else None
    return apply_if_changed(manifest, applied, "no replica answers: the activator holds what comes" if way is Way.HELD
                            else "no request comes: the activator takes over", force=seen is not None)


def _stops(action: Action) -> bool:
    match action:
        case Scale(replicas=0) | Delete(kind="Deployment"):
            return True
    return False


def _deployment(ctx: PassContext) -> tuple[Action, ...]:
    if ctx.spec.autoscaling is None:
        return ()
    manifest = activator(ctx.owner, ctx.spec.autoscaling, ctx.config)
    applied = applied_as(ctx.observed, manifest)
    return apply_if_changed(manifest, applied, "autoscaling.minReplicas is 0", force=applied is not None)


def _remove(ctx: PassContext, way: Way, opened: tuple[Action, ...]) -> tuple[Action, ...]:
    """What is not asked for any more, once the Service has left it; its own Service goes last, when it has delivered
    what it holds."""
    seen = ctx.observed
    deployment, backend = activator_name(ctx.obj.name), backend_name(ctx.obj.name)
    why = "autoscaling.minReplicas is not 0"
    left = seen.service is None or not seen.service.activator
    if left and not any(entry.activator for entry in seen.endpoints):
        if f"Deployment/{deployment}" in seen.applied:
            return (*opened, Delete(api_version="apps/v1", kind="Deployment", name=deployment, why=why))
        if not seen.activators:
            return (Delete(api_version="v1", kind="Service", name=backend, why=why),)
    return opened


def _named(way: Way, aim: str) -> str:
    if way is Way.HELD:
        return "nobody before a replica is ready"
    return f"revision {aim}" if aim else "every revision"

"""Traffic through a Gateway: the weights in the routes follow the rollout, and the rollout waits for them.

Revisions' Services come first, then the routes, then what the rollout does; a revision is stopped only in a pass that
sees no route send it traffic any more. The other way round, what is not asked for any more goes: routes, and once they
are gone, the Services.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from enginewright.core import labels
from enginewright.core.conditions import Verdict, bad
from enginewright.core.context import LOOK_AGAIN, PassContext, applied_as, apply_if_changed, earliest
from enginewright.core.decide.rollout import RolloutResult, back_to
from enginewright.core.decide.serving import Serving
from enginewright.core.decide.withdraw import give_share_back, shares_traffic, wrong
from enginewright.core.manifests import (
    GRPC_ROUTE,
    HTTP_ROUTE,
    ROUTE_API_VERSION,
    backend_name,
    deployment_name,
    revision_service,
    revision_service_name,
    routes,
)
from enginewright.core.manifests.service import mirror_name
from enginewright.core.observed import DeploymentView
from enginewright.core.plan import Action, Apply, Delete, Scale
from enginewright.core.reasons import Condition, Reason
from enginewright.core.routing import WHOLE, Weights, answerable
from enginewright.core.spec.gateway import GatewaySpec
from enginewright.core.status import RolloutStatus

# No watch tells of a route, so that what follows on one needs another look.
ROUTE_CHECK = 1.0


def not_installed(
    ctx: PassContext, serving: Serving, memory: RolloutStatus, wanted: int, goal: str
) -> RolloutResult | None:
    """None unless the spec asks for kinds that the cluster lacks. What serves goes on alone, and no rollout to ``goal``
    starts; one that was under way runs backwards, so that nobody's share is dropped before others can take it."""
    missing = ctx.observed.gateway.missing
    if ctx.spec.rollout.gateway is None or not missing:
        return None
    stable = serving.stable
    actions: tuple[Action, ...] = ()
    traffic: Weights = {}
    said = "No rollout starts before that"
    if stable:
        why = "the Gateway API, which the spec asks for, is missing"
        actions, traffic, half = _alone(ctx, serving, stable, memory, wanted, why)
        said += f"; revision {stable.revision} goes on serving behind Service {ctx.obj.name}"
        said += f", and until it has all its replicas revision {half} keeps a part of the traffic" if half else ""
        if (memory.stable, memory.step) != (goal, "Complete"):
            memory = RolloutStatus(stable=stable.revision, rolled_back=memory.rolled_back)
    kinds = " and ".join(missing)
    return RolloutResult(
        memory=memory,
        actions=actions,
        traffic=traffic,
        requeue=LOOK_AGAIN,
        verdict=bad(
            Condition.ROLLOUT_COMPLETE,
            Reason.GATEWAY_NOT_INSTALLED,
            f"spec.rollout.gateway needs {kinds} of {ROUTE_API_VERSION}, which this cluster does not have: install the "
            f"Gateway API's CustomResourceDefinitions (standard channel, 1.1 or newer), or remove "
            f"{'spec.rollout.gateway' if HTTP_ROUTE in missing else 'spec.rollout.gateway.grpcHostnames'}. {said}.",
        ),
    )


def _alone(
    ctx: PassContext, serving: Serving, stable: DeploymentView, memory: RolloutStatus, wanted: int, why: str
) -> tuple[tuple[Action, ...], Weights, str]:
    """Actions, shares, and a revision that gives its share back first: empty when none has one."""
    for half in serving.alive:
        if half.revision != stable.revision and shares_traffic(ctx, serving, half):
            found = give_share_back(ctx, serving, stable, half, wanted, why, wrong=wrong(ctx, half, memory))
            if found:
                return *found, half.revision
    return back_to(ctx, serving, stable, wanted, why), {stable.revision: WHOLE}, ""


def with_routes(ctx: PassContext, serving: Serving, rollout: RolloutResult) -> RolloutResult:
    """``rollout`` with the routes that lead to where it wants the traffic."""
    gateway, seen = ctx.spec.rollout.gateway, ctx.observed.gateway
    if ctx.spec.suspend:
        return rollout
    if gateway is None:
        gone = remove_routes(ctx, set(seen.weights)) or _remove_services(ctx, frozenset())
        return replace(rollout, actions=rollout.actions + gone, requeue=_soon(rollout, gone))
    # What is complete has its Service even while it has no replica, and so no Deployment.
    complete = tuple(rollout.traffic) if rollout.verdict.ok else ()
    running = tuple(dict.fromkeys((*(view.revision for view in serving.alive), *_made(rollout.actions), *complete)))
    wanted = rollout.traffic or _as_before(ctx, serving)
    weights = answerable(wanted, seen.ready)
    if unclear := _unclear(ctx, serving, wanted, weights.keys() - set(running)):
        weights = {}
    leaving = seen.routed - weights.keys()
    kept = tuple(action for action in rollout.actions if not _stops(ctx, action, leaving))
    used = seen.routed.union(weights, running, (view.revision for view in ctx.observed.deployments))
    routed = route_actions(ctx, gateway, weights)
    actions = (*_services(ctx, running), *routed, *kept, *_remove_services(ctx, used))
    waits = bool(leaving or unclear or routed)
    verdict = _told(ctx, rollout.verdict, waits)
    return replace(rollout, actions=actions, requeue=_soon(rollout, waits), verdict=verdict)


def _told(ctx: PassContext, verdict: Verdict, waits: bool) -> Verdict:
    """Complete is only what the routes say, too; and what a Gateway has against them is said whatever happens."""
    if verdict.ok and waits:
        verdict = bad(Condition.ROLLOUT_COMPLETE, Reason.PROGRESSING, f"{verdict.message} Routes are written next.")
    refused = "".join(f" {said}" for said in ctx.observed.gateway.refused)
    return replace(verdict, message=f"{verdict.message}{refused}")


def _unclear(ctx: PassContext, serving: Serving, wanted: Weights, stopped: Set[str]) -> bool:
    """Whether the routes had better stay as they are for now. A Service that was just made has nothing behind it yet,
    which says nothing of its replicas; and of revisions that are ``stopped`` the Service may be gone."""
    made = any(serving.answering.get(name) and name not in ctx.observed.gateway.ready for name in wanted)
    names = {f"Service/{revision_service_name(ctx.obj.name, revision)}" for revision in stopped}
    return made or not names <= ctx.observed.applied.keys()


def _soon(rollout: RolloutResult, why: object) -> float | None:
    return earliest(rollout.requeue, ROUTE_CHECK) if why else rollout.requeue


def _as_before(ctx: PassContext, serving: Serving) -> Weights:
    """Where nothing is said, traffic stays where it is."""
    if before := ctx.observed.gateway.weights.get(HTTP_ROUTE):
        return before
    return {serving.stable.revision: WHOLE} if serving.stable else {}


def _stops(ctx: PassContext, action: Action, revisions: frozenset[str]) -> bool:
    """Whether ``action`` takes the last replica of one of ``revisions``."""
    names = {deployment_name(ctx.obj.name, revision) for revision in revisions}
    match action:
        case Delete(kind="Deployment", name=name):
            return name in names
        case Scale(deployment=name, replicas=0):
            return name in names
    return False


def _made(planned: tuple[Action, ...]) -> tuple[str, ...]:
    """Revisions whose Deployment is about to be made."""
    found = (action.manifest for action in planned if isinstance(action, Apply))
    return tuple(made["metadata"]["labels"][labels.REVISION] for made in found if made["kind"] == "Deployment")


def _services(ctx: PassContext, revisions: tuple[str, ...]) -> tuple[Action, ...]:
    """One of each of ``revisions``, before it is ready: the slices behind it say when it is."""
    actions: tuple[Action, ...] = ()
    for revision in revisions:
        manifest = revision_service(ctx.owner, revision)
        applied = applied_as(ctx.observed, manifest)
        why = f"routes lead to revision {revision} through it"
        actions += apply_if_changed(manifest, applied, why, force=applied is not None)
    return actions


def route_actions(ctx: PassContext, gateway: GatewaySpec, weights: Weights) -> tuple[Action, ...]:
    seen = ctx.observed.gateway.weights
    """``weights`` are shares of a hundred by revision, or of a fleet by class: what is written where it is not so."""
    shares = ", ".join(f"{share} % to {target}" for target, share in sorted(weights.items()))
    actions: tuple[Action, ...] = ()
    for manifest in routes(ctx.owner, gateway, weights) if weights else ():
        kind = manifest["kind"]
        if kind in ctx.observed.gateway.missing:
            continue
        applied = applied_as(ctx.observed, manifest) if seen.get(kind) == weights else None
        actions += apply_if_changed(manifest, applied, f"the Gateway sends {shares}", force=kind in seen)
    return actions + (() if gateway.grpc_hostnames else remove_routes(ctx, set(seen) & {GRPC_ROUTE}))


def remove_routes(ctx: PassContext, kinds: set[str]) -> tuple[Action, ...]:
    return tuple(
        Delete(api_version=ROUTE_API_VERSION, kind=kind, name=ctx.obj.name, why="the spec does not ask for it")
        for kind in sorted(kinds)
    )


def _remove_services(ctx: PassContext, kept: frozenset[str]) -> tuple[Action, ...]:
    """Of revisions that are not ``kept``. Only children of the object are ever seen here."""
    name = ctx.obj.name
    names = {name, backend_name(name), mirror_name(name), *(revision_service_name(name, revision) for revision in kept)}
    services = [key.removeprefix("Service/") for key in ctx.observed.applied if key.startswith("Service/")]
    return tuple(
        Delete(api_version="v1", kind="Service", name=name, why="no route leads to it any more")
        for name in sorted(services)
        if name not in names
    )

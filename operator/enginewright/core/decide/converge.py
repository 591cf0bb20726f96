"""How what is desired is brought about: the only maker of Apply, Scale and Delete for what serves.

The order of writes makes before it breaks. What holds requests comes first, then the Services of revisions and the
routes to them, then the target's Deployment and the model's Service, then replicas, and last what stops. Where there is
no capacity to spare, what shrinks and stops makes room before anything grows.

A revision is stopped, or scaled to nothing, only when

1. it is not kept, and what is desired does not spare it (:class:`~enginewright.core.decide.desired.Stops`);
2. no endpoint of the Service leads to it any more, where it served until now;
3. no route of the Gateway sends it traffic any more;
4. the Service has left replicas, where the activator takes over from them.
"""

from __future__ import annotations

from dataclasses import dataclass

from enginewright.core.applying import (
    ROUTE_CHECK,
    applied,
    applied_as,
    apply_if_changed,
    claim,
    remove_routes,
    write_routes,
)
from enginewright.core.context import PassContext, earliest
from enginewright.core.decide.blocks import shown_record
from enginewright.core.decide.desired import EVERY, Desired, Stops, Way
from enginewright.core.decide.scale import Contest
from enginewright.core.decide.target import Target
from enginewright.core.decide.traffic import Routing, routing, to_zero
from enginewright.core.decide.trouble import look_for_another
from enginewright.core.language_models import server_for
from enginewright.core.manifests import (
    NO_REVISION,
    activator,
    activator_name,
    activator_service,
    backend_name,
    backend_service,
    deployment,
    pdb,
    revision_service,
    revision_service_name,
    service,
)
from enginewright.core.manifests.captures import capture_record
from enginewright.core.manifests.service import mirror_name, mirror_service
from enginewright.core.manifests.signing import capture_secret
from enginewright.core.observed import DeploymentView
from enginewright.core.plan import Action, Apply, Create, Delete, MakeKey, Scale
from enginewright.core.published import server_of
from enginewright.core.request import store_claim
from enginewright.core.servers import Server
from enginewright_builder.contract import SIGNING_KEY

# The slices of the Service tell when it has left the replicas; should that be missed, another look does.
LEAVING_CHECK = 1.0


@dataclass(frozen=True, kw_only=True)
class Converged:
    """``unrouted`` says that the routes do not say yet what is desired, ``refused`` what Gateways have against them."""

    actions: tuple[Action, ...]
    requeue: float | None = None
    unrouted: bool = False
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Pass:
    """What the parts below share."""

    ctx: PassContext
    target: Target
    desired: Desired
    contest: Contest
    routing: Routing

    @property
    def server(self) -> Server:
        """What the replicas run that serve, else those that will."""
        record = shown_record(self.ctx, self.target.engine)
        return server_of(record.outcome) if record else server_for(self.ctx.spec)

    @property
    def holding(self) -> bool:
        """Whether there is an activator to look after."""
        return to_zero(self.ctx) or _left_over(self.ctx)


def converge(target: Target, desired: Desired, contest: Contest) -> Converged:
    """While rollouts are suspended what serves is left as it is; only no replica compares answers."""
    ctx = target.ctx
    if ctx.suspended:
        return Converged(actions=_mirror(ctx, ""), requeue=desired.requeue)
    made = (target.revision,) if desired.starts and ctx.observed.deployment(target.revision) is None else ()
    complete = desired.progress.ok and target.plain
    found = _Pass(ctx=ctx, target=target, desired=desired, contest=contest,
                  routing=routing(ctx, desired, made, complete=complete))
    routes, front, away = _routes(found), _front(found), _remove_backends(found)
    leads = (*_activator(found), *front) if found.holding else ()
    actions = (
        *leads, *_backends(found), *routes, *_start(found), *(() if found.holding else front), *_replicas(found),
        *_protect(found), *away, *_mirror(ctx, desired.mirrored),
    )
    gateway = ctx.spec.rollout.gateway is not None
    unrouted = gateway and bool(found.routing.leaving or found.routing.unclear or routes)
    waits = unrouted or (not gateway and bool(routes or away))
    return Converged(
        actions=actions, unrouted=unrouted, refused=ctx.observed.gateway.refused if gateway else (),
        requeue=earliest(desired.requeue, ROUTE_CHECK if waits else None,
                         LEAVING_CHECK if desired.holds is Way.LEAVING else None))


# What runs.


def _start(found: _Pass) -> tuple[Action, ...]:
    """The target's Deployment, and what its pods need. It is made with its replicas: without, it would begin with one,
    until the next pass has resized it.

    One that is there stays as it is: a revision was proven with the pods it has, so that what changes for the whole
    installation (an operator's upgrade, its settings) waits for the next revision and its analysis. Unless its replicas
    look for an engine that has been built again since: they would refuse the new one forever.
    """
    ctx, revision, engine = found.ctx, found.target.revision, found.target.engine
    if not found.desired.starts or engine.record is None or engine.placement is None:
        return ()
    seen = ctx.observed.deployment(revision)
    if seen and (seen.deleting or not look_for_another(ctx.observed.pods, seen, engine.record)):
        return () if seen.deleting else claim(ctx, engine.placement)
    # Stated again, since server-side apply takes away what is stated no more.
    captures = _captures(ctx)
    manifest = deployment(ctx.owner, ctx.spec, engine.record, engine.placement, ctx.config,
                          replicas=seen.spec_replicas if seen else found.desired.replicas[revision], again=bool(seen),
                          capture=bool(captures))
    why = "its replicas look for an engine that has been built again since" if seen else (
        found.desired.why_started or found.desired.why)
    return (*claim(ctx, engine.placement), *captures, Apply(manifest=manifest, why=why, force=bool(seen)))


def _captures(ctx: PassContext) -> tuple[Action, ...]:
    """What replicas need to capture requests, if they are to: the key that captures are signed with, and the record by
    which they are removed one day. A revision of before does so only if the object's spec of today asks for it."""
    quality = ctx.obj.spec.get("quality")
    asked = isinstance(quality, dict) and quality.get("capture") is not None
    store = ctx.observed.claims.get(store_claim(ctx.spec))
    if not asked or store is None or ctx.spec.quality is None or ctx.spec.quality.capture is None:
        return ()
    return (
        MakeKey(manifest=capture_secret(ctx.obj.namespace), entry=SIGNING_KEY, why="monitors sign captures with it"),
        Create(manifest=capture_record(ctx.obj.namespace, store.uid, ctx.spec.store.uri, ctx.obj.served_as),
               why="by it captures are removed, when the object is gone as well"),
    )


def _replicas(found: _Pass) -> tuple[Action, ...]:
    grows: tuple[Action, ...] = ()
    shrinks: tuple[Action, ...] = ()
    for revision, replicas in found.desired.replicas.items():
        view = found.ctx.serving.deployment(revision)
        if view is None or view.spec_replicas == replicas or revision in found.contest.held:
            continue
        if replicas == 0 and not _left(found, view):
            continue
        why = found.desired.why_scaled or found.desired.why
        scale = (Scale(deployment=view.name, replicas=replicas, why=why),)
        if replicas > view.spec_replicas:
            grows += scale
        else:
            shrinks += scale
    stopped = found.desired.why_stopped or found.desired.why
    stops = tuple(remove(view, stopped) for view in found.ctx.serving.alive if _may_stop(found, view))
    return grows + shrinks + stops if found.ctx.spec.rollout.max_surge else shrinks + stops + grows


def _may_stop(found: _Pass, view: DeploymentView) -> bool:
    desired, serving = found.desired, found.ctx.serving
    if desired.stops is Stops.NEVER or view.revision in desired.kept or not _left(found, view):
        return False
    if desired.stops is Stops.DRAINED and not _drained(found):
        return False
    covered = any(serving.answers(other) for other in serving.alive if other.revision in desired.kept)
    return desired.stops is Stops.AT_ONCE or covered or not serving.answers(view)


def _left(found: _Pass, view: DeploymentView) -> bool:
    """Whether routes have left it, and the Service has where the activator takes over."""
    return view.revision not in found.routing.leaving and found.desired.holds is not Way.LEAVING


def _drained(found: _Pass) -> bool:
    """Whether the Service selects the target alone, and no endpoint of another revision is left."""
    ctx, revision = found.ctx, found.target.revision
    routed = ctx.observed.service is not None and ctx.observed.service.revision == revision
    return routed and set(ctx.serving.traffic) == {revision}


def remove(view: DeploymentView, why: str) -> Delete:
    """That very one: a leader that wakes up late leaves one of the same name alone that another has made since."""
    return Delete(api_version="apps/v1", kind="Deployment", name=view.name, uid=view.uid, why=why)


def _protect(found: _Pass) -> tuple[Action, ...]:
    """A budget that lets one replica go at a time holds nothing back where there is one, and would cost the apiserver a
    write for each state that its controller finds. So it is made before there can be two, and stays from then on."""
    ctx, manifest = found.ctx, pdb(found.ctx.owner)
    most = ctx.spec.autoscaling.max_replicas if ctx.spec.autoscaling else 0
    there = f"PodDisruptionBudget/{ctx.obj.name}" in ctx.observed.applied
    several = max(most, sum(found.desired.replicas.values()), len(ctx.serving.alive)) > 1
    if not found.desired.protected or not (there or several):
        return ()
    return applied(ctx, manifest, "voluntary disruptions must leave replicas")


# What leads there.


def _selected(found: _Pass) -> str | None:
    """The revision for the Service to select, or all of them while only others are ready: some answer beats none."""
    wanted, serving = found.desired.selected, found.ctx.serving
    if not wanted or serving.answers(serving.deployment(wanted)):
        return wanted
    return EVERY if any(serving.answers(other) for other in serving.alive if other.revision != wanted) else wanted


def _aim(found: _Pass) -> str:
    """The revision that is reached where replicas take the requests: as desired, else as it is."""
    if (wanted := _selected(found)) is not None:
        return wanted
    seen, stable = found.ctx.observed.service, found.ctx.serving.stable
    if seen is not None and not seen.activator:
        return seen.revision
    return stable.revision if stable else EVERY


def _front(found: _Pass) -> tuple[Action, ...]:
    """The model's Service, where it is to change; not before anything asks for it."""
    ctx, seen, holds = found.ctx, found.ctx.observed.service, found.desired.holds
    back = seen is not None and seen.activator
    if found.desired.selected is None and not (back or (seen and holds is not Way.DIRECT)):
        return ()
    manifest = service(ctx.owner, _aim(found), found.server) if holds is Way.DIRECT else (
        activator_service(ctx.owner, found.server))
    same = seen is not None and (seen.activator if holds is not Way.DIRECT else (
        not seen.activator and seen.revision == _aim(found)))
    why = {Way.DIRECT: "replicas take the requests again" if back else found.desired.why,
           Way.HELD: "no replica answers: the activator holds what comes",
           Way.LEAVING: "no request comes: the activator takes over"}[holds]
    return apply_if_changed(manifest, applied_as(ctx.observed, manifest) if same else None, why,
                            force=seen is not None)


def _activator(found: _Pass) -> tuple[Action, ...]:
    """What holds requests, and the way from there to replicas. What is not asked for any more goes once the Service has
    left it; its own Service goes last, when it has delivered what it holds."""
    ctx, seen, aim = found.ctx, found.ctx.observed, _aim(found)
    held = found.desired.holds is Way.HELD
    to = "no replica before one is ready" if held else f"revision {aim}" if aim else "every revision"
    passed_on = backend_service(ctx.owner, NO_REVISION if held else aim, found.server)
    opened = applied(ctx, passed_on, f"requests that are held go to {to}")
    if to_zero(ctx) and ctx.spec.autoscaling:
        manifest = activator(ctx.owner, ctx.spec.autoscaling, ctx.config, found.server)
        return (*opened, *applied(ctx, manifest, "autoscaling.minReplicas is 0"))
    name, why = activator_name(ctx.obj.name), "autoscaling.minReplicas is not 0"
    if (seen.service and seen.service.activator) or any(entry.activator for entry in seen.endpoints):
        return opened
    if f"Deployment/{name}" in seen.applied:
        return (*opened, Delete(api_version="apps/v1", kind="Deployment", name=name, why=why))
    if seen.activators:
        return opened
    return (Delete(api_version="v1", kind="Service", name=backend_name(ctx.obj.name), why=why),)


def _left_over(ctx: PassContext) -> bool:
    """From a spec that asked for it before."""
    name, seen = ctx.obj.name, ctx.observed
    mine = {f"Deployment/{activator_name(name)}", f"Service/{backend_name(name)}"}
    return bool(mine & seen.applied.keys()) or (seen.service is not None and seen.service.activator)


def _routes(found: _Pass) -> tuple[Action, ...]:
    ctx, gateway = found.ctx, found.ctx.spec.rollout.gateway
    if gateway is None:
        return remove_routes(ctx, set(ctx.observed.gateway.weights))
    return write_routes(ctx, gateway, found.routing.weights, found.server)


def _backends(found: _Pass) -> tuple[Action, ...]:
    """A Service of each revision, before it is ready: the slices behind it say when it is."""
    return tuple(
        action
        for revision in found.routing.backends
        for action in applied(found.ctx, revision_service(found.ctx.owner, revision, found.server),
                              f"routes lead to revision {revision} through it")
    )


def _remove_backends(found: _Pass) -> tuple[Action, ...]:
    """Of revisions that no route leads to any more, once the routes are gone where none are asked for. Only children of
    the object are ever seen here."""
    ctx, name = found.ctx, found.ctx.obj.name
    if ctx.spec.rollout.gateway is None and ctx.observed.gateway.weights:
        return ()
    stay = {name, backend_name(name), mirror_name(name),
            *(revision_service_name(name, revision) for revision in found.routing.used)}
    services = [key.removeprefix("Service/") for key in ctx.observed.applied if key.startswith("Service/")]
    return tuple(Delete(api_version="v1", kind="Service", name=one, why="no route leads to it any more")
                 for one in sorted(services) if one not in stay)


def _mirror(ctx: PassContext, candidate: str) -> tuple[Action, ...]:
    """The Service by which monitors reach the candidate with the live requests that they sample: there while they
    analyse a candidate, and no longer."""
    name = mirror_name(ctx.obj.name)
    if candidate:
        return applied(ctx, mirror_service(ctx.owner, candidate), "live requests are sent to the candidate as well")
    if f"Service/{name}" not in ctx.observed.applied:
        return ()
    return (Delete(api_version="v1", kind="Service", name=name, why="no candidate is analysed"),)

"""Gathers what a look of a pass may see: every kind of child, all at once, then the engine records that these lead to.

A look goes at what the operator remembers, which costs nothing, or at the apiserver: that costs some ten requests, and
is right whatever events were lost. In between, a look at memory is confirmed: the apiserver is asked for the versions
of what was found there. :mod:`~enginewright.reconcile.looks` says when which. Besides, nodes are kept, of which only
advice is made, what logs said, which are read beside passes, and the parses of records that are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from enginewright.clients.errors import NotFoundError
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import (
    CLAIM,
    CLAIM_TEMPLATE,
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    ENDPOINT_SLICE,
    JOB,
    LEASE,
    OPTIMISED_MODEL,
    POD,
    SERVICE,
    Resource,
)
from enginewright.core import labels
from enginewright.core.config import OperatorConfig
from enginewright.core.decide.server_step import Unanswered
from enginewright.core.internal import block
from enginewright.core.manifests import read_revision
from enginewright.core.needed import needed_answer, needed_engines
from enginewright.core.observed import Elsewhere, JobView, KeptRevision, ObjectView, Observed, Orphan, Version
from enginewright.core.request import needed_claims
from enginewright.core.routing import GatewayView
from enginewright.core.signals import SignalWindow
from enginewright.core.spec import Spec, parse_spec
from enginewright.core.spec.fleet import is_fleet
from enginewright.core.way_back import needs_kept
from enginewright.observe.fields import (
    Raw,
    annotations_of,
    controlled_by,
    controller_of,
    entries,
    is_deleting,
    labels_of,
    name_of,
    owner_model,
    section,
    uid_of,
)
from enginewright.observe.fleet import SERVICE_NAME, observe_front, observe_members
from enginewright.observe.keys import Key
from enginewright.observe.leases import leases_of, own_leases
from enginewright.observe.memory import Memory
from enginewright.observe.nodes import NodeReader, wanted
from enginewright.observe.parsed import Parsed
from enginewright.observe.pods import pod_view, still_running
from enginewright.observe.quality import QualityReader
from enginewright.observe.reads import Confirming, Fresh, Reads, Remembered, Trail, all_of
from enginewright.observe.records import RecordReader
from enginewright.observe.reports import JobReports, Logs, Report, outcome_of
from enginewright.observe.routes import observe_routes
from enginewright.observe.together import together
from enginewright.observe.views import (
    claim_view,
    deployment_view,
    endpoint_views,
    job_view,
    object_view,
    service_view,
    version_of,
)


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What a look found. ``labelled`` are all that bear the object's label, by kind, also those that it has to adopt;
    ``jobs``, ``deployments``, ``services`` and ``budgets`` those of them that this very object owns."""

    labelled: Mapping[Resource, Sequence[Object]]
    jobs: Sequence[Object]
    deployments: Sequence[Object]
    services: Sequence[Object]
    budgets: Sequence[Object]
    pods: Sequence[Object]
    slices: Sequence[Object]
    templates: Sequence[Object]
    claims: Mapping[str, Object]
    kept: Mapping[str, KeptRevision]
    leases: Sequence[Object]


class World:
    """``wall`` gives the time in UTC, ``monotonic`` the clock of the signal windows, in seconds. Without ``nodes``
    nodes are not known, without ``quality`` no live answers."""

    def __init__(
        self, kube: KubeClient, wall: Callable[[], datetime], monotonic: Callable[[], float], *, config: OperatorConfig,
        logs: Logs, records: RecordReader, nodes: NodeReader | None = None, quality: QualityReader | None = None,
        memory: Memory | None = None,
    ) -> None:
        self._fresh: Reads = Fresh(kube, memory) if memory is not None else kube
        self._memory = memory
        self._kube = kube
        self._config = config
        self._records = records
        self._revisions = Parsed(read_revision, refused=lambda _: None)
        self._nodes = nodes
        self._quality = quality
        self._reports = JobReports(logs)
        self._wall = wall
        self._monotonic = monotonic

    def now(self) -> datetime:
        return self._wall()

    async def find(self, namespace: str, name: str, *, fresh: bool = True) -> ObjectView | None:
        """The ``OptimisedModel``, None when it is gone; from memory unless it is to be ``fresh``. Raises
        :class:`~enginewright.clients.errors.ClientError`, as all reading here does."""
        raw = await _get(self._reads(None if fresh else Trail()), OPTIMISED_MODEL, namespace, name)
        return None if raw is None else object_view(raw, self._config.default_store)

    async def confirm(self, view: ObjectView, trail: Trail, *, itself: bool = True) -> bool:
        """Whether the apiserver has all that is on ``trail`` as it was seen, and after that still the object: a
        deletion with ``--cascade=orphan`` takes the owner off its children. Without ``itself`` the object is left to
        the caller. Of what has changed the next look at memory knows. Raises
        :class:`~enginewright.clients.errors.ClientError`."""
        if self._memory is None or not await Confirming(self._kube, self._memory, self._fresh).all_as_seen(trail):
            return False
        if not itself:
            return True
        now = await self.find(view.namespace, view.name)
        return now is not None and (now.uid, now.resource_version) == (view.uid, view.resource_version)

    def forget(self, key: Key) -> None:
        """The object is gone: its logs are not read any more."""
        self._reports.forget(key)

    async def observe(self, view: ObjectView, signals: SignalWindow | None, trail: Trail | None = None) -> Observed:
        """From the apiserver; with a ``trail`` from memory as far as it knows, and the trail notes what it gave."""
        reads = self._reads(trail)
        parsed = parse_spec(view.spec)
        spec = parsed if isinstance(parsed, Spec) else None
        if is_fleet(view.spec):
            self.forget(Key(view.namespace, view.name))
            return await self._fleet(reads, view, spec)
        found = await self._found(reads, view, spec)
        orphans = await self._orphans(reads, view, found)
        gateway, routes, versions = await _gateway(reads, view, spec, found.services)
        seen = self._seen(view, found, routes)
        seen = replace(seen, signals=signals, gateway=gateway, orphans=orphans, versions={**seen.versions, **versions})
        return await self._with_what_it_needs(reads, view, spec, seen, found.leases, trail)

    async def _found(self, reads: Reads, view: ObjectView, spec: Spec | None) -> _Found:
        mine = f"{labels.MODEL}={view.name}"
        jobs, pods, deployments, services, slices, budgets, templates, claims, kept, leases = await all_of(
            reads,
            reads.list_all(JOB, view.namespace, labels=mine),
            reads.list_all(POD, view.namespace, labels=mine),
            reads.list_all(DEPLOYMENT, view.namespace, labels=mine),
            reads.list_all(SERVICE, view.namespace, labels=mine),
            reads.list_all(ENDPOINT_SLICE, view.namespace, labels=f"{SERVICE_NAME}={view.name}"),
            reads.list_all(DISRUPTION_BUDGET, view.namespace, labels=mine),
            _claim_templates(reads, view, spec, mine),
            _claims(reads, view, spec),
            self._kept(reads, view),
            own_leases(reads, view),
        )
        return _Found(
            labelled={JOB: jobs, DEPLOYMENT: deployments, SERVICE: services, DISRUPTION_BUDGET: budgets},
            jobs=_of(view, jobs), deployments=_of(view, deployments), services=_of(view, services),
            budgets=_of(view, budgets), pods=pods, slices=slices, templates=templates, claims=claims, kept=kept,
            leases=leases)

    def _seen(self, view: ObjectView, found: _Found, routes: Mapping[Resource, list[Object]]) -> Observed:
        """What the children found tell by themselves."""
        serving, activators = (
            tuple(pod_view(pod) for pod in found.pods if _component(pod) == component)
            for component in (labels.COMPONENT_SERVER, labels.COMPONENT_ACTIVATOR)
        )
        holding = [raw for raw in found.deployments if _component(raw) == labels.COMPONENT_ACTIVATOR]
        to_adopt = [raw for raw in found.labelled[DEPLOYMENT] if not controlled_by(raw, view.uid)]
        applied: Mapping[Resource, Iterable[Raw]] = {
            SERVICE: found.services, DISRUPTION_BUDGET: found.budgets, CLAIM_TEMPLATE: found.templates,
            DEPLOYMENT: [raw for raw in holding if not is_deleting(raw)], **routes}
        return Observed(
            now=self._wall(),
            monotonic=self._monotonic(),
            jobs=self._jobs(view, found.jobs, found.pods),
            deployments=tuple(deployment_view(raw) for raw in found.deployments if raw not in holding),
            pods=serving,
            activators=activators,
            service=next((service_view(raw) for raw in found.services if name_of(raw) == view.name), None),
            endpoints=endpoint_views(
                found.slices, {pod.name: pod.revision for pod in serving}, {pod.name for pod in activators}
            ),
            claims={name: claim_view(raw) for name, raw in found.claims.items()},
            kept=found.kept,
            applied={key: value for kind, raws in applied.items() for key, value in _applied(kind, raws).items()},
            versions={**_versions(SERVICE, found.labelled[SERVICE]), **_versions(DEPLOYMENT, (*holding, *to_adopt))},
            specs=_specs({SERVICE: found.services, DISRUPTION_BUDGET: found.budgets, **routes}),
        )

    async def _with_what_it_needs(self, reads: Reads, view: ObjectView, spec: Spec | None, seen: Observed,
                                  own: Iterable[Object], trail: Trail | None) -> Observed:
        """With what only some objects need, by what was seen of them: another's answer, engine records and Leases, live
        answers, nodes."""
        if (question := needed_answer(view, seen, self._config)) is not None:
            # Not on the trail: an answer that was given once stays one.
            unfollowed = self._reads(Trail()) if trail is not None else reads
            seen = replace(seen, elsewhere=await self._elsewhere(unfollowed, view, question))
        if spec is not None:
            needed = needed_engines(view, seen, self._config)
            leases = await leases_of(reads, view, spec.store.uri, own, needed.building, seen.now)
            records = await self._records.records(view.namespace, spec.store.uri, needed.records, trail)
            seen = replace(seen, leases=leases, records=records)
        if self._quality is not None and spec is not None and spec.quality is not None:
            seen = replace(seen, quality=await self._quality.reports(view, seen.pods))
        if self._nodes is None or not wanted(spec, view, seen):
            return seen
        return replace(seen, nodes=await self._nodes.views())

    async def _orphans(self, reads: Reads, view: ObjectView, found: _Found) -> tuple[Orphan, ...]:
        """ConfigMaps are looked through only where something else was left, as who leaves children leaves them all, or
        where memory has one without an owner."""
        kinds: Mapping[Resource, Iterable[Raw]] = {**found.labelled, LEASE: found.leases}
        orphans = [one for resource, raws in kinds.items() for one in _left_of(view, resource, raws)]
        if orphans or (self._memory is not None and self._memory.left(view.namespace, view.name)):
            maps = await reads.list_all(CONFIG_MAP, view.namespace, labels=f"{labels.MODEL}={view.name}")
            orphans += _left_of(view, CONFIG_MAP, maps)
        return tuple(orphans)

    def _reads(self, trail: Trail | None) -> Reads:
        if trail is None or self._memory is None:
            return self._fresh
        return Remembered(self._memory, self._fresh, trail)

    async def _fleet(self, reads: Reads, view: ObjectView, spec: Spec | None) -> Observed:
        """Its classes have objects of their own, which passes of their own look after."""
        fleet, front, (gateway, routes, versions) = await together(
            observe_members(reads, view, spec),
            observe_front(reads, view),
            observe_routes(reads, view, spec.rollout.gateway if spec is not None else None),
        )
        applied = [front.applied, *(_applied(resource, raws) for resource, raws in routes.items())]
        return Observed(now=self._wall(), monotonic=self._monotonic(), fleet=fleet, service=front.service,
                        endpoints=front.endpoints, gateway=gateway,
                        applied={key: value for found in applied for key, value in found.items()},
                        versions={**front.versions, **versions},
                        specs={**front.specs, **_specs(routes)})

    async def _elsewhere(self, reads: Reads, view: ObjectView, question: Unanswered) -> Elsewhere:
        """Of statuses what the operator remembers: an answer that was true once is one, and who knows of none asks."""
        found = self._memory.answered(view.namespace, question.key, question.machine) if self._memory else None
        other = Elsewhere(name=question.job, server=block((found or {}).get("status"), "server"))
        raw = await _get(reads, JOB, view.namespace, question.job)
        if raw is None or controlled_by(raw, view.uid):
            return other
        model = owner_model(raw) if labels_of(raw).get(labels.STEP) == labels.COMPONENT_ASK else ""
        mine = labels.as_selector({labels.MODEL: model, labels.STEP: labels.COMPONENT_ASK})
        pods = await reads.list_all(POD, view.namespace, labels=mine) if model else []
        pods = [pod for pod in pods if controller_of(pod) == uid_of(raw)]
        return replace(other, job=job_view(raw, map(pod_view, pods), outcome_of(pods), None), model=model)

    def _jobs(self, view: ObjectView, jobs: Iterable[Raw], pods: Iterable[Raw]) -> tuple[JobView, ...]:
        """Each with the pods that its controller has made: anybody may label a pod as one of the Job's."""
        pods_of: dict[str, list[Raw]] = {name_of(job): [] for job in jobs}
        jobs_by_uid = {uid_of(job): name_of(job) for job in jobs}
        for pod in pods:
            if (job_name := jobs_by_uid.get(controller_of(pod))) is not None:
                pods_of[job_name].append(pod)
        reports = self._reports.of(Key(view.namespace, view.name), pods_of)
        return tuple(_job(job, pods_of[name_of(job)], reports[name_of(job)]) for job in jobs)

    async def _kept(self, reads: Reads, view: ObjectView) -> Mapping[str, KeptRevision]:
        """Revisions that can be gone back to: looked up only where a user may ask for it."""
        if not needs_kept(view):
            return {}
        selector = labels.as_selector({labels.MODEL: view.name, labels.COMPONENT: labels.COMPONENT_REVISION})
        found = await reads.list_all(CONFIG_MAP, view.namespace, labels=selector)
        mine = (self._revisions.of(raw) for raw in found if controlled_by(raw, view.uid))
        return {kept.revision: kept for kept in mine if kept is not None}


def _left_of(view: ObjectView, resource: Resource, found: Iterable[Raw]) -> Iterator[Orphan]:
    """What bears the marks and the name of a child and has no owner. What users have copied has a name of theirs."""
    for raw in found:
        ours = labels_of(raw).get(labels.MANAGED_BY) == labels.PRODUCT and not is_deleting(raw)
        if ours and _named(view, resource, raw) and not entries(raw, "metadata", "ownerReferences"):
            yield Orphan(resource.api_version, resource.kind, name_of(raw), version_of(raw))


def _named(view: ObjectView, resource: Resource, raw: Raw) -> bool:
    """A Lease has its engine's name, and says which object builds."""
    name = name_of(raw)
    if resource == LEASE:
        return name.startswith("engine-") and labels_of(raw).get(labels.MODEL) == view.name
    return name == view.name or name.startswith((f"{view.name}-", "server-image-ask-"))


async def _children(reads: Reads, resource: Resource, view: ObjectView, mine: str) -> list[Object]:
    """Children of this very object: one of the same name that was deleted may have left some behind."""
    return _of(view, await reads.list_all(resource, view.namespace, labels=mine))


async def _claim_templates(reads: Reads, view: ObjectView, spec: Spec | None, mine: str) -> list[Object]:
    """Only asked for where the spec wants one: older clusters do not have them."""
    mig = spec.placement.mig if spec is not None else None
    return await _children(reads, CLAIM_TEMPLATE, view, mine) if mig is not None and mig.dra is not None else []


async def _gateway(
    reads: Reads, view: ObjectView, spec: Spec | None, services: Iterable[Raw]
) -> tuple[GatewayView, Mapping[Resource, list[Object]], Mapping[str, Version]]:
    """Only asked for where the spec wants routes, or did: many clusters do not have them."""
    gateway = spec.rollout.gateway if spec is not None else None
    if gateway is None and not any(labels.REVISION in labels_of(raw) for raw in services):
        return GatewayView(), {}, {}
    return await observe_routes(reads, view, gateway)


async def _claims(reads: Reads, view: ObjectView, spec: Spec | None) -> Mapping[str, Object]:
    names = needed_claims(spec) if spec is not None else ()
    found = await all_of(reads, *(_get(reads, CLAIM, view.namespace, name) for name in sorted(names)))
    return {name_of(raw): raw for raw in found if raw is not None}


async def _get(reads: Reads, resource: Resource, namespace: str, name: str) -> Object | None:
    try:
        return await reads.get(resource, namespace, name)
    except NotFoundError:
        return None


def _of(view: ObjectView, found: Iterable[Object]) -> list[Object]:
    return sorted((raw for raw in found if controlled_by(raw, view.uid)), key=name_of)


def _job(raw: Raw, pods: Iterable[Raw], report: Report) -> JobView:
    """A Job that has ended is shown as it was before while the log that may hold its outcome is read: an outcome that
    comes later would find the Job counted as failed."""
    view = job_view(raw, map(pod_view, pods), report.outcome, report.progress)
    if not report.awaited:
        return view
    return replace(view, succeeded=False, failed=False, failure_reason="", failure_message="",
                   pods=tuple(still_running(pod) if pod.name == report.awaited else pod for pod in view.pods))


def _component(raw: Raw) -> str:
    return labels_of(raw).get(labels.COMPONENT, "")


def _specs(found: Mapping[Resource, Iterable[Raw]]) -> Mapping[str, Raw]:
    return {f"{resource.kind}/{name_of(raw)}": section(raw, "spec") for resource, raws in found.items() for raw in raws}


def _applied(resource: Resource, found: Iterable[Raw]) -> Mapping[str, str]:
    return {f"{resource.kind}/{name_of(raw)}": annotations_of(raw).get(labels.MANIFEST_HASH, "") for raw in found}


def _versions(resource: Resource, found: Iterable[Raw]) -> Mapping[str, Version]:
    return {f"{resource.kind}/{name_of(raw)}": version_of(raw) for raw in found}

"""The world as one reconcile pass saw it: plain data, made by ``observe`` and read by ``decide``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from enginewright.core.placement import Placement
from enginewright.core.routing import GatewayView
from enginewright.core.signals import SignalWindow
from enginewright_builder.contract import Outcome, Progress, QualityReport


@dataclass(frozen=True, kw_only=True)
class ObjectView:
    """The ``OptimisedModel`` itself, as the apiserver gave it. ``spec`` is raw; ``status`` too, but
    for what the operator alone remembers, which stands in its places (:mod:`enginewright.core.internal`);
    ``old_status`` says that an older operator wrote it. ``fleet`` is the name of the fleet that owns it, empty for one
    without a fleet."""

    name: str
    namespace: str
    uid: str
    generation: int
    resource_version: str
    deleting: bool
    annotations: Mapping[str, str]
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    old_status: bool = False
    fleet: str = ""

    @property
    def served_as(self) -> str:
        """The model's name, as clients say it to Triton."""
        return self.fleet or self.name


@dataclass(frozen=True, kw_only=True)
class PodView:
    """A child pod. ``waiting_reason`` is the first container's that waits (``ImagePullBackOff``…), ``exit_code`` and
    ``terminated_reason`` (``OOMKilled``…) the last termination of its main or init container, ``failed_container``
    its name. ``restarts`` are those of all containers, ``side_restarts`` those of them that are not of the main one.
    ``reason`` is the pod's own (``Evicted``, ``NodeLost``); ``unschedulable`` the scheduler's message or empty; only
    beside it ``requests`` are what its containers ask of a node, as quantities, and ``node_selector`` of which labels.
    ``manifest_digest`` is that of the engine it is to serve, empty where it serves none. Of a build whose engine the
    server image proves, ``phase`` is ``Running`` as soon as it builds, ``server_end`` is how the server ended by itself
    (``OOMKilled``, ``Error``…), ``server_log`` the end of its log then, and ``server_restarts`` how often it was
    started again; empty and 0 while it runs well. ``server_image`` is the image of its server, or the server's image
    that it asks, as the pod names it, and ``server_digest`` what the node has under that name (``sha256:…``); empty
    where it is not known."""

    name: str
    phase: str
    server_end: str = ""
    server_log: str = ""
    server_restarts: int = 0
    revision: str = ""
    ready: bool = False
    deleting: bool = False
    ip: str = ""
    node: str = ""
    created: datetime | None = None
    reason: str = ""
    message: str = ""
    waiting_reason: str = ""
    waiting_message: str = ""
    failed_container: str = ""
    terminated_reason: str = ""
    terminated_message: str = ""
    exit_code: int | None = None
    restarts: int = 0
    side_restarts: int = 0
    unschedulable: str = ""
    requests: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    disrupted: bool = False
    manifest_digest: str = ""
    server_image: str = ""
    server_digest: str = ""


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A Job of the object; ``step`` is resolve, ask or build. ``failure_reason`` is the Job's Failed condition
    (``BackoffLimitExceeded``, ``DeadlineExceeded``, ``PodFailurePolicy``); ``outcome`` what the newest pod that ended
    said, if it said anything; ``progress`` its newest progress line; ``deadline`` the seconds that a pod of it may run.
    ``fingerprint`` has all 64 digits (the annotation, not the label) and is empty unless it is a build Job; so is
    ``store_uri``, of the store that it builds into. ``manifest_hash`` is of what it was made from, ``retry`` the retry
    annotation that its object had then. Of a batch Job
    ``completed`` are the shards that are done, ``failed_shards`` how many are given up, ``started`` and ``ended`` times
    as Kubernetes writes them, empty where it has not."""

    name: str
    uid: str
    created: datetime
    step: str = ""
    suspended: bool = False
    active: int = 0
    succeeded: bool = False
    failed: bool = False
    failure_reason: str = ""
    failure_message: str = ""
    deadline: int = 0
    fingerprint: str = ""
    store_uri: str = ""
    manifest_hash: str = ""
    retry: str = ""
    deleting: bool = False
    pods: tuple[PodView, ...] = ()
    outcome: Outcome | None = None
    progress: Progress | None = None
    completed: tuple[int, ...] = ()
    failed_shards: int = 0
    started: str = ""
    ended: str = ""

    @property
    def live(self) -> bool:
        """Whether its pods run or will."""
        return not (self.succeeded or self.failed or self.deleting)


@dataclass(frozen=True, kw_only=True)
class DeploymentView:
    """One revision's Deployment. ``replicas`` counts are of its status; ``spec_replicas`` what was asked, and
    ``replicas_manager`` the field manager that wrote that last, empty when it was the operator. ``fingerprint`` has all
    64 digits. ``manifest_digest`` is that of the engine that its pods serve. ``refused`` is what the apiserver said
    when it let no pod be made, empty when it did. ``pods_manager`` is a field manager other than the operator that has
    written into the pod template, empty when there is none. ``monitored`` says that a quality monitor runs in its pods,
    ``caches`` that its servers answer repeated requests from a cache.
    ``version`` is the resourceVersion."""

    name: str
    uid: str
    revision: str
    fingerprint: str
    generation: int
    observed_generation: int
    created: datetime
    spec_replicas: int
    replicas_manager: str = ""
    replicas: int = 0
    ready: int = 0
    available: int = 0
    deleting: bool = False
    progress_deadline_exceeded: bool = False
    manifest_digest: str = ""
    refused: str = ""
    pods_manager: str = ""
    monitored: bool = False
    caches: bool = False
    version: str = ""


@dataclass(frozen=True, kw_only=True)
class ServiceView:
    """``revision`` is the revision in the selector, empty when it selects every revision of the model, or none but the
    ``activator``."""

    name: str
    revision: str
    activator: bool = False


@dataclass(frozen=True, kw_only=True)
class EndpointView:
    """One address behind the Service. ``revision`` empty when its pod is gone, or is the ``activator``'s."""

    pod: str
    revision: str
    ready: bool
    terminating: bool = False
    activator: bool = False


@dataclass(frozen=True, kw_only=True)
class EngineRecord:
    """The in-cluster index entry of one engine in the store. ``store_uri`` tells folders of one claim apart,
    ``unreferenced`` since when no model refers to it, ``version`` is the resourceVersion."""

    fingerprint: str
    store_claim: str
    outcome: Outcome
    store_uri: str = ""
    unreferenced: datetime | None = None
    version: str = ""


@dataclass(frozen=True, kw_only=True)
class KeptRevision:
    """All that a promoted revision's Deployment was made of: the raw ``spec``, the server ``image`` that it led to, the
    placement, and the engine's outcome."""

    revision: str
    spec: Mapping[str, Any]
    image: str
    placement: Placement
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class RecordMark:
    """What the collector of unused engines sees of a record. ``version`` is its resourceVersion, ``unreferenced`` since
    when no model refers to the engine, ``claim_uid`` empty where the store is a bucket, and ``access`` as whom that is
    used, sorted pairs."""

    name: str
    version: str
    fingerprint: str
    store_uri: str
    claim_uid: str
    access: tuple[tuple[str, str], ...] = ()
    unreferenced: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class CaptureMark:
    """What the collector sees of the record of a model's captures. ``swept`` is when expired ones were removed last, or
    the record was made; ``unreferenced`` since when no replica captures there."""

    name: str
    version: str
    model: str
    store_uri: str
    claim_uid: str
    swept: datetime
    unreferenced: datetime | None = None

    @property
    def place(self) -> tuple[str, str]:
        return self.model, self.store_uri


@dataclass(frozen=True, kw_only=True)
class LeaseView:
    """The builder of an engine: ``holder`` is ``namespace/name/uid``, ``seconds`` how long a renewal lasts, ``version``
    the resourceVersion. ``building`` says that a build Job of this engine lives; it is looked up only for a lease that
    has run out."""

    name: str
    holder: str
    renewed: datetime
    seconds: float
    version: str
    building: bool = False

    @property
    def holder_name(self) -> str:
        return self.holder.split("/")[1] if self.holder.count("/") == 2 else self.holder


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """What other objects of the namespace know of a server image that has not answered this object yet. ``name`` is
    the Job's that all share who would run the same one; ``job`` is that Job, None where there is none or it is the
    object's own, and ``model`` the object that it belongs to, empty where it has no owner. ``server`` is
    ``status.server`` of an object that has the answer, as it is written; empty where none has."""

    name: str
    job: JobView | None = None
    model: str = ""
    server: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ClaimView:
    """A PersistentVolumeClaim that the spec names."""

    name: str
    uid: str
    phase: str
























@dataclass(frozen=True, kw_only=True)
class DeviceUse:
    """A pod that is bound to a node and has not ended. ``devices`` counts what it holds by NVIDIA's resource names;
    ``model`` is the OptimisedModel that it is a replica of, or empty."""

    pod: str
    namespace: str
    model: str = ""
    devices: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """A node, as far as devices are concerned. ``allocatable`` has NVIDIA's resources alone, unread, ``taints`` are as
    Kubernetes writes them, ``closed`` is what keeps every new pod from it (``cordoned``, ``not ready``) or empty."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] = ()
    allocatable: Mapping[str, str] = field(default_factory=dict)
    closed: str = ""
    pods: tuple[DeviceUse, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MemberView:
    """The ``OptimisedModel`` of one class of a fleet. ``hash`` is that of the manifest that was last applied, ``spec``
    and ``status`` are raw, ``version`` is the resourceVersion."""

    name: str
    uid: str
    class_name: str
    generation: int
    deleting: bool = False
    hash: str = ""
    version: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FleetView:
    """The objects of a fleet's classes, also of classes that it does not name any more. ``taken`` are names of objects
    yet to be made that others have already."""

    members: tuple[MemberView, ...] = ()
    taken: frozenset[str] = frozenset()


class Version(NamedTuple):
    """An object as it was seen: another UID is another object, another resourceVersion a later state of this one."""

    uid: str
    version: str


class Orphan(NamedTuple):
    """A child by its labels and its name that has no owner at all."""

    api_version: str
    kind: str
    name: str
    version: Version


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Everything one pass may look at besides the object. ``now`` is wall-clock UTC (for status and age),
    ``monotonic`` the clock of the signal window. ``pods`` serve, ``activators`` hold requests. ``records`` and
    ``leases`` are by fingerprint, those of the store that the spec names. ``applied`` maps ``Kind/name`` of the
    children that have no view of their own to look into (Service, PodDisruptionBudget, ResourceClaimTemplate, routes,
    the activator's Deployment) to their manifest-hash annotation, so that an unchanged child costs no write; ``specs``
    has the specs of those whose fields the apiserver keeps as they are written (not a Deployment's quantities), so that
    an edit by another manager is seen. ``versions`` has, by ``Kind/name``, what routes traffic: Services, routes, the
    activator's Deployment; and Deployments that the object has to adopt. ``kept`` is by revision, and read only where a
    pass may ask for it. ``gateway`` is read where the spec asks for one, or revisions have Services that were made for
    one. ``nodes`` are those with GPUs, read where a replica or a build waits for one or a revision is about to start;
    None where they are not known. ``quality`` is what the monitors of ready replicas report, by pod, where the spec
    asks for them. Of a fleet there are only ``fleet``, its Service and who is behind that. ``elsewhere`` is read where
    the server image has not answered; what is ``server`` there is as the operator remembers it."""

    now: datetime
    monotonic: float = 0.0
    jobs: tuple[JobView, ...] = ()
    deployments: tuple[DeploymentView, ...] = ()
    pods: tuple[PodView, ...] = ()
    activators: tuple[PodView, ...] = ()
    service: ServiceView | None = None
    endpoints: tuple[EndpointView, ...] = ()
    records: Mapping[str, EngineRecord] = field(default_factory=dict)
    leases: Mapping[str, LeaseView] = field(default_factory=dict)
    claims: Mapping[str, ClaimView] = field(default_factory=dict)
    kept: Mapping[str, KeptRevision] = field(default_factory=dict)
    signals: SignalWindow | None = None
    applied: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, Version] = field(default_factory=dict)
    specs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    gateway: GatewayView = field(default_factory=GatewayView)
    nodes: tuple[NodeView, ...] | None = None
    quality: Mapping[str, QualityReport] = field(default_factory=dict)
    fleet: FleetView = field(default_factory=FleetView)
    elsewhere: Elsewhere | None = None
    orphans: tuple[Orphan, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether there is an activator to hold requests."""
        return any(pod.ready and not pod.deleting for pod in self.activators)

    def job(self, name: str) -> JobView | None:
        return next((job for job in self.jobs if job.name == name), None)

    def deployment(self, revision: str) -> DeploymentView | None:
        return next((d for d in self.deployments if d.revision == revision), None)

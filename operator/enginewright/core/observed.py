"""The world as one reconcile pass saw it: plain data, made by ``observe`` and read by ``decide``."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from enginewright.core.placement import Placement
from enginewright.core.routing import GatewayView
from enginewright.core.tokens import Tokens
from enginewright_builder.contract import Outcome, Progress, QualityReport

# Seconds; sums of counters are off by less.
ROUNDING = 1e-6
# Seconds; status shows what came within it.
MINUTE: Final = 60.0


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
    ``reason`` is the pod's own (``Evicted``, ``NodeLost``); ``unschedulable`` the scheduler's message or empty.
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


# Most figures of most samples are empty, and an operator keeps half a million samples of a thousand models.
_NOTHING: Final = MappingProxyType[str, Any]({})


def nothing() -> Mapping[str, Any]:
    """The one empty mapping that all samples share."""
    return _NOTHING


@dataclass(frozen=True, slots=True)
class Work:
    """``served`` requests in ``seconds`` of one replica, or of several added up."""

    seconds: float = 0.0
    served: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.seconds + other.seconds, self.served + other.served)


@dataclass(frozen=True, slots=True)
class Spent:
    """What ``answered`` requests took, in ``seconds`` of one replica, or of several added up: all of them together
    ``waited`` seconds in the queue and were ``computed`` for seconds, in so many ``executions`` of a batch each."""

    seconds: float = 0.0
    answered: float = 0.0
    waited: float = 0.0
    computed: float = 0.0
    executions: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.seconds + other.seconds, self.answered + other.answered, self.waited + other.waited,
                     self.computed + other.computed, self.executions + other.executions)

    def since(self, before: Spent) -> Spent | None:
        """Of two readings of counters; None where one fell: they restarted in between."""
        grown = Spent(self.seconds - before.seconds, self.answered - before.answered, self.waited - before.waited,
                      self.computed - before.computed, self.executions - before.executions)
        least = min(grown.seconds, grown.answered, grown.waited, grown.computed, grown.executions)
        return grown if least >= -ROUNDING else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One scrape round over all ready replicas at ``time`` (seconds on a monotonic clock). ``pending`` maps a pod
    that answered to its queued requests; ``missing`` counts ready replicas that did not answer in time. ``arrived`` is
    how many requests came since the sample before, over all replicas, None when that is unknown (a first scrape, a
    counter that was reset, a replica that did not answer); ``inflight`` those in execution, None when unknown.
    ``starting`` has the age in seconds of each replica that is not ready yet. ``served`` maps a pod to what it answered
    since the sample before, where that is known, and ``spent`` to what that took; ``full`` those that were never
    idle meanwhile to what they did. ``calm`` is what all those spent that had hardly a queue. ``queued`` counts
    arrivals since the sample before that found at least 1, 2, 4, … requests queued. ``held`` are requests that the
    activator holds, None where there is none or it does not answer. ``p99`` is the servers' own of the last minute, in
    milliseconds, of the slowest replica; None where they export none. ``rejected`` counts requests that waited for too
    long since the sample before, which are among those that ``arrived`` and not among those ``served``. ``hits`` are
    requests that response caches answered since then, among neither, and ``misses`` those that they did not.
    ``inferences`` are batch elements that replicas computed since the sample before, of a language model tokens of
    answers; None where no replica says.

    Of a language model that was measured, ``pending``, ``arrived``, ``served`` and ``full`` count requests of the size
    that the build measured: work, in other words (``scaling/work.py``). ``running`` maps a pod to the requests that it
    is answering, and ``caches`` to the share of its KV cache in use, 0 to 1; empty where the server tells neither."""

    time: float
    ready: int
    pending: Mapping[str, float] = field(default_factory=nothing)
    missing: int = 0
    arrived: float | None = None
    inflight: float | None = None
    starting: tuple[float, ...] = ()
    served: Mapping[str, float] = field(default_factory=nothing)
    full: Mapping[str, Work] = field(default_factory=nothing)
    spent: Mapping[str, Spent] = field(default_factory=nothing)
    calm: Spent = Spent()
    queued: tuple[float, ...] = ()
    held: float | None = None
    p99: float | None = None
    rejected: float = 0.0
    hits: float = 0.0
    misses: float = 0.0
    running: Mapping[str, float] = field(default_factory=nothing)
    caches: Mapping[str, float] = field(default_factory=nothing)
    inferences: float | None = None


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What replicas did between two scrapes: ``requests`` answered, ``failed`` by a fault of the engine, ``busy``
    microseconds that the answered ones took from arrival to answer, ``queued`` microseconds of them in the queue.
    ``replicas`` is how many replicas' scrapes were added up. ``p99`` is the server's own, in milliseconds, the worst of
    the replicas; None where it exports none. ``tokens`` are those of a language model."""

    requests: float = 0.0
    failed: float = 0.0
    busy: float = 0.0
    queued: float = 0.0
    replicas: int = 0
    p99: float | None = None
    tokens: Tokens | None = None

    def __add__(self, other: Traffic) -> Traffic:
        tails = [one for one in (self.p99, other.p99) if one is not None]
        counted = [one for one in (self.tokens, other.tokens) if one is not None]
        return Traffic(
            requests=self.requests + other.requests, failed=self.failed + other.failed, busy=self.busy + other.busy,
            queued=self.queued + other.queued, replicas=self.replicas + other.replicas,
            p99=max(tails, default=None), tokens=sum(counted[1:], counted[0]) if counted else None)


@dataclass(frozen=True, kw_only=True)
class Round:
    """One scrape round during an analysis: traffic by revision since the round before. ``time`` is on the monotonic
    clock."""

    time: float
    traffic: Mapping[str, Traffic]


@dataclass(frozen=True, kw_only=True)
class ProbeResults:
    """Inputs that were sent to one replica of each of two revisions. ``pairs`` counts those that the stable revision
    answered, ``flawed`` those of them that the candidate did not answer, or with other shapes or numbers that are not
    finite, ``flaw`` the last such; ``similarities`` are cosines between both answers. ``problem`` says why there are
    no probes."""

    pairs: int = 0
    flawed: int = 0
    flaw: str = ""
    similarities: tuple[float, ...] = ()
    problem: str = ""

    @property
    def median(self) -> float | None:
        return statistics.median(self.similarities) if self.similarities else None


@dataclass(frozen=True, kw_only=True)
class SignalWindow:
    """Samples oldest first, and the recommendations made from them (time, replicas), for stabilisation. ``asked`` says
    since when how many replicas were asked for, oldest first. ``rounds`` and
    ``probes`` are those of the analysis that ``analysis`` names. Kept by the shell; lost at a restart, which only makes
    scale-down wait for a full window and an analysis start again. In ``notes`` what was added up of ``rounds`` is left
    for the next look; it saves time and decides nothing."""

    started: float
    samples: tuple[Sample, ...] = ()
    recommendations: tuple[tuple[float, int], ...] = ()
    asked: tuple[tuple[float, int], ...] = ()
    analysis: str = ""
    rounds: tuple[Round, ...] = ()
    probes: ProbeResults = ProbeResults()
    notes: dict[type, object] = field(default_factory=dict, compare=False, repr=False)


def of_last_minute(samples: Iterable[Sample], now: float) -> list[Sample]:
    """Those of the minute before ``now``, on their clock, in their order."""
    return [one for one in samples if now - one.time <= MINUTE]


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

"""``status`` as a whole."""

from __future__ import annotations

from pydantic import Field

from enginewright.core.internal import joined
from enginewright.core.status.autoscaling import AutoscalingStatus, ContestStatus
from enginewright.core.status.base import StatusModel, read
from enginewright.core.status.build import BuildStatus
from enginewright.core.status.conditions import ConditionStatus
from enginewright.core.status.engine import CandidateStatus, EngineStatus
from enginewright.core.status.fleet import ClassStatus, HandoverStatus
from enginewright.core.status.placement import BatchingStatus, CostStatus, PlacementStatus
from enginewright.core.status.quality import BatchStatus, QualityStatus
from enginewright.core.status.rollout import PinStatus, RevisionStatus, RolloutStatus, ThroughputStatus
from enginewright.core.status.server import ServerStatus
from enginewright.core.status.source import SourceStatus


class SummaryStatus(StatusModel):
    """Short texts for the columns of kubectl get."""

    engine: str | None = None
    """Backend of the engine."""
    precision: str | None = None
    """Precision of the engine."""
    ships: str | None = None
    """Candidate that serves, or those that do and up to which batch each."""
    replicas: str | None = None
    """Ready and wanted replicas."""
    queue: str | None = None
    """Queued requests."""
    p99: str | None = None
    """99th percentile latency as measured by the build; of a language model until the first token."""
    live_p99: str | None = Field(default=None, alias="liveP99")
    """99th percentile latency of the last minute, as the servers count it."""
    accelerator: str | None = None
    """Hardware."""
    speedup: str | None = None
    """Throughput relative to the source model."""
    cost: str | None = None
    """Price of a million inferences, or tokens of a language model's answers."""
    reason: str | None = None
    """Reason of Ready."""


class Status(StatusModel):
    """What the operator knows of the object."""

    observed_generation: int | None = None
    """Generation of the spec that status speaks of; -1 before the operator has seen the object."""
    conditions: tuple[ConditionStatus, ...] = Field(
        default=(), json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]})
    """Current state. Page on Available, open a ticket on Ready."""
    replicas: int | None = None
    """Serving pods that exist."""
    ready_replicas: int | None = None
    """Serving pods that are ready."""
    selector: str | None = None
    """Label selector of the serving pods, for /scale."""
    fingerprint: str | None = None
    """Fingerprint of the engine that the spec asks for."""
    summary: SummaryStatus | None = None
    """Short texts for kubectl get."""
    source: SourceStatus | None = None
    """What the resolve Job found the source to be."""
    server: ServerStatus | None = None
    """Contents of the server image."""
    build: BuildStatus | None = None
    """The build under way or failed."""
    engine: EngineStatus | None = None
    """The engine of the current spec."""
    candidates: tuple[CandidateStatus, ...] = ()
    """Candidates that were tried, without the least where there are many; the report in the store has all."""
    cost: CostStatus | None = None
    """What inferences cost; absent without a price or an engine that meets the objective."""
    batching: BatchingStatus | None = None
    """The chosen batching."""
    placement: PlacementStatus | None = None
    """The chosen hardware."""
    classes: tuple[ClassStatus, ...] = ()
    """Of a fleet: the state of each class of devices."""
    handover: HandoverStatus | None = None
    """Of a fleet: what is made up for while a class leaves."""
    rollout: RolloutStatus | None = None
    """The revisions, and the state of the rollout."""
    revisions: tuple[RevisionStatus, ...] = ()
    """Revisions that served or were tried, newest first, as many as spec.revisionHistoryLimit says."""
    throughput: ThroughputStatus | None = None
    """What one replica of the engine does, beside one of what served before it."""
    pin: PinStatus | None = None
    """The revision that an annotation asks for."""
    contest: ContestStatus | None = None
    """The other controller that writes replicas, for an hour after they were put back."""
    autoscaling: AutoscalingStatus | None = None
    """Queue depth and decisions."""
    batch: BatchStatus | None = None
    """The run of the data set that spec.batch names."""
    quality: QualityStatus | None = None
    """How far live answers agree with the source model, where spec.quality asks for it."""


def read_status(raw: object) -> Status:
    """All of an object's status, as the apiserver gave it; an empty one where it makes no sense."""
    return read(Status, joined(raw)) or Status()

"""The whole of ``status``, as models: the CRD's status schema comes from here; tests hold written status against it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from enginewright.core.spec.base import SpecModel


class ConditionStatus(SpecModel):
    """One condition. Healthy is always True."""

    type: str = Field(max_length=316)
    """Ready, Available, SourceResolved, EngineBuilt, AccuracyVerified, ObjectiveMet, RolloutComplete or
    ScalingActive."""
    status: Literal["True", "False", "Unknown"]
    """True when healthy."""
    reason: str = Field(max_length=1024)
    """Why, as a CamelCase constant; part of the API."""
    message: str = Field(max_length=32_768)
    """Why, in words, and what to do."""
    observed_generation: int | None = Field(default=None, ge=0)
    """Generation of the spec that this is about."""
    last_transition_time: str = Field(json_schema_extra={"format": "date-time"})
    """When status last changed."""


class SourceStatus(SpecModel):
    """What the source was found to be."""

    uri: str = ""
    """Where it was found."""
    key: str = ""
    """Hash over all that was resolved; another key is resolved anew."""
    digest: str = ""
    """SHA-256 of the content."""
    format: str = ""
    """Format found."""
    size_bytes: int = Field(default=0, ge=0)
    """Size in bytes."""
    evaluation_digest: str = ""
    """SHA-256 of the evaluation data."""
    calibration_digest: str = ""
    """SHA-256 of the calibration data."""


class CandidateStatus(SpecModel):
    """One measured candidate."""

    backend: str
    """Engine."""
    precision: str
    """Precision."""
    batch: int = Field(default=0, ge=0)
    """Batch size of the measurement."""
    p50_ms: float | None = None
    """Median latency of one batch, in milliseconds."""
    p95_ms: float | None = None
    """95th percentile, in milliseconds."""
    p99_ms: float | None = None
    """99th percentile, in milliseconds."""
    throughput: float | None = None
    """Inferences a second."""
    accuracy: float | None = None
    """Metric against the unquantised reference."""
    accuracy_low: float | None = None
    """Its lower 95 % confidence bound."""
    size_bytes: int | None = None
    """Size of the engine in bytes."""
    verdict: str = ""
    """Shipped, Passed, Slower, AccuracyRefused, Failed, Skipped or Offered."""
    reason: str = ""
    """Why."""


class EngineStatus(SpecModel):
    """The engine that is served, as measured in the configuration that ships."""

    fingerprint: str = ""
    """Its key in the store."""
    backend: str = ""
    """Engine."""
    precision: str = ""
    """Precision."""
    triton_backend: str = ""
    """Triton backend that runs it."""
    gpu: str = ""
    """Device that it was built and measured on."""
    runtime_version: str = ""
    """Version of the runtime."""
    built: str = ""
    """When it was built."""
    build_seconds: float = 0
    """How long building and measuring took."""
    cache_hit: bool = False
    """True when it was found in the store."""
    size_bytes: int = 0
    """Size in bytes."""
    memory_bytes: int = 0
    """Memory measured with the model loaded, in bytes."""
    load_seconds: float = 0
    """How long the server took to load it."""
    speedup: float = 0
    """Throughput at equal batch, relative to the source model as it is."""
    p50_ms: float = 0
    """Median request latency in milliseconds."""
    p95_ms: float = 0
    """95th percentile, in milliseconds."""
    p99_ms: float = 0
    """99th percentile, in milliseconds."""
    throughput: float = 0
    """Inferences a second of one replica."""
    accuracy: float = 0
    """Metric against the unquantised reference."""
    accuracy_low: float = 0
    """Its lower 95 % confidence bound."""
    evaluation: str = ""
    """held-out, or synthetic when no evaluation data was given."""
    objective_met: bool = False
    """Whether it meets the objective."""
    manifest_digest: str = ""
    """SHA-256 of the engine's manifest in the store."""


class ErrorStatus(SpecModel):
    """The last error, with what to change."""

    family: str = ""
    """user, transient or bug."""
    reason: str = ""
    """CamelCase reason."""
    message: str = ""
    """What went wrong."""
    field: str = ""
    """Field that it concerns."""
    value: str = ""
    """What stood there."""
    remedy: str = ""
    """What to write instead, or to do."""


class BuildStatus(SpecModel):
    """The build in progress, or the last one."""

    fingerprint: str = ""
    """Fingerprint of what is built."""
    job: str = ""
    """Its Job."""
    step: str = ""
    """What it is doing."""
    fraction: float = Field(default=0, ge=0, le=1)
    """How far it is, 0 to 1."""
    attempts: int = Field(default=0, ge=0)
    """Jobs started for this fingerprint."""
    last_failure_time: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    """When the last attempt failed."""
    error: ErrorStatus | None = None
    """Why the last attempt failed."""


class BatchingStatus(SpecModel):
    """The batching that was chosen."""

    max_batch_size: int = 0
    """Largest batch."""
    preferred_batch_sizes: tuple[int, ...] = Field(default=(), max_length=64)
    """Sizes that the server tries to form."""
    max_queue_delay_microseconds: int = 0
    """How long a request waits for its batch."""
    instances: int = 0
    """Model instances in one replica."""


class PlacementStatus(SpecModel):
    """The hardware that was chosen."""

    accelerator: str = ""
    """gpu or cpu."""
    products: tuple[str, ...] = Field(default=(), max_length=16)
    """GPU products that will do."""
    profile: str = ""
    """MIG profile."""
    resource: str = ""
    """Extended resource or DeviceClass that a replica asks for."""
    reason: str = ""
    """Why this one."""


class RolloutStatus(SpecModel):
    """Which revision serves, and which is on its way."""

    stable: str = ""
    """Revision that serves."""
    candidate: str = ""
    """Revision on its way, if any."""
    step: str = ""
    """What the rollout is doing."""
    started_at: str | None = Field(default=None, json_schema_extra={"format": "date-time"})
    """When this step began."""
    refused: tuple[str, ...] = Field(default=(), max_length=16)
    """Revisions that failed their analysis."""
    previous: str = ""
    """Revision that served before."""


class DecisionStatus(SpecModel):
    """One scaling decision."""

    time: str = Field(json_schema_extra={"format": "date-time"})
    """When."""
    from_: int = Field(alias="from")
    """Replicas before."""
    to: int
    """Replicas after."""
    reason: str = ""
    """Why."""


class AutoscalingStatus(SpecModel):
    """What scaling sees and did."""

    queue_depth: float | None = None
    """Queued requests over all replicas."""
    desired_replicas: int = Field(default=0, ge=0)
    """Replicas that are wanted."""
    decisions: tuple[DecisionStatus, ...] = Field(default=(), max_length=10)
    """The last ten decisions, newest first."""


class CostStatus(SpecModel):
    """What serving costs."""

    per_million_inferences: float | None = None
    """Cost of a million inferences at the objective."""


class SummaryStatus(SpecModel):
    """Texts for kubectl's columns."""

    engine: str = ""
    """Engine, or what is being done to get one."""
    precision: str = ""
    """Precision."""
    queue: str = ""
    """Queued requests of a replica, and the target."""
    p99: str = ""
    """99th percentile of the request latency."""
    speedup: str = ""
    """Against the source model as it is."""
    accelerator: str = ""
    """Device."""
    reason: str = ""
    """Reason of the Ready condition."""


class Status(SpecModel):
    """What was observed and decided; written once a pass, only if changed."""

    observed_generation: int | None = Field(default=None, ge=0)
    """Generation of the spec that this is about."""
    conditions: tuple[ConditionStatus, ...] = Field(default=(), max_length=16)
    """Conditions, one of each type."""
    replicas: int = Field(default=0, ge=0)
    """Replicas that exist."""
    ready_replicas: int = Field(default=0, ge=0)
    """Replicas that are ready."""
    selector: str = ""
    """Label selector of the replicas, for /scale."""
    fingerprint: str = ""
    """Fingerprint of the engine that the spec asks for."""
    source: SourceStatus | None = None
    """What the source was found to be."""
    candidates: tuple[CandidateStatus, ...] = Field(default=(), max_length=64)
    """What was measured, and why each candidate won or lost."""
    engine: EngineStatus | None = None
    """The engine that is served."""
    build: BuildStatus | None = None
    """The build in progress, or the last one."""
    batching: BatchingStatus | None = None
    """The batching that was chosen."""
    placement: PlacementStatus | None = None
    """The hardware that was chosen."""
    rollout: RolloutStatus | None = None
    """Which revision serves, and which is on its way."""
    autoscaling: AutoscalingStatus | None = None
    """What scaling sees and did."""
    cost: CostStatus | None = None
    """What serving costs."""
    summary: SummaryStatus | None = None
    """Texts for kubectl's columns."""

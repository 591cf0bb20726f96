"""The shape of ``status``: the source of its schema in the CRD, and how the operator reads back what it wrote.

Reading never fails: a block that somebody edited into nonsense counts as absent, because everything in it can be found
out again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

MAX_DECISIONS = 10


class StatusModel(BaseModel):
    """Frozen; camelCase in YAML, snake_case in Python; None means absent. Unknown fields are of another version."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, validate_by_name=True,
                              validate_by_alias=True, allow_inf_nan=False)

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class ConditionStatus(StatusModel):
    """A Kubernetes condition; healthy is always True."""

    type: str = Field(description="Ready, Available, SourceResolved, EngineBuilt, AccuracyVerified, ObjectiveMet, "
                      "RolloutComplete or ScalingActive.")
    status: Literal["True", "False", "Unknown"] = Field(description="True, False or Unknown; healthy is always True.")
    reason: str = Field(description="Why, as one CamelCase word.")
    message: str = Field(description="Why, for people, and what to do next.")
    observed_generation: int = Field(description="Generation of the spec that this speaks of.")
    last_transition_time: str = Field(json_schema_extra={"format": "date-time"}, description="When status last changed.")


class FailureStatus(StatusModel):
    """An error that is not tried again before something changes."""

    reason: str = Field(description="Why, as one CamelCase word.")
    message: str = Field(description="What went wrong, with the field, its value and the remedy.")


class SourceStatus(StatusModel):
    """What the source was found to be."""

    key: str = Field(description="Identifies what was resolved: URIs, format and declared digests.")
    digest: str | None = Field(default=None, description="SHA-256 of the source's content.")
    format: str | None = Field(default=None, description="What the source is.")
    size_bytes: int | None = Field(default=None, description="Size of the source in bytes.")
    evaluation_digest: str | None = Field(default=None, description="SHA-256 of the evaluation data.")
    calibration_digest: str | None = Field(default=None, description="SHA-256 of the calibration data.")
    attempts: int | None = Field(default=None, description="Failed attempts to resolve it.")
    last_failure_time: str | None = Field(default=None, json_schema_extra={"format": "date-time"},
                                          description="When the last attempt failed.")
    failure: FailureStatus | None = Field(default=None, description="An error that waits for a change.")
    generation: int | None = Field(default=None, description="Generation of the spec that failed.")
    retry: str | None = Field(default=None, description="Value of the annotation enginewright.io/retry at that time.")


class BuildStatus(StatusModel):
    """The build under way, or the last one."""

    fingerprint: str = Field(description="Fingerprint that is built.")
    job: str | None = Field(default=None, description="Its newest Job.")
    step: str | None = Field(default=None, description="What the build is doing.")
    percent: int | None = Field(default=None, description="How far it was when this step began, 0 to 100.")
    attempts: int | None = Field(default=None, description="Jobs of this fingerprint that ended without an engine.")
    failures: int | None = Field(default=None, description="Failures in a row, which the delay before the next attempt grows with.")
    repairs: int | None = Field(default=None, description="How often the engine was rebuilt because the store had lost it.")
    last_failure_time: str | None = Field(default=None, json_schema_extra={"format": "date-time"},
                                          description="When the last attempt failed.")
    last_failure: FailureStatus | None = Field(default=None, description="Why the last attempt failed.")
    failure: FailureStatus | None = Field(default=None, description="An error that waits for a change.")
    generation: int | None = Field(default=None, description="Generation of the spec that failed.")
    retry: str | None = Field(default=None, description="Value of the annotation enginewright.io/retry at that time.")


class CandidateStatus(StatusModel):
    """One measured candidate. Latencies for one batch, throughput in inferences a second."""

    backend: str = Field(description="Engine that was built.")
    precision: str = Field(description="Its numeric precision.")
    batch: int = Field(description="Batch size that was measured.")
    p50_milliseconds: float | None = Field(default=None, alias="p50Milliseconds", description="Median latency of one batch.")
    p95_milliseconds: float | None = Field(default=None, alias="p95Milliseconds", description="95th percentile latency.")
    p99_milliseconds: float | None = Field(default=None, alias="p99Milliseconds", description="99th percentile latency.")
    throughput: float | None = Field(default=None, description="Inferences a second.")
    accuracy: float | None = Field(default=None, description="The metric's value against the unquantised reference.")
    accuracy_low: float | None = Field(default=None, description="Its lower 95 % confidence bound, which the gate compares.")
    size_bytes: int | None = Field(default=None, description="Size of the engine in bytes.")
    verdict: str = Field(description="Shipped, Passed, Slower, AccuracyRefused, Failed, Skipped or Offered.")
    reason: str | None = Field(default=None, description="Why.")


class EngineStatus(StatusModel):
    """The engine of the current spec, as measured in its shipped configuration on one replica."""

    fingerprint: str = Field(description="Identifies the engine in the store.")
    backend: str = Field(description="Engine: tensorrt, onnxruntime or torch.")
    precision: str = Field(description="Its numeric precision.")
    triton_backend: str | None = Field(default=None, description="Backend of the server that runs it.")
    speedup: float | None = Field(default=None, description="Throughput relative to the source model at equal batch.")
    p50_milliseconds: float | None = Field(default=None, alias="p50Milliseconds", description="Median request latency.")
    p95_milliseconds: float | None = Field(default=None, alias="p95Milliseconds", description="95th percentile latency.")
    p99_milliseconds: float | None = Field(default=None, alias="p99Milliseconds", description="99th percentile latency.")
    throughput: float | None = Field(default=None, description="Inferences a second of one replica.")
    accuracy: float | None = Field(default=None, description="The metric's value against the unquantised reference.")
    accuracy_low: float | None = Field(default=None, description="Its lower 95 % confidence bound.")
    evaluation: str | None = Field(default=None, description="held-out, or synthetic when no evaluation data was given.")
    size_bytes: int | None = Field(default=None, description="Size of the engine in bytes.")
    memory_bytes: int | None = Field(default=None, description="Memory of the server with the model loaded.")
    device: str | None = Field(default=None, description="Device it was built and measured on.")
    runtime_version: str | None = Field(default=None, description="Version of the runtime.")
    load_seconds: float | None = Field(default=None, description="How long the server takes to load it.")
    built: str | None = Field(default=None, description="When it was built.")
    build_seconds: float | None = Field(default=None, description="How long that took.")
    manifest_digest: str | None = Field(default=None, description="SHA-256 of the engine's manifest in the store.")
    cache_hit: bool | None = Field(default=None, description="True when the store had it already: no build was spent.")


class BatchingStatus(StatusModel):
    """The chosen batching."""

    max_batch_size: int = Field(description="Largest batch that the server forms.")
    preferred_batch_sizes: tuple[int, ...] = Field(default=(), description="Batch sizes that the server tries to form.")
    max_queue_delay_microseconds: int = Field(description="How long a request waits for others.")
    instances: int = Field(description="Instances of the model in one replica.")


class PlacementStatus(StatusModel):
    """The chosen hardware."""

    accelerator: str = Field(description="gpu or cpu.")
    resource: str | None = Field(default=None, description="Extended resource that a replica asks for.")
    mig_profile: str | None = Field(default=None, description="MIG profile of the slice.")
    device_class: str | None = Field(default=None, description="DRA device class of the slice.")
    reason: str | None = Field(default=None, description="For people: what a replica runs on.")


class RolledBackStatus(StatusModel):
    """A revision that was given up; it is not tried again before the spec changes."""

    revision: str = Field(description="The revision.")
    reason: str = Field(description="Why, as one CamelCase word.")
    message: str = Field(description="Why, with figures.")
    time: str = Field(json_schema_extra={"format": "date-time"}, description="When.")
    retry: str | None = Field(default=None, description="Value of the annotation enginewright.io/retry at that time.")


class RolloutStatus(StatusModel):
    """Which revisions there are."""

    stable: str | None = Field(default=None, description="The last revision that was proven to serve.")
    candidate: str | None = Field(default=None, description="The revision that is being rolled out.")
    step: str | None = Field(default=None, description="Starting, Analysing, WaitingForPromotion, Expanding, Draining or "
                             "Complete.")
    step_start_time: str | None = Field(default=None, json_schema_extra={"format": "date-time"},
                                        description="Since when.")
    rolled_back: RolledBackStatus | None = Field(default=None, description="The last revision that was given up.")


class DecisionStatus(StatusModel):
    """One change of replicas."""

    time: str = Field(json_schema_extra={"format": "date-time"}, description="When.")
    from_: int = Field(alias="from", description="Replicas before.")
    to: int = Field(description="Replicas after.")
    reason: str = Field(description="Why, with figures.")


class AutoscalingStatus(StatusModel):
    """Queue depth and what was decided from it."""

    queue_depth: int | None = Field(default=None, description="Queued requests over all replicas, rounded.")
    queue_depth_time: str | None = Field(default=None, json_schema_extra={"format": "date-time"},
                                         description="When queueDepth was taken; it is refreshed sparingly.")
    desired_replicas: int | None = Field(default=None, description="Replicas that are wanted.")
    decisions: tuple[DecisionStatus, ...] = Field(default=(), max_length=MAX_DECISIONS, description="The last changes, newest "
                                                  "first.")


class SummaryStatus(StatusModel):
    """Short texts for the columns of kubectl get."""

    engine: str | None = Field(default=None, description="Backend of the engine.")
    precision: str | None = Field(default=None, description="Precision of the engine.")
    replicas: str | None = Field(default=None, description="Ready and wanted replicas.")
    queue: str | None = Field(default=None, description="Queued requests.")
    p99: str | None = Field(default=None, description="99th percentile latency as measured by the build.")
    accelerator: str | None = Field(default=None, description="Hardware.")
    speedup: str | None = Field(default=None, description="Throughput relative to the source model.")
    reason: str | None = Field(default=None, description="Reason of Ready.")


class Status(StatusModel):
    """What the operator knows of the object."""

    observed_generation: int | None = Field(default=None, description="Generation of the spec that status speaks of.")
    conditions: tuple[ConditionStatus, ...] = Field(default=(), json_schema_extra={"x-kubernetes-list-type": "map",
                                                    "x-kubernetes-list-map-keys": ["type"]},
                                                    description="How it stands. Page on Available, open a ticket on Ready.")
    replicas: int | None = Field(default=None, description="Serving pods that exist.")
    ready_replicas: int | None = Field(default=None, description="Serving pods that are ready.")
    selector: str | None = Field(default=None, description="Label selector of the serving pods, for /scale.")
    fingerprint: str | None = Field(default=None, description="Fingerprint of the engine that the spec asks for.")
    summary: SummaryStatus | None = Field(default=None, description="Short texts for kubectl get.")
    source: SourceStatus | None = Field(default=None, description="What the source was found to be.")
    build: BuildStatus | None = Field(default=None, description="The build under way or failed.")
    engine: EngineStatus | None = Field(default=None, description="The engine of the current spec.")
    candidates: tuple[CandidateStatus, ...] = Field(default=(), description="All candidates that were measured.")
    batching: BatchingStatus | None = Field(default=None, description="The chosen batching.")
    placement: PlacementStatus | None = Field(default=None, description="The chosen hardware.")
    rollout: RolloutStatus | None = Field(default=None, description="Which revisions there are.")
    autoscaling: AutoscalingStatus | None = Field(default=None, description="Queue depth and decisions.")


Block = TypeVar("Block", bound=StatusModel)


def read(kind: type[Block], raw: object) -> Block | None:
    """``raw`` as ``kind``, or None when it is absent or makes no sense."""
    if not isinstance(raw, Mapping):
        return None
    try:
        return kind.model_validate(dict(raw))
    except ValidationError:
        return None

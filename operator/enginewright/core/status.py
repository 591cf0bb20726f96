"""The shape of ``status``: the source of its schema in the CRD, and how the operator reads back what it wrote.

Reading never fails: a block that an edit has made invalid counts as absent, because everything in it can be found
out again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from enginewright.core.internal import joined

MAX_DECISIONS = 10
TIME: dict[str, Any] = {"format": "date-time"}


class StatusModel(BaseModel):
    """Frozen; camelCase in YAML, snake_case in Python; None means absent. Unknown fields are of another version."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, validate_by_name=True,
                              validate_by_alias=True, allow_inf_nan=False, use_attribute_docstrings=True)

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class ConditionStatus(StatusModel):
    """A Kubernetes condition; healthy is always True."""

    type: str
    """Ready, Available, SourceResolved, EngineBuilt, AccuracyVerified, ObjectiveMet, RolloutComplete, ScalingActive or
    QualityHeld."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown; healthy is always True."""
    reason: str
    """Why, as one CamelCase word."""
    message: str
    """Why, for people, and what to do next."""
    observed_generation: int
    """Generation of the spec that this speaks of."""
    last_transition_time: str = Field(json_schema_extra=TIME)
    """When status last changed."""


class FailureStatus(StatusModel):
    """An error."""

    reason: str
    """Why, as one CamelCase word."""
    message: str
    """What went wrong, with the field, its value and the remedy."""
    device: bool | None = None
    """True when the device's memory ran out, not the pod's."""


class CheckpointStatus(StatusModel):
    """Other weights of a language model."""

    name: str
    """Its name in the spec."""
    digest: str
    """SHA-256 of its content."""


class SourceStatus(StatusModel):
    """What the resolve Job found the source to be."""

    key: str
    """Identifies what was resolved: URIs, format and declared digests."""
    digest: str | None = None
    """SHA-256 of the source's content."""
    format: str | None = None
    """What the source is."""
    size_bytes: int | None = None
    """Size of the source in bytes."""
    evaluation_digest: str | None = None
    """SHA-256 of the evaluation data."""
    calibration_digest: str | None = None
    """SHA-256 of the calibration data."""
    checkpoints: tuple[CheckpointStatus, ...] | None = None
    """Checkpoints of a language model that the spec lists."""
    attempts: int | None = None
    """Failed attempts to resolve it."""
    last_failure_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When the last attempt failed."""
    last_failure: FailureStatus | None = None
    """Why the last attempt failed."""
    failure: FailureStatus | None = None
    """An error that waits for a change."""
    spec_key: str | None = None
    """Identifies what of the spec a Job depends on, as it was when it failed."""
    retry: str | None = None
    """Value of the annotation enginewright.io/retry at that time."""


class LibraryStatus(StatusModel):
    """A library of an image."""

    name: str
    """Its name."""
    version: str
    """Its version."""


class RuntimeStatus(StatusModel):
    """What engines are built for, of what the server image has and a build can prove."""

    backends: tuple[str, ...] = ()
    """Triton's backends: python, onnxruntime, tensorrt."""
    python_runtimes: tuple[str, ...] = ()
    """Libraries that Triton's Python backend runs engines with: onnxruntime, tensorrt, torch."""


class ServerStatus(StatusModel):
    """What the server image has, by its own account. The operator asks the image again when spec.serving.image or the
    operator's own images change, or when a replica runs another digest of the same name."""

    image: str
    """The image, as it is named."""
    key: str | None = None
    """Identifies what was asked: both images and the digest that a replica was seen with."""
    image_id: str | None = Field(default=None, alias="imageID")
    """Its digest on the node where it was asked."""
    triton: str | None = None
    """Version of Triton Inference Server."""
    python: str | None = None
    """Version of Python."""
    architecture: str | None = None
    """Architecture of the node where it was asked."""
    backends: tuple[str, ...] | None = None
    """All of Triton's backends in it."""
    caches: tuple[str, ...] | None = None
    """All of Triton's caches in it. Absent where it was asked by an operator that did not want to know."""
    libraries: tuple[LibraryStatus, ...] | None = None
    """What it has to run engines with."""
    runtime: RuntimeStatus | None = None
    """What engines are built for. Part of the fingerprint."""
    cuda: str | None = None
    """The least CUDA that it asks of a node's driver."""
    drivers: tuple[str, ...] | None = None
    """Branches of drivers that run it although their CUDA is older."""
    builder_image: str | None = None
    """The builder image, asked at the same time."""
    builder_libraries: tuple[LibraryStatus, ...] | None = None
    """What that has to build engines with."""
    digests: tuple[str, ...] | None = None
    """Digests that replicas had under this name, for each of which the image was asked once more."""
    attempts: int | None = None
    """Failed attempts to ask it."""
    last_failure_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When the last attempt failed."""
    last_failure: FailureStatus | None = None
    """Why the last attempt failed."""
    failure: FailureStatus | None = None
    """An error that waits for a change."""
    spec_key: str | None = None
    """Identifies what of the spec a Job depends on, as it was when it failed."""
    retry: str | None = None
    """Value of the annotation enginewright.io/retry at that time."""


class BuildStatus(StatusModel):
    """The build under way, or the last one."""

    fingerprint: str
    """Fingerprint that is built."""
    job: str | None = None
    """Its newest Job."""
    step: str | None = None
    """What the build is doing."""
    percent: int | None = None
    """Progress when this step began, 0 to 100."""
    attempts: int | None = None
    """Jobs of this fingerprint that ended without an engine."""
    failures: int | None = None
    """Failures in a row; the delay before the next attempt grows with them."""
    disruptions: int | None = None
    """Of these, pods that lost their place or their node, which says nothing of the build."""
    repairs: int | None = None
    """How often the engine was rebuilt because the store had lost it."""
    last_failure_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When the last attempt failed."""
    last_failure: FailureStatus | None = None
    """Why the last attempt failed."""
    failure: FailureStatus | None = None
    """An error that waits for a change."""
    spec_key: str | None = None
    """Identifies what of the spec a Job depends on, as it was when it failed."""
    retry: str | None = None
    """Value of the annotation enginewright.io/retry at that time."""


class TaskStatus(StatusModel):
    """The metric on labels."""

    metric: str
    """What was measured."""
    value: float | None = None
    """The engine's."""
    source: float | None = None
    """The source model's, on the same samples."""
    loss_high: float | None = None
    """Upper 95 % confidence bound of what the engine loses, which the gate compares; of mae and rmse as a share of the
    source's error."""


class GroupsStatus(StatusModel):
    """Groups of samples that the gate held in."""

    by: str
    """What the samples of a group have in common."""
    judged: int
    """How many groups had enough samples for all that is asked."""
    too_small: int
    """How many had too few for some of it."""
    too_small_names: tuple[str, ...] | None = None
    """The first few of these."""
    worst: str | None = None
    """The group in which the engine lost most."""


class TokensStatus(StatusModel):
    """What one replica of a language model does under the load that was measured."""

    ttft_p50_milliseconds: float | None = Field(default=None, alias="ttftP50Milliseconds")
    """Median time until the first token of an answer."""
    ttft_p99_milliseconds: float | None = Field(default=None, alias="ttftP99Milliseconds")
    """99th percentile of it."""
    tpot_p50_milliseconds: float | None = Field(default=None, alias="tpotP50Milliseconds")
    """Median time for each token after the first."""
    tpot_p99_milliseconds: float | None = Field(default=None, alias="tpotP99Milliseconds")
    """99th percentile of it."""
    output_rate: float | None = None
    """Tokens of answers a second."""
    goodput: float | None = None
    """Requests a second that met the objective; all where none was asked for."""
    concurrency: int | None = None
    """Requests in flight."""


class CandidateStatus(StatusModel):
    """One measured candidate. Latencies for one batch, throughput in inferences a second."""

    backend: str
    """Engine that was built, or vllm."""
    precision: str
    """Its numeric precision."""
    name: str | None = None
    """Distinguishes it from others of its backend and precision: for which batches it was tuned (@1+8), whether
    layers were kept in higher precision, and whether its builder looked at fewer kernels to be done in time (quick)."""
    serves: tuple[int, ...] | None = None
    """Batch buckets that it ships for, each by its largest batch; absent where it does not ship."""
    batch: int
    """Batch size that was measured."""
    p50_milliseconds: float | None = Field(default=None, alias="p50Milliseconds")
    """Median latency of one batch."""
    p95_milliseconds: float | None = Field(default=None, alias="p95Milliseconds")
    """95th percentile latency."""
    p99_milliseconds: float | None = Field(default=None, alias="p99Milliseconds")
    """99th percentile latency."""
    throughput: float | None = None
    """Inferences a second."""
    accuracy: float | None = None
    """The metric's value against the unquantised reference."""
    accuracy_low: float | None = None
    """Its lower 95 % confidence bound, which the gate compares."""
    task: TaskStatus | None = None
    """The metric on labels, where one is asked for."""
    tokens: TokensStatus | None = None
    """Of a language model: its best load."""
    size_bytes: int | None = None
    """Size of the engine in bytes."""
    verdict: str
    """Shipped, Passed, Slower, AccuracyRefused, Failed, Skipped, Offered or Fallback."""
    reason: str | None = None
    """Why."""


class MemoryStatus(StatusModel):
    """Memory of one server, in bytes."""

    seen: str
    """processes: the server's own processes, in a server that had loaded nothing else; container: what the server's
    container said of them, in one that the build had measured other settings with before."""
    empty_bytes: int
    """Without a model."""
    loaded_bytes: int
    """With the model loaded and warm."""
    peak_bytes: int
    """The most, under the load of the shipped point."""
    held_bytes: int
    """What of it the kernel cannot take back: under a lower limit it kills the server."""
    device_peak_bytes: int | None = None
    """The most of its GPUs' memory. Absent without one."""
    pinned_bytes: int | None = None
    """The most of Triton's pinned memory pool that was in use. Absent without a GPU."""


class ProposedResourcesStatus(StatusModel):
    """Requests and limits of the server's container."""

    requests: Mapping[str, str]
    """The measured peak of memory and a tenth, 64Mi more, and the processor time of the measured load."""
    limits: Mapping[str, str]
    """The measured peak of memory and a half, 128Mi more."""


class EngineStatus(StatusModel):
    """The engine of the current spec, as measured in its shipped configuration on one replica."""

    fingerprint: str
    """Identifies the engine in the store."""
    backend: str
    """Engine: tensorrt, onnxruntime or torch; of a language model its server, vllm."""
    precision: str
    """Its numeric precision."""
    ships: str | None = None
    """Candidate that serves, or those that do and up to which batch each."""
    fallback: str | None = None
    """Where the source model itself serves: why no candidate may, as one CamelCase word."""
    triton_backend: str | None = None
    """Backend of the server that runs it."""
    speedup: float | None = None
    """Throughput relative to the source model at equal batch. Of a language model: requests a second that keep the
    objective, or tokens a second where none is asked for, relative to the unquantised model by vLLM's own settings."""
    tokens: TokensStatus | None = None
    """Figures of a language model. Latencies and throughput of inferences are absent then."""
    p50_milliseconds: float | None = Field(default=None, alias="p50Milliseconds")
    """Median request latency."""
    p95_milliseconds: float | None = Field(default=None, alias="p95Milliseconds")
    """95th percentile latency."""
    p99_milliseconds: float | None = Field(default=None, alias="p99Milliseconds")
    """99th percentile latency."""
    p999_milliseconds: float | None = Field(default=None, alias="p999Milliseconds")
    """99.9th percentile latency. Absent where the build measured fewer than 1000 requests."""
    mean_milliseconds: float | None = None
    """Mean latency, where some of it is known to be before or after the model."""
    pre_milliseconds: float | None = None
    """What of the mean latency goes by before the model, on making its inputs of what clients send."""
    post_milliseconds: float | None = None
    """What of the mean latency goes by after the model, on making answers of its outputs."""
    throughput: float | None = None
    """Inferences a second of one replica."""
    accuracy: float | None = None
    """The metric's value against the unquantised reference."""
    accuracy_low: float | None = None
    """Its lower 95 % confidence bound."""
    evaluation: str | None = None
    """held-out, or synthetic when no evaluation data was given."""
    task: TaskStatus | None = None
    """The metric on labels, where one is asked for."""
    groups: GroupsStatus | None = None
    """Groups of samples, where they are asked for."""
    size_bytes: int | None = None
    """Size of the engine in bytes."""
    memory_bytes: int | None = None
    """Memory of the server with the model loaded."""
    memory: MemoryStatus | None = None
    """What the build measured of the server's memory, up to the load of the shipped point. Absent of engines of older
    builders and of language models."""
    proposed_resources: ProposedResourcesStatus | None = None
    """For spec.serving.resources, from that."""
    device: str | None = None
    """Device it was built and measured on."""
    runtime_version: str | None = None
    """Version of the runtime."""
    load_seconds: float | None = None
    """How long the server takes to load it."""
    bound: str | None = None
    """What limits it on its device: compute, bandwidth, or overhead (launches and synchronisation)."""
    gpu_utilisation: float | None = None
    """Share of the time that the GPU computed under the measured load, 0 to 1."""
    inferences_per_joule: float | None = None
    """Inferences for each joule that the device drew above idle."""
    power_watts: float | None = None
    """Watts that the device drew under the measured load, idle power included."""
    built: str | None = None
    """When it was built."""
    build_seconds: float | None = None
    """How long that took."""
    manifest_digest: str | None = None
    """SHA-256 of the engine's manifest in the store."""
    cache_hit: bool | None = None
    """True when the store had it already: no build was spent."""


class ServedStatus(StatusModel):
    """What the last minute's traffic costs. It is refreshed sparingly."""

    per_second: float
    """Inferences, or tokens of a language model's answers, that all replicas gave a second."""
    per_million: float | None = None
    """Price of a million of them, idle replicas included. Absent while nothing is served."""
    idle_share: float | None = None
    """Share of what the replicas can answer within the objective that no client asked for, 0 to 1."""
    saved_per_hour: float | None = None
    """What as many replicas of the source model as this traffic takes would cost more in an hour, by the speed-up that
    the build measured."""
    time: str = Field(json_schema_extra=TIME)
    """When that was."""


class CostStatus(StatusModel):
    """What inferences cost on one replica at the latency objective, by the operator's configured prices."""

    per_million_inferences: float | None = None
    """Price of a million inferences at the throughput that a replica sustains within the latency objective. Absent of a
    language model."""
    per_million_tokens: float | None = None
    """Of a language model: price of a million tokens of answers, under the load that the build measured."""
    currency: str
    """Currency of the price."""
    price_per_hour: float
    """Price of one replica's devices for an hour."""
    throughput: float | None = None
    """Inferences a second of one replica within the latency objective."""
    served: ServedStatus | None = None
    """What live traffic costs. Absent where the operator does not read the replicas, as with spec.replicas."""


class BatchingStatus(StatusModel):
    """The chosen batching."""

    max_batch_size: int
    """Largest batch that the server forms; 0 where the model takes no batches, and each request is one call of it."""
    preferred_batch_sizes: tuple[int, ...] = ()
    """Batch sizes that the server tries to form."""
    max_queue_delay_microseconds: int
    """How long a request waits for others."""
    instances: int
    """Instances of the model in one replica."""


class TriedProfileStatus(StatusModel):
    """A MIG profile that profile auto has skipped."""

    profile: str
    """The profile."""
    fingerprint: str
    """Of the engine that was built, or was to be built, on it."""
    reason: str
    """Why it does not suit: NotMet or OutOfMemory."""
    message: str
    """With the measured figures."""
    retry: str | None = None
    """Value of the retry annotation when its build failed: another one tries it again."""
    spec_key: str | None = None
    """What of the spec its build depended on: where that changes, it is tried again."""
    attempts: int | None = None
    """Builds that failed on it."""


class PlacementStatus(StatusModel):
    """The chosen hardware."""

    accelerator: str
    """gpu or cpu."""
    resource: str | None = None
    """Extended resource that a replica asks for."""
    mig_profile: str | None = None
    """MIG profile of the slice."""
    device_class: str | None = None
    """DRA device class of the slice."""
    reason: str | None = None
    """What a replica runs on, in words."""
    tried: tuple[TriedProfileStatus, ...] | None = None
    """With mig.profile auto: smaller profiles that do not suit, by the measurements of their builds."""


class QualityStatus(StatusModel):
    """How far live answers agree with the source model."""

    revision: str
    """The revision that answered."""
    metric: str
    """The accuracy gate's metric."""
    agreement: float
    """Mean score of the requests in the windows, 1 for equal answers."""
    low: float
    """It is at least this."""
    high: float
    """It is at most this."""
    required: float
    """What the engine was proven to keep."""
    samples: int
    """Sampled requests in the windows of all replicas."""
    replicas: int
    """Replicas that measure."""
    time: str = Field(json_schema_extra=TIME)
    """When these figures were taken; they are refreshed sparingly."""


class BatchStatus(StatusModel):
    """The run of a data set through the engine."""

    key: str
    """Identifies the run: input, output and shards."""
    job: str | None = None
    """Its Job."""
    fingerprint: str | None = None
    """Fingerprint of the engine that answers."""
    shards: int | None = None
    """Parts of the input."""
    completed: int | None = None
    """Shards whose rows are all answered."""
    failed: int | None = None
    """Shards that were given up."""
    rows: int | None = None
    """Rows of the input; absent until a shard is done."""
    rows_completed: int | None = None
    """Rows of the shards that are done. The output has those of other shards as well, as far as they are."""
    start_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When the Job began; where it was recreated, the newest one."""
    completion_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When all rows were answered."""
    rows_per_second: float | None = None
    """Of all pods together, from start to completion."""
    cost: float | None = None
    """Price of the newest Job's pods from start to completion, at most: by the price for an hour of one, as if all of
    them had run all the time."""
    currency: str | None = None
    """Currency of the price."""
    failure: FailureStatus | None = None
    """Why it waits for a change."""
    generation: int | None = None
    """Generation of the spec that the Job was made for."""
    retry: str | None = None
    """Value of the annotation enginewright.io/retry at that time."""


class RolledBackStatus(StatusModel):
    """A revision that was given up; it is not tried again before the spec changes."""

    revision: str
    """The revision."""
    reason: str
    """Why, as one CamelCase word."""
    message: str
    """Why, with figures."""
    time: str = Field(json_schema_extra=TIME)
    """When."""
    retry: str | None = None
    """Value of the annotation enginewright.io/retry at that time."""


class AnalysisStatus(StatusModel):
    """Figures of the analysis under way or just ended."""

    ratio: float | None = None
    """The new revision's mean request latency over the stable one's in the same seconds."""
    low: float | None = None
    """The ratio is at least this."""
    high: float | None = None
    """The ratio is at most this."""
    measure: str | None = None
    """What the ratio is of in place of request latencies: of a language model the time to first token, or the time per
    token, whichever is worse."""
    requests: int = 0
    """Requests that the new revision answered."""
    failures: int = 0
    """Requests that it failed."""
    seconds: int = 0
    """How long both were watched."""
    time: str | None = Field(default=None, json_schema_extra=TIME)
    """When these figures were taken."""
    uncompared: str | None = None
    """Why outputs were not compared that should have been."""
    mirrored: int | None = None
    """Live requests that both answered, where rollout.analysis.mirror asks for it."""
    agreement: float | None = None
    """Mean score of the new revision's answers to them against the stable one's, by the accuracy gate's metric."""
    agreement_low: float | None = None
    """The mean is at least this."""
    agreement_high: float | None = None
    """The mean is at most this."""


class RolloutStatus(StatusModel):
    """The revisions, and the state of the rollout."""

    stable: str | None = None
    """The last revision that was proven to serve."""
    candidate: str | None = None
    """The revision that is being rolled out."""
    retry: str | None = None
    """Value of the annotation enginewright.io/retry when the candidate began."""
    step: str | None = None
    """Starting, Analysing, WaitingForPromotion, Expanding, Switching, Draining, Complete or RolledBack; of a fleet
    Starting, WaitingForClasses, WaitingForPromotion, Expanding, Complete or RolledBack."""
    step_start_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When the step began."""
    weight_step: int | None = None
    """Steps of spec.rollout.steps that the candidate has passed."""
    restarts: int | None = None
    """Restarts of the candidate's pods when its analysis began."""
    readiness_losses: int | None = None
    """How often replicas of the candidate lost readiness while it was analysed, or all of them after all traffic
    had moved to it."""
    analysis: AnalysisStatus | None = None
    """Figures of the analysis."""
    stable_source: str | None = None
    """Digest of the source that the stable revision was built from."""
    rolled_back: RolledBackStatus | None = None
    """The last revision that the operator rolled back."""
    approved: str | None = None
    """With strategy Recreate and autoPromote false: the approved revision, until it serves."""


class TargetStatus(StatusModel):
    """What an engine is built for, and depends on."""

    device: str
    """GPU product and MIG profile, or cpu; and the architecture."""
    device_count: int
    """Devices of one replica."""
    server_image: str
    """Image of the server, which has the runtime."""
    backends: str
    """What that image can run."""
    builder_image: str
    """Image of the builder."""


class RevisionStatus(StatusModel):
    """One revision that served or was tried, with its evidence in short."""

    revision: str
    """The revision."""
    fingerprint: str
    """Its engine."""
    backend: str | None = None
    """Engine: tensorrt, onnxruntime or torch; of a language model its server, vllm."""
    precision: str | None = None
    """Numeric precision of the engine."""
    speedup: float | None = None
    """Throughput relative to the source model, as in status.engine."""
    p99_milliseconds: float | None = Field(default=None, alias="p99Milliseconds")
    """99th percentile latency as measured by the build."""
    accuracy_low: float | None = None
    """Lower 95 % confidence bound of the accuracy."""
    promotion_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When it last took over. Absent: it never did, and you cannot go back to it."""
    outcome: Literal["Serving", "Superseded", "RolledBack"]
    """Serving, Superseded by a later one, or RolledBack."""
    reason: str | None = None
    """Why it was rolled back, as one CamelCase word."""
    message: str | None = None
    """Why it was rolled back, with figures."""
    analysis: AnalysisStatus | None = None
    """The result of its last analysis, beside the revision that served before it. Absent: nothing served to compare it
    with, or the rollout had no analysis."""
    end_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When it was superseded or rolled back."""
    target: TargetStatus | None = None
    """What its engine was built for."""


class PinStatus(StatusModel):
    """What the annotation enginewright.io/rollback-to asked for."""

    revision: str
    """The annotation's value."""
    spec_key: str
    """Identifies what the spec asked to be served when the annotation was first seen."""
    released: bool | None = None
    """True once the spec has asked for something else: the newest wish wins."""


class ContestStatus(StatusModel):
    """Another controller writes the replicas of the object's Deployments."""

    manager: str
    """Its field manager."""
    deployment: str
    """The Deployment where the operator put the number back."""
    time: str = Field(json_schema_extra=TIME)
    """When."""
    retry: str | None = None
    """Value of the annotation enginewright.io/retry at that time."""


class DecisionStatus(StatusModel):
    """One change of replicas."""

    time: str = Field(json_schema_extra=TIME)
    """When."""
    from_: int = Field(alias="from")
    """Replicas before."""
    to: int
    """Replicas after."""
    reason: str
    """Why, with figures."""


class AutoscalingStatus(StatusModel):
    """Queue depth and what was decided from it."""

    queue_depth: int | None = None
    """Queued requests over all replicas, rounded."""
    queue_depth_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When queueDepth was taken; it is refreshed sparingly."""
    p99_milliseconds: float | None = Field(default=None, alias="p99Milliseconds")
    """99th percentile latency of the last minute as the servers count it, of the slowest replica. Absent unless servers
    export it (config.serverArgs of the chart with --metrics-config=summary_latencies=true) and the operator asks them
    directly."""
    p99_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When p99Milliseconds was taken; it is refreshed sparingly."""
    rejected: int | None = None
    """With serving.queue: requests that were rejected in the last minute after their timeout in a queue. Triton does
    not count those that a full queue turns away."""
    rejected_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When rejected was counted; it is refreshed sparingly."""
    cache_hit_share: float | None = None
    """With serving.responseCache: share of the requests of the last minute that were answered from it, 0 to 1. Absent
    without requests. Replicas are counted for the others alone."""
    cache_hit_share_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When cacheHitShare was taken; it is refreshed sparingly."""
    desired_replicas: int | None = None
    """Replicas that the operator wants."""
    max_replicas: int | None = None
    """Most replicas that there may be now, by maxReplicas, schedules and costCeilingPerHour."""
    decisions: tuple[DecisionStatus, ...] = Field(default=(), max_length=MAX_DECISIONS)
    """The last changes, newest first."""


class ClassStatus(StatusModel):
    """One class of devices of a fleet."""

    name: str
    """The class."""
    model: str
    """The OptimisedModel that serves it, with all details in its own status."""
    ready: Literal["True", "False", "Unknown"]
    """Whether that is Ready."""
    reason: str
    """Why, as one CamelCase word."""
    engine: str | None = None
    """Engine: tensorrt, onnxruntime or torch."""
    precision: str | None = None
    """Numeric precision of the engine."""
    replicas: int | None = None
    """Serving pods that exist."""
    ready_replicas: int | None = None
    """Serving pods that are ready."""
    throughput: float | None = None
    """Inferences a second of one replica, as measured by the build."""
    p99_milliseconds: float | None = Field(default=None, alias="p99Milliseconds")
    """99th percentile latency as measured by the build."""
    per_million_inferences: float | None = None
    """Price of a million inferences at the throughput that a replica sustains within the latency objective."""
    weight: int | None = None
    """Per cent of what comes through a Gateway."""
    least_replicas: int | None = None
    """Replicas that it has at least while it takes over what a class that left has carried."""
    stable: str | None = None
    """Its revision when all classes last served one revision of the fleet: what it goes back to."""
    candidate: str | None = None
    """The revision that is being rolled out."""


class HandoverStatus(StatusModel):
    """What classes that leave a fleet have carried, and the others are to take over."""

    classes: tuple[str, ...] = ()
    """Those that leave, or have left."""
    inferences_per_second: float | None = None
    """The most that all classes together carried when the first was to leave."""
    replicas: int | None = None
    """The same in replicas, where not every class is measured."""
    until: str | None = Field(default=None, json_schema_extra=TIME)
    """Until when the others keep the replicas that they were given for it; absent while a class is still to leave."""


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
    """99th percentile latency as measured by the build."""
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


Block = TypeVar("Block", bound=StatusModel)


def read_status(raw: object) -> Status:
    """All of an object's status, as the apiserver gave it; an empty one where it makes no sense."""
    return read(Status, joined(raw)) or Status()


def read(kind: type[Block], raw: object) -> Block | None:
    """``raw`` as ``kind``, or None when it is absent or makes no sense."""
    if not isinstance(raw, Mapping):
        return None
    try:
        return kind.model_validate(dict(raw))
    except ValidationError:
        return None


def read_all(kind: type[Block], raw: object) -> tuple[Block, ...]:
    """The entries of a list that make sense."""
    entries = raw if isinstance(raw, list) else []
    return tuple(block for entry in entries if (block := read(kind, entry)) is not None)

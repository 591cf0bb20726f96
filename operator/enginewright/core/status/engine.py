"""The engine, its evidence and the candidates beside it."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from enginewright.core.status.base import TIME, StatusModel


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
    proposed_tokens: int | None = None
    """Tokens that a draft or n-grams proposed under that load. Absent without speculation."""
    accepted_tokens: int | None = None
    """Those of them that the model took."""


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

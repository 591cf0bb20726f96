"""How the engine is built, and what it must achieve to be served."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from enginewright.core.spec.base import Digest, Remedy, SourceUri, SpecModel
from enginewright.core.spec.pod_template import JobPodTemplateSpec
from enginewright.core.spec.resources import ResourcesSpec
from enginewright.core.spec.source import DataSpec

QueueName = Annotated[
    str,
    Field(max_length=63, pattern=r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$"),
    Remedy("write the name of a Kueue LocalQueue of the namespace, or leave it out"),
]
Backend = Literal["auto", "tensorrt", "onnxruntime", "torch"]
Precision = Literal["auto", "fp32", "tf32", "fp16", "bf16", "int8", "fp8", "int8-weight-only", "int4-weight-only"]
CPU_PRECISIONS = ("auto", "fp32", "int8", "int8-weight-only", "int4-weight-only")
Metric = Annotated[
    str,
    Field(max_length=80, pattern=r"^(cosine|top1|relative-error|spearman|onnx|agreement|python:[A-Za-z0-9_.-]{1,63})$"),
    Remedy("write 'cosine', 'top1', 'relative-error', 'spearman', 'onnx' (a metric.onnx in the source's folder), "
           "python:NAME (a metric of the builder image) or, with task generate, 'agreement'"),
]


CheckpointName = Annotated[
    str,
    Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
    Remedy("write at most 63 lower-case letters, digits and '-', such as awq"),
]


class CheckpointSpec(SpecModel):
    """Other weights of the source's language model, in a folder of their own with its tokeniser."""

    name: CheckpointName
    """What candidates, status and report call it."""
    uri: SourceUri
    """Where its folder is, by the same schemes as the source's, which is read with the same credentials."""
    digest: Digest = ""
    """SHA-256 of its content, checked before use. Resolved and recorded in status when absent."""


class DraftSpec(CheckpointSpec):
    """A smaller language model of the source's vocabulary, in a folder of its own with its tokeniser. It proposes
    tokens, of which the source keeps those that it would have chosen itself."""


class EngineSpec(SpecModel):
    """Which candidates are built, and what that may cost."""

    backend: Backend = "auto"
    """Engine to build: tensorrt (GPU), onnxruntime or torch. auto lets all that the accelerator can run compete,
    and the fastest that passes wins."""
    precision: Precision = "auto"
    """Numeric precision. auto climbs the ladder from full precision down to 8 bits and keeps the fastest rung whose
    accuracy passes. int8-weight-only and int4-weight-only, which auto leaves out, quantise the weights of matrix
    products alone, in blocks, and need no calibration."""
    max_batch_size: int = Field(default=32, ge=1, le=4096)
    """Largest batch that the server forms."""
    build_budget_seconds: int | None = Field(default=None, ge=10, le=172_800)
    """Time for building and measuring all candidates; the most promising are tried first. What the time does not reach
    is skipped, and status and report say what it could have brought. Absent: 300 on a GPU, 1800 on a
    CPU and with task generate."""
    context_tokens: int | None = Field(default=None, ge=16, le=16_777_216)
    """With task generate: tokens of the longest prompt and its answer together. A shorter context leaves more memory
    for requests at the same time. Left out: what the model was made for."""
    checkpoints: tuple[CheckpointSpec, ...] = Field(
        default=(), max_length=8,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]})
    """With task generate: weights of the same model that are quantised already (FP8, AWQ, GPTQ, compressed-tensors) or
    tuned otherwise. They compete with the source's, and the gate holds each of them against the source as it is."""
    drafts: tuple[DraftSpec, ...] = Field(
        default=(), max_length=4,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]})
    """With task generate: smaller models of the source's vocabulary that propose tokens to it (speculative decoding).
    The source with each of them competes with the source alone, past the same gate. How many tokens at once are
    proposed the build measures."""
    stop_when: Literal["budgetSpent", "objectiveMet"] = "budgetSpent"
    """When no more candidates are tried: once the time budget is spent or all are tried; or with objectiveMet as soon
    as one that may be served takes at most half of spec.objective.latency for a single sample, before the server's own
    time. Of a language model: as soon as one that may be served keeps spec.objective.tokens, but for checkpoints and
    drafts, which are all tried. A change rebuilds."""
    fallback: Literal["none", "source"] = "none"
    """What is served when no candidate may be, for lack of speed, accuracy or time: none, so that nothing new is; or
    source, the source model itself in full precision, which passes the accuracy gate like any other. With source, the
    time budget is part of what is asked for: more of it rebuilds."""
    profile: bool = False
    """Leave traces of the engine's layers beside the build report, taken with the library's own profiler after all that
    is measured, and the ten slowest layers in the report. Perfetto opens them. A change asks for another engine: one
    that is published is never changed, so it is built again the first time, and rolled out like any other."""
    queue_name: QueueName = ""
    """Kueue LocalQueue for the build Job; empty starts it at once."""
    calibration: DataSpec | None = None
    """Data that 8-bit precisions are calibrated on. It must not be the evaluation data."""
    resources: ResourcesSpec = Field(default_factory=ResourcesSpec)
    """CPU and memory of the build Job's container. The accelerator is the one chosen under placement."""
    pod_template: JobPodTemplateSpec = Field(default_factory=JobPodTemplateSpec)
    """Additions to the Jobs that resolve the source and build, and to their pods. They are no part of what is asked of
    the engine: a change rebuilds nothing."""


ColumnName = Annotated[
    str,
    Field(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*$"),
    Remedy("write the name of an array of the .npz or of a field in each line of the .jsonl, such as label"),
]
OutputName = Annotated[
    str,
    Field(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*$"),
    Remedy("write the name of one of the model's outputs, such as logits"),
]
TaskMetric = Literal["accuracy", "top5", "f1-macro", "f1-micro", "ndcg", "wer", "mae", "rmse", "map", "map50"]


class TaskSpec(SpecModel):
    """Labels: an engine must be about as good at its task as the source model is."""

    metric: TaskMetric
    """What is measured on the labels. accuracy and top5 count right classes; f1-macro and f1-micro take one class, or 0
    or 1 for each class; ndcg judges rankings by their first ten; wer compares the words that a speech model hears; mae
    and rmse are the error of numbers; map and map50 are COCO's mean average precision of detections, over IoU 0.5 to
    0.95 and at 0.5."""
    labels: ColumnName = Field(default="label", min_length=1)
    """Array or field of the evaluation data that has the labels. It is not given to the model."""
    max_loss: float = Field(default=0.01, gt=0, le=0.5)
    """Largest loss allowed: an engine passes when what it loses against the source model is at most this with 95 %
    confidence. 0.01 is one point of a hundred; of mae and rmse it is 1 % of the source's error. That takes at least 3 /
    maxLoss different samples (queries with ndcg), and twice as many are advised."""
    output: OutputName = ""
    """Output of the model that answers the task. Absent: its first one. With topK, by the name of its scores or of its
    classes: the classes are judged."""
    queries: ColumnName = ""
    """Array or field that says of which query a sample is, where the model answers one number for each sample. With
    ndcg alone."""
    threshold: float | None = None
    """From where on a number means yes, for models that answer one number, or one for each of several classes. Absent:
    0.5 where all answers of the source lie between 0 and 1, else 0."""


class AccuracySpec(SpecModel):
    """The gate: an engine that does not pass it is not served."""

    metric: Metric = "cosine"
    """How outputs are compared with the unquantised reference: cosine similarity, top1 agreement, relative-error,
    or spearman rank correlation; or by a metric of your own: onnx is metric.onnx in the source's folder, python:NAME an
    entry point enginewright.metrics of the builder image. With task generate it is agreement, whichever of agreement
    and cosine stands here: the share of next tokens that are the source model's."""
    max_loss: float = Field(default=0.01, gt=0, le=1)
    """Largest loss allowed: an engine passes when the lower 95 % confidence bound of its metric is at least 1 -
    maxLoss. That takes at least 3 / maxLoss different samples, and twice as many are advised."""
    evaluation: DataSpec | None = None
    """Data that accuracy is measured on. Without it, synthetic inputs are used, and status says so. With task generate
    it is required, and a .jsonl of prompts."""
    task: TaskSpec | None = None
    """Labels in the evaluation data, which an engine is held against beside the source model's answers."""
    group_by: ColumnName = ""
    """Array or field of the evaluation data that names the group of each sample, such as a country. The gate then holds
    in each group that has enough samples, too; status says how many have too few."""


class LatencySpec(SpecModel):
    """A latency objective."""

    percentile: float = Field(default=99.0, ge=50, le=99.99)
    """Percentile of the request latency, 50 to 99.99. The build measures each load until one request in its window is
    beyond the percentile (1000 requests for 99.9), as far as its time allows, and says where it did not."""
    milliseconds: float = Field(gt=0, le=600_000)
    """Largest latency at that percentile, in milliseconds."""


class TokensSpec(SpecModel):
    """An objective of a language model, which answers token by token. Give one of the times, or both."""

    percentile: float = Field(default=99.0, ge=50, le=99.99)
    """Percentile of both times over all requests, 50 to 99.99."""
    ttft_milliseconds: float | None = Field(default=None, gt=0, le=600_000)
    """Largest time to first token (TTFT) at that percentile, in milliseconds: from the request until its first token
    comes."""
    tpot_milliseconds: float | None = Field(default=None, gt=0, le=60_000)
    """Largest time per output token (TPOT) at that percentile, in milliseconds: what each token after the first takes,
    as the mean of a request."""


class ObjectiveSpec(SpecModel):
    """What the deployment must achieve; the cheapest configuration that does is chosen."""

    latency: LatencySpec | None = None
    """Latency that one replica must keep at its chosen load."""
    tokens: TokensSpec | None = None
    """With task generate, in place of latency: times of tokens that one replica must keep at its chosen load."""
    throughput: float = Field(default=0.0, ge=0, le=1e7)
    """Inferences a second that all replicas together should serve; the report says how many replicas that takes.
    0 asks for none."""
    minimise: Literal["cost", "energy"] = "cost"
    """What to minimise among configurations that meet the objective: cost, by the most inferences a second; or energy,
    by the most inferences for each joule that the GPU draws. energy needs spec.objective.latency and whole GPUs, whose
    energy counters the build can read."""

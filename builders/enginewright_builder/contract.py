"""What operator and builder say to each other: request, progress, outcome, manifest.

Standard library only: the operator imports this module and nothing else of the builder. Every document is JSON with
snake_case keys and a ``version``; a reader refuses a version it does not know rather than guess.

* The operator passes a :class:`BuildRequest` by ConfigMap (``request.json``).
* The builder prints :class:`Progress` as JSON log lines, and ends with an :class:`Outcome`: as the last log line, as
  the container's termination message (shortened to fit, see :meth:`Outcome.to_termination_message`) and, when it
  published, in the store.
* The engine store holds ``<fingerprint>/manifest.json``, a :class:`Manifest`, written last: present means complete.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal, Self

CONTRACT_VERSION = 1
# Raised when a field enters or leaves the hash or changes its default, so that an upgrade rebuilds on purpose only.
FINGERPRINT_VERSION = 3

# Kubernetes keeps at most 4096 bytes of a container's termination message.
TERMINATION_MESSAGE_BYTES = 4096
# To how many characters an error's texts are cut, one after the other, until the message fits; and candidates' reasons.
_TEXT_CUTS = (600, 300, 100)
_REASON_CUTS = (200, 100)

# Before the names of the variables that give a Job or replica the credentials of a store in a bucket.
STORE_VARIABLES = "ENGINEWRIGHT_STORE_"

# The Secret that build Jobs sign engines with, and its entries: one that signs and verifies, one that verifies only.
SIGNING_SECRET = "enginewright-engine-signing"  # noqa: S105  (a name)
SIGNING_KEY, SIGNING_KEY_PREVIOUS = "key", "previous"
# The Secret that monitors sign captured requests with, with the same entries: no serving pod has a key of engines.
CAPTURE_SECRET = "enginewright-capture-signing"  # noqa: S105  (a name)
# In a store, beside the engines: captured requests, by namespace and model. And how data of a spec names the newest.
CAPTURES_FOLDER = "captures"
CAPTURED_SCHEME = "captured://"

MANIFEST_FILE = "manifest.json"
# No more of a manifest is read: one of a thousand files and twenty candidates has a few hundred KB.
MANIFEST_BYTES = 8 << 20
REPORT_FILE = "build-report.json"
REPORT_PAGE = "report.html"
# Of a language model: its files, and how its server is started.
LANGUAGE_MODEL_FOLDER, SERVING_FILE = "model", "serving.json"
# Recorded inputs and the source model's answers, which replicas are tried with. Engines of older builders have none.
SMOKE_FILE = "smoke.json"
# The source model as FP32 ONNX, and how it is to be compared with: what the quality monitor holds live answers against.
# Only engines that were asked for with it have it.
REFERENCE_FOLDER = "reference"
# Traces of what an engine's layers take, one for each engine that serves. Only engines that were asked for with them
# have them.
PROFILE_FOLDER = "profile"
# How the termination message of a server begins that failed its smoke test. smoke.py imports nothing and repeats it.
SMOKE_TEST_FAILED = "smoke test failed: "
# How the termination message of a replica begins whose TensorRT or GPU is not what its engine was built with, or whose
# driver is too old for its image. fits.py imports nothing and repeats them.
MISFITS = ("TensorRTVersionMismatch", "DeviceMismatch", "DriverTooOld")
# The id of the operator's own requests to servers, by which the quality monitor knows them from live ones.
PROBE_REQUEST_ID = "enginewright-probe"
MODEL_REPOSITORY = "model_repository"
# The one model in it. Its config.pbtxt names none, so that the pod that mounts or links the folder chooses the name
# that it is served under: one engine serves for models of many names.
MODEL_FOLDER = "model"

# Libraries of an image that engines are built or run with, by the names that examine.py gives them.
LIB_TENSORRT, LIB_TENSORRT_PYTHON = "TensorRT", "TensorRT's Python bindings"
LIB_ONNXRUNTIME, LIB_TORCH = "ONNX Runtime", "PyTorch"
LIB_CUDA_PYTHON, LIB_NUMPY = "CUDA's Python bindings", "NumPy"
# Makes token ids of texts; the package tokenizers.
LIB_TOKENIZERS = "Tokenizers"
# Serves language models.
LIB_VLLM = "vLLM"
LIBRARIES = (LIB_TENSORRT, LIB_TENSORRT_PYTHON, LIB_ONNXRUNTIME, LIB_TORCH, LIB_CUDA_PYTHON, LIB_NUMPY,
             LIB_TOKENIZERS, LIB_VLLM)

# A replica with a response cache serves its engine, past the cache, as the model's name and this
# (docs/adr/0045-response-cache.md). No object has such a name.
COMPUTED = "_computed"

# A language model's metric, the share of next tokens that are the source's, and the format of its source.
AGREEMENT, CAUSAL_FORMAT = "agreement", "causal"

# Exit codes of the builder; the Job's podFailurePolicy reads them.
EXIT_OK = 0
EXIT_BUG = 1
EXIT_USER = 2
EXIT_TRANSIENT = 3
# Of the verify container: the engine is whole, and a cache could give wrong answers of it.
EXIT_UNCACHEABLE = 4

ErrorFamily = Literal["user", "transient", "bug"]
Verdict = Literal["Shipped", "Passed", "Slower", "AccuracyRefused", "Failed", "Skipped", "Offered", "Fallback"]
# Verdicts of candidates that serve, or would if they might.
CHOSEN: tuple[Verdict, ...] = ("Shipped", "Fallback", "Offered")
# What is served when no candidate may be: nothing new, or the source model itself.
Fallback = Literal["none", "source"]
# When candidates are tried no more: once the time budget is spent, or one that may be served meets the objective.
StopWhen = Literal["budgetSpent", "objectiveMet"]
OBJECTIVE_MET: StopWhen = "objectiveMet"
# Of an objective: what is to be least among configurations that meet it, by the most inferences a second or a joule.
COST, ENERGY = "cost", "energy"
# Seconds for building and measuring where the spec states none, by accelerator: what more would buy on a GPU is little
# (docs/adr/0031-order-of-trials.md), and a second of it is dear; on a CPU the gate alone may take minutes.
BUDGET_SECONDS: Mapping[str, int] = {"cpu": 1800, "gpu": 300}
Bound = Literal["", "compute", "bandwidth", "overhead"]


class ContractError(ValueError):
    """A document that does not follow the contract; the message names the field and the value."""


@dataclass(frozen=True, kw_only=True)
class Normalise:
    """How the source's own input is made of the bytes that clients send: ``(value * scale - mean) / std`` in FP32.
    ``mean`` and ``std`` have one number, or one for each channel. ``channels`` is where clients put these."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    channels: Literal["first", "last"] = "first"


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """How the images that clients send become as large as the source takes them, before they are normalised: resized to
    ``height`` × ``width``, or so that the shorter side has ``shortest_edge`` pixels, by the filter ``resample``; then
    cut to ``crop_height`` × ``crop_width`` around the middle. 0 means not asked for. ``from_source``: this and the
    normalisation stand in the source's ``preprocessor_config.json``; of strings, which are texts, it says that the
    server makes token ids of them by its ``tokenizer.json``."""

    from_source: bool = False
    height: int = 0
    width: int = 0
    shortest_edge: int = 0
    resample: Literal["bilinear", "bicubic"] = "bilinear"
    crop_height: int = 0
    crop_width: int = 0

    @property
    def made(self) -> tuple[int, int]:
        """Height and width of what the source is given."""
        return self.crop_height or self.height, self.crop_width or self.width


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One model input or output. ``shape`` holds sizes, names of free dimensions (``batch``) or ranges (``1..512``).
    With ``normalise`` or ``preprocess`` type and shape are those of what clients send."""

    name: str
    dtype: str
    shape: tuple[int | str, ...] = ()
    normalise: Normalise | None = None
    preprocess: Preprocess | None = None


# Behind the name of an output of which ``topK`` picks: the output that has the numbers of the classes picked.
INDICES = "_indices"


@dataclass(frozen=True, kw_only=True)
class Detection:
    """How a detector's raw outputs mean boxes. ``boxes`` is the output that has them, ``[batch, boxes, 4]``; empty
    where the output of scores has them in front, ``[batch, 4 + classes, boxes]``. ``box_unit`` says what 1 is: the
    whole image, or a pixel of the source's input. With scoring ``softmax`` a box is of its best class alone, else of
    each class by itself. ``threshold`` is what a score must exceed. ``nms_threshold`` is the overlap above which the
    weaker of two boxes of one class is dropped; 0 keeps both. ``target_sizes`` is the input whose height and width
    boxes are answered in; empty leaves them in ``box_unit``. ``from_source``: all but ``threshold`` and
    ``target_sizes`` stands in the source's own processor."""

    boxes: str = ""
    box_format: Literal["cxcywh", "xyxy"] = "cxcywh"
    box_unit: Literal["relative", "pixels"] = "relative"
    scoring: Literal["none", "softmax", "sigmoid"] = "none"
    background: Literal["none", "first", "last"] = "none"
    threshold: float = 0.0
    nms_threshold: float = 0.0
    target_sizes: str = ""
    from_source: bool = False


@dataclass(frozen=True, kw_only=True)
class PostprocessStep:
    """What becomes of the source's ``output`` before clients get it, under the same name. ``mask`` is the input that
    marks tokens, for ``meanPooling``; else empty. ``axis`` is that of classes, for ``argMax``: 0, which is the batch's,
    means the last. ``k`` is how many ``topK`` or ``objectDetection`` picks; 0 lets ``objectDetection`` pick 100, or all
    boxes where there are fewer. ``detection`` is for ``objectDetection``; else None."""

    output: str
    function: Literal["softmax", "sigmoid", "meanPooling", "l2Normalise", "argMax", "topK", "objectDetection"]
    mask: str = ""
    axis: int = 0
    k: int = 0
    detection: Detection | None = None


@dataclass(frozen=True, kw_only=True)
class PadValue:
    """What ``input`` is filled up with."""

    input: str
    value: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Padding:
    """How requests of different length become one batch. ``mask`` is the input that has 1 for what is there and 0 for
    padding; its second size is the length. ``values`` are for inputs that the source's own pad token, or 0, does not
    suit."""

    mask: str
    values: tuple[PadValue, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StateTensor:
    """State that a model takes as input ``input_name`` and gives back as output ``output_name``. A sequence begins with
    zeros."""

    input_name: str
    output_name: str


# Triton's own default.
SEQUENCE_IDLE_US = 1_000_000
CANDIDATE_SEQUENCES = 128


@dataclass(frozen=True, kw_only=True)
class SequenceBatching:
    """The server keeps ``state`` of each sequence of requests. It forgets a sequence after
    ``max_sequence_idle_us`` without a request; each instance of the model has ``max_candidate_sequences`` at once, and
    more wait for one of them to end."""

    state: tuple[StateTensor, ...]
    max_sequence_idle_us: int = SEQUENCE_IDLE_US
    max_candidate_sequences: int = CANDIDATE_SEQUENCES


@dataclass(frozen=True, kw_only=True)
class Interface:
    """``outputs`` are the source's own; ``postprocess`` is applied to them in its order. ``padding`` None:
    as the source suggests. ``sequence_batching`` None: the server keeps no state, and clients send all that the model
    takes."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    postprocess: tuple[PostprocessStep, ...] = ()
    padding: Padding | None = None
    sequence_batching: SequenceBatching | None = None


@dataclass(frozen=True, kw_only=True)
class SourceRequest:
    """``digest`` is ``sha256:<hex>`` or empty when none is stated yet; ``format`` may be ``auto``."""

    uri: str
    format: str = "auto"
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class SignatureRequest:
    """How the source must be signed. ``key_path`` is where the key, or the trusted certificates, are mounted,
    ``key_name`` what the user calls them; ``path`` is the signature's, relative to the source, or empty."""

    key_path: str
    key_name: str
    method: Literal["key", "certificate"] = "key"
    path: str = ""


@dataclass(frozen=True, kw_only=True)
class DataRequest:
    """Calibration or evaluation data; ``samples`` 0 means all of it."""

    uri: str
    samples: int = 0
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class EngineRequest:
    backend: str = "auto"
    precision: str = "auto"
    max_batch_size: int = 32
    build_budget_seconds: int = BUDGET_SECONDS["cpu"]
    calibration: DataRequest | None = None
    fallback: Fallback = "none"
    stop_when: StopWhen = "budgetSpent"
    profile: bool = False


@dataclass(frozen=True, kw_only=True)
class TaskRequest:
    """How answers are held against labels. ``labels`` names the array or field of the evaluation data that has them,
    ``queries`` the one that says which samples are ranked together. ``output`` is the model's output to look at, its
    first one where empty. A candidate passes when the upper confidence bound of what it loses against the source model
    is at most ``tolerance``. ``threshold`` is from where on a number means yes; None: by the source's answers."""

    metric: str
    labels: str = "label"
    tolerance: float = 0.01
    output: str = ""
    queries: str = ""
    threshold: float | None = None


@dataclass(frozen=True, kw_only=True)
class AccuracyRequest:
    """A candidate passes when its metric's lower confidence bound is at least ``1 - tolerance``, over all samples and
    in each group of samples that have the same value of ``group_by``, and when it passes ``task``."""

    metric: str = "cosine"
    tolerance: float = 0.01
    evaluation: DataRequest | None = None
    task: TaskRequest | None = None
    group_by: str = ""


@dataclass(frozen=True, kw_only=True)
class ObjectiveRequest:
    """``latency_ms`` at ``latency_percentile`` and ``throughput`` (inferences a second); 0 means not asked for."""

    latency_percentile: float = 99.0
    latency_ms: float = 0.0
    throughput: float = 0.0
    minimise: str = COST


@dataclass(frozen=True, kw_only=True)
class CheckpointRequest:
    """Other weights of a language model, such as quantised ones, which compete with the source's. ``digest`` is as a
    source's."""

    name: str
    uri: str
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class GenerateRequest:
    """What only language models have. ``ttft_ms`` is the time until the first token, ``tpot_ms`` that for each token
    after it, both at the objective's percentile; 0 means not asked for. ``context_tokens`` is the longest prompt and
    answer together, 0 for what the model was made for. No two of ``checkpoints`` have the same name."""

    ttft_ms: float = 0.0
    tpot_ms: float = 0.0
    context_tokens: int = 0
    checkpoints: tuple[CheckpointRequest, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BatchingRequest:
    """``max_queue_delay_us`` below 0 means: let the sweep choose."""

    mode: str = "auto"
    preferred_batch_sizes: tuple[int, ...] = ()
    max_queue_delay_us: int = -1


@dataclass(frozen=True, kw_only=True)
class InstancesRequest:
    """``count`` 0 means: let the sweep choose."""

    mode: str = "auto"
    count: int = 0


@dataclass(frozen=True, kw_only=True)
class DeviceRequest:
    """The class of device that the engine is built on and for. Memory in bytes, 0 when unknown (CPU)."""

    accelerator: str = "cpu"
    products: tuple[str, ...] = ()
    mig_profile: str = ""
    gpu_count: int = 0
    memory_bytes: int = 0
    architecture: str = "amd64"


@dataclass(frozen=True, kw_only=True)
class RuntimeRequest:
    """``backends`` are the Triton backends of the server image: ``python`` and, where present, ``onnxruntime``,
    ``tensorrt``; ``python_runtimes`` the libraries that its Python backend can import: ``onnxruntime``, ``tensorrt``,
    ``torch``."""

    server_image: str = ""
    backends: tuple[str, ...] = ("python",)
    python_runtimes: tuple[str, ...] = ("onnxruntime",)


@dataclass(frozen=True, kw_only=True)
class BucketRequest:
    """A store in a bucket. ``check_digests``: an engine that is found there is read as a whole before it is taken, for
    a replica has refused it."""

    uri: str
    check_digests: bool = False


@dataclass(frozen=True, kw_only=True)
class CapturesRequest:
    """``keys`` is the folder of the keys that monitors of ``namespace`` sign captured requests with."""

    namespace: str
    keys: str


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """All that a build depends on. ``model_name`` is who asks, for the report; an engine has no name. ``mounts`` maps a
    claim of ``pvc://CLAIM/path`` to where it is mounted. ``keep_reference`` publishes the source model as ONNX beside
    the engine. ``signature`` is asked for of a resolve step, which records the digest that a build is held to.
    ``rebuild`` is any word of who wants another engine than the one that the store has. ``store_path`` is a folder;
    where the store is a ``bucket``, one of this pod alone. ``signing_keys`` is the folder where the Secret of the
    namespace's signing keys is mounted: what the store holds counts only if it bears a signature by one of them. It is
    empty where the store is trusted as it is: a folder of the person's own. ``generate`` is there for language models
    alone, ``captures`` where data are captured requests: ``captured://MODEL`` names the newest whole capture in the
    store, or the one of the digest."""

    model_name: str
    source: SourceRequest
    interface: Interface | None = None
    engine: EngineRequest = field(default_factory=EngineRequest)
    accuracy: AccuracyRequest = field(default_factory=AccuracyRequest)
    objective: ObjectiveRequest = field(default_factory=ObjectiveRequest)
    batching: BatchingRequest = field(default_factory=BatchingRequest)
    instances: InstancesRequest = field(default_factory=InstancesRequest)
    device: DeviceRequest = field(default_factory=DeviceRequest)
    runtime: RuntimeRequest = field(default_factory=RuntimeRequest)
    builder_image: str = ""
    store_path: str = ""
    mounts: Mapping[str, str] = field(default_factory=dict)
    keep_reference: bool = False
    signature: SignatureRequest | None = None
    rebuild: str = ""
    bucket: BucketRequest | None = None
    signing_keys: str = ""
    generate: GenerateRequest | None = None
    captures: CapturesRequest | None = None
    version: int = CONTRACT_VERSION

    def to_json(self) -> str:
        """Without ``bucket``, ``signing_keys`` and ``stop_when`` where they are not asked for: a Job's request is as it
        was before they were known."""
        body = to_plain(self)
        if self.engine.stop_when == EngineRequest.stop_when:
            del body["engine"]["stop_when"]
        return dumps({key: value for key, value in body.items() if value or key not in ("bucket", "signing_keys")})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises :class:`ContractError` on malformed JSON, unknown fields, wrong types or another version."""
        return load(cls, text)

    def fingerprint(self) -> str:
        """64 hex digits over everything that changes the engine or the proof, and nothing else.

        Left out: who asks, who signed the source, where things are mounted, the store and its signing keys, the time
        budget, the URIs (their digests count), and all that concerns only replicas. Where the source may be served for
        lack of time, the budget counts: more of it is another wish; so is to be content once the objective is met. An
        engine with its reference or its profile differs from one without: what is published is never changed, so that
        one without can get none later. Raises :class:`ContractError` while a digest is still unresolved: equal
        fingerprints must mean equal content.
        """
        for name, digest in self._digests().items():
            if not digest:
                raise ContractError(f"{name}: digest is not resolved yet, so there is no fingerprint")
        body = to_plain(self)
        for key in ("model_name", "store_path", "bucket", "mounts", "signature", "signing_keys", "version"):
            del body[key]
        body.pop("captures", None)
        if self.engine.fallback == "none":
            del body["engine"]["build_budget_seconds"], body["engine"]["fallback"]
        if self.engine.stop_when == EngineRequest.stop_when:
            del body["engine"]["stop_when"]
        if not self.keep_reference:
            del body["keep_reference"]
        if not self.rebuild:
            del body["rebuild"]
        _forget_uris(body)
        body["fingerprint_version"] = FINGERPRINT_VERSION
        return hashlib.sha256(canonical(body).encode()).hexdigest()

    def _digests(self) -> dict[str, str]:
        digests = {"source": self.source.digest}
        if self.engine.calibration is not None:
            digests["engine.calibration"] = self.engine.calibration.digest
        if self.accuracy.evaluation is not None:
            digests["accuracy.evaluation"] = self.accuracy.evaluation.digest
        for checkpoint in self.generate.checkpoints if self.generate else ():
            digests[f"generate.checkpoints {checkpoint.name}"] = checkpoint.digest
        return digests


def _forget_uris(request: dict[str, Any]) -> None:
    read = [request["source"], request["engine"]["calibration"], request["accuracy"]["evaluation"],
            *request.get("generate", {}).get("checkpoints", ())]
    for one in read:
        if one is not None:
            del one["uri"]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One log line. ``fraction`` of the whole build, 0 to 1, never decreasing."""

    step: str
    fraction: float
    detail: str = ""
    event: str = "progress"


@dataclass(frozen=True, kw_only=True)
class ErrorReport:
    """What went wrong, for whom, and what to do. ``field`` is a path like ``spec.source.digest``, empty for a bug."""

    family: ErrorFamily
    reason: str
    message: str
    field: str = ""
    value: str = ""
    remedy: str = ""

    def shortened(self, characters: int) -> Self:
        """The same with each text cut to ``characters``."""
        return dataclasses.replace(self, message=_cut(self.message, characters), field=_cut(self.field, characters),
                                   value=_cut(self.value, characters), remedy=_cut(self.remedy, characters))


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


@dataclass(frozen=True, kw_only=True)
class BucketFigure:
    """A candidate's measured figures at one batch: the median in milliseconds with its 95 % interval, and ``batch``
    over the median as inferences a second."""

    batch: int
    p50_ms: float
    low_ms: float
    high_ms: float
    throughput: float


@dataclass(frozen=True, kw_only=True)
class TaskFigure:
    """A metric on labels: the source model's, and a candidate's as ``value``. ``loss`` is what the candidate loses, of
    1, below 0 where it is better; ``loss_high`` its one-sided 95 % upper bound, which may be ``max_loss`` at most."""

    metric: str
    source: float
    value: float
    loss: float
    loss_high: float
    max_loss: float


@dataclass(frozen=True, kw_only=True)
class GroupFigure:
    """Agreement with the source model, and the metric on labels, in one group of samples. None: not asked for, or the
    group has too few samples to prove it; ``too_small`` says the latter."""

    group: str
    samples: int
    accuracy: float | None = None
    accuracy_low: float | None = None
    task: TaskFigure | None = None
    too_small: bool = False


@dataclass(frozen=True, kw_only=True)
class GroupsSummary:
    """How many groups of ``by`` were judged by all that is asked, which were too small for that (the first few names,
    and how many in all), and in which the engine lost most."""

    by: str
    judged: int
    too_small: tuple[str, ...] = ()
    too_small_count: int = 0
    worst: str = ""


@dataclass(frozen=True, kw_only=True)
class TokenFigures:
    """One load on a language model's server, with ``concurrency`` requests in flight. Milliseconds until the first
    token (``ttft``) and for each token after it (``tpot``), at the 50th and 99th percentile of requests.
    ``output_rate`` is tokens a second, ``goodput`` the requests a second that met the objective: all where none was
    asked for."""

    concurrency: int
    ttft_p50_ms: float
    ttft_p99_ms: float
    tpot_p50_ms: float
    tpot_p99_ms: float
    output_rate: float
    goodput: float


@dataclass(frozen=True, kw_only=True)
class TokenWork:
    """What a language model's requests take of one replica at the load that it was measured with. A request had
    ``input_tokens``, those that no prefix cache answered, and ``output_tokens`` on average; each takes
    ``input_seconds`` and ``output_seconds`` of the whole replica."""

    input_tokens: float
    output_tokens: float
    input_seconds: float
    output_seconds: float


@dataclass(frozen=True, kw_only=True)
class CandidateSummary:
    """One measured rung. Milliseconds for one batch of ``batch``, the largest that the objective uses; ``throughput``
    in inferences (batch elements) a second; ``accuracy`` is the metric's value, ``accuracy_low`` its one-sided 95 %
    lower bound; None: not measured. ``name`` tells it apart from others of its backend and precision; ``buckets`` has
    the figures at every batch that it was measured at. ``serves`` names the batch buckets that it ships for, each by
    its largest batch, ascending; empty for one that does not ship. ``build_seconds`` and ``gate_seconds`` are what it
    took of the time budget: to build it, and to hold its answers against the source model's. ``task`` is None where
    none was asked for, or where it was not measured. Of a language model ``tokens`` is its best load, None where it was
    put under none; ``batch``, latencies and throughput, which are of inferences, are 0 and None.
    """

    backend: str
    precision: str
    batch: int
    verdict: Verdict
    reason: str = ""
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    throughput: float | None = None
    accuracy: float | None = None
    accuracy_low: float | None = None
    size_bytes: int | None = None
    name: str = ""
    buckets: tuple[BucketFigure, ...] = ()
    serves: tuple[int, ...] = ()
    build_seconds: float | None = None
    gate_seconds: float | None = None
    task: TaskFigure | None = None
    tokens: TokenFigures | None = None


def requests_needed(percentile: float) -> int:
    """So many that one of them is beyond the percentile: 100 for the 99th, 1,000 for the 99.9th. Of fewer, it is the
    slowest of all by the nearest rank, and says little of the next thousand."""
    return math.ceil(round(100 / (100 - percentile), 6))


@dataclass(frozen=True, kw_only=True)
class BatchTime:
    """What one batch takes from start to answer, median, while every instance has one."""

    batch: int
    p50_ms: float


# The server's own processes, looked at from the build's container; or what the server's container says of itself.
MemorySeen = Literal["processes", "container"]


@dataclass(frozen=True, kw_only=True)
class MemoryFigures:
    """What a server of the finished repository took, in bytes; pages that its processes share count once.

    ``empty_bytes``: ready, without a model. ``loaded_bytes``: the model loaded, warm, and asked. ``peak_bytes``: the
    most from the load on, with ``concurrency`` requests in flight as at the shipped point; ``held_bytes`` is the most
    that the kernel could not take back (anonymous and shared memory, without pages of files): in a container with
    less, the kernel ends the server. ``cores``: processor time of that load over its seconds. ``device_…``: memory of
    its GPUs. ``pinned_bytes``: the most that was in use of Triton's pool of pinned host memory, ``pinned_pool_bytes``.
    None and 0: not known; of a pool and a device also: there is no GPU.
    """

    seen: MemorySeen
    empty_bytes: int
    loaded_bytes: int
    peak_bytes: int
    held_bytes: int
    concurrency: int
    cores: float | None = None
    device_empty_bytes: int | None = None
    device_loaded_bytes: int | None = None
    device_peak_bytes: int | None = None
    pinned_bytes: int | None = None
    pinned_pool_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class EngineSummary:
    """The winner as served by Triton in the shipped configuration (one replica, measured by the sweep).

    ``speedup`` is throughput at equal batch against the source model as it is (eager PyTorch, or the given ONNX).
    ``load_seconds`` is how long Triton took to load the finished repository: the start-up probe is sized by it.
    ``memory_bytes`` is the server's measured resident (CPU) or device (GPU) memory with the model loaded.
    ``throughput_at_objective`` is what one replica sustains within the latency objective (at the knee where there is
    none), None when it sustains nothing within it. ``device_class`` is ``cpu``, a GPU product, or ``product/profile``
    of a MIG slice; a replica takes ``device_count`` of them. ``bound`` says what limits the engine on its device.
    ``fallback`` is the reason for which no candidate may be served, where this is the source model itself instead.
    ``memory`` is of the server alone in a process of its own, None in records of older builders.
    ``service_curve`` is by rising batch. The percentiles are of ``requests`` requests; ``p999_ms`` is None where these
    are fewer than it takes (:func:`requests_needed`). Of the ``mean_ms`` that a request takes, ``pre_ms`` go by before
    the model and ``post_ms`` after it; all three are None where neither was measured apart from the model. None, empty
    and 0: not measured.
    """

    backend: str
    precision: str
    triton_backend: str
    size_bytes: int
    speedup: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    throughput: float
    accuracy: float
    accuracy_low: float
    device: str
    runtime_version: str
    load_seconds: float
    memory_bytes: int = 0
    objective_met: bool = True
    evaluation: str = "held-out"  # or "synthetic" when the user gave no evaluation data
    throughput_at_objective: float | None = None
    device_class: str = ""
    device_count: int = 1
    inferences_per_joule: float | None = None
    gpu_utilisation: float | None = None  # 0 to 1, under the load of the shipped point
    power_watts: float | None = None  # that the device drew then, idle power included
    bound: Bound = ""
    fallback: str = ""
    service_curve: tuple[BatchTime, ...] = ()
    task: TaskFigure | None = None
    groups: GroupsSummary | None = None
    p999_ms: float | None = None
    requests: int = 0
    mean_ms: float | None = None
    pre_ms: float | None = None
    post_ms: float | None = None
    memory: MemoryFigures | None = None


@dataclass(frozen=True, kw_only=True)
class GenerateSummary:
    """The configuration of a language model's server that was published, as it was measured: one replica of
    ``device_count`` devices. :data:`SERVING_FILE` says how it is started.

    ``accuracy`` is the share of next tokens that are the unquantised model's, ``accuracy_low`` 1 less the upper 95 %
    bound of what is lost beyond the noise floor, ``divergence_high`` that bound of the divergence in bits. ``gain`` is
    against the unquantised model by the server's own settings: goodput, or tokens a second where no objective was asked
    for. ``load_seconds`` is how long the server took until it was ready. ``memory_bytes`` 0: unknown. ``words`` are of
    the server's command line, after the model's folder; ``environment`` has the variables that it was proven with.
    ``work`` is of the load of ``tokens``; None in records of older builders. ``checkpoint`` names that of the
    request whose files were published; empty where they are the source's."""

    name: str
    precision: str
    server: str
    server_version: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    gain: float
    tokens: TokenFigures
    objective_met: bool
    accuracy: float
    accuracy_low: float
    divergence_high: float
    prompts: int
    device: str
    device_class: str
    device_count: int
    load_seconds: float
    size_bytes: int
    memory_bytes: int = 0
    work: TokenWork | None = None
    checkpoint: str = ""


@dataclass(frozen=True, kw_only=True)
class ServingChoice:
    """The chosen ``config.pbtxt`` settings."""

    max_batch_size: int
    preferred_batch_sizes: tuple[int, ...] = ()
    max_queue_delay_us: int = 0
    instance_count: int = 1


@dataclass(frozen=True, kw_only=True)
class QueuePolicy:
    """Of requests that wait in one queue: so many at most, so long at most, and what becomes of those that wait longer.
    0: no limit."""

    max_queue_size: int = 0
    timeout_us: int = 0
    timeout_action: Literal["reject", "continue"] = "reject"
    allow_timeout_override: bool = False


@dataclass(frozen=True, kw_only=True)
class QueueLevel:
    """The policy of one priority level, 1 the highest."""

    level: int
    policy: QueuePolicy


@dataclass(frozen=True, kw_only=True)
class QueueRequest:
    """What becomes of requests that wait in a replica. It is no part of an engine: replicas add it to the
    ``config.pbtxt`` that the engine was published with. Without ``priority_levels`` there is one queue."""

    policy: QueuePolicy = field(default_factory=QueuePolicy)
    priority_levels: int = 0
    default_priority_level: int = 0
    levels: tuple[QueueLevel, ...] = ()

    def to_json(self) -> str:
        return dumps(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises :class:`ContractError` on malformed JSON, unknown fields or wrong types."""
        return load(cls, text)


@dataclass(frozen=True, kw_only=True)
class ResolvedSource:
    """What the resolve step found: content digests and what the source is, before any device is used.
    ``checkpoint_digests`` are by the checkpoints' names."""

    digest: str
    format: str
    size_bytes: int
    evaluation_digest: str = ""
    calibration_digest: str = ""
    # Not hashed, as no mapping is: equality reads it.
    checkpoint_digests: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, kw_only=True)
class ImageFacts:
    """What a container image has, as its own ``python3`` found it in a pod without a device. ``backends`` are Triton's,
    ``libraries`` maps names of :data:`LIBRARIES` to versions. ``cuda`` is the least CUDA (``12.6``) that the image asks
    of a node's driver, empty where it asks for none; a driver of one of the branches ``drivers`` (``535``) does, too.
    ``caches`` are Triton's caches, such as ``local``; None where that was not asked.
    """

    architecture: str = ""
    python: str = ""
    tritonserver: str = ""
    backends: tuple[str, ...] = ()
    libraries: Mapping[str, str] = field(default_factory=dict)
    cuda: str = ""
    drivers: tuple[str, ...] = ()
    caches: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Of the two images that an engine depends on: the one that serves it, and the one that builds it."""

    server: ImageFacts
    builder: ImageFacts


@dataclass(frozen=True, kw_only=True)
class ShardSummary:
    """Of shard ``shard`` of ``shards``: how many ``rows`` it has, and how many the whole data set. ``answered`` are
    those that the program which ended had to ask for, the others had answers before it began."""

    shard: int
    shards: int
    rows: int
    total: int
    answered: int
    seconds: float = 0.0


def shard_range(total: int, shards: int, shard: int) -> range:
    """The rows of shard ``shard``: one after the other, and of almost the same number."""
    return range(total * shard // shards, total * (shard + 1) // shards)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a resolve, ask, build or batch step ended. ``facts`` are those of an ask step, ``shard`` is of a batch step.
    A build of a language model has ``generate`` in place of ``engine`` and ``serving``."""

    kind: Literal["resolve", "build", "ask", "batch"]
    ok: bool
    error: ErrorReport | None = None
    source: ResolvedSource | None = None
    fingerprint: str = ""
    manifest_digest: str = ""
    cache_hit: bool = False
    build_seconds: float = 0.0
    built: str = ""
    engine: EngineSummary | None = None
    serving: ServingChoice | None = None
    candidates: tuple[CandidateSummary, ...] = ()
    facts: Facts | None = None
    generate: GenerateSummary | None = None
    shard: ShardSummary | None = None
    event: str = "outcome"
    version: int = CONTRACT_VERSION

    def to_json(self) -> str:
        return dumps(_outcome(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises :class:`ContractError`."""
        return load(cls, text)

    def to_termination_message(self, limit: int = TERMINATION_MESSAGE_BYTES) -> str:
        """JSON of at most ``limit`` bytes: the candidates' buckets and tokens are dropped, then their reasons cut, then
        candidates dropped from the end, those that ship or are offered last, then the service curve is dropped, then
        the error's texts are cut. What candidates were not measured for is left out. Raises :class:`ContractError` if
        even that does not fit."""
        outcome, cuts, reasons = self, list(_TEXT_CUTS), list(_REASON_CUTS)
        while len(text := _brief(outcome).encode()) > limit:
            if any(one.buckets or one.tokens for one in outcome.candidates):
                outcome = dataclasses.replace(outcome, candidates=tuple(
                    dataclasses.replace(one, buckets=(), tokens=None) for one in outcome.candidates))
            elif reasons:
                longest = reasons.pop(0)
                outcome = dataclasses.replace(outcome, candidates=tuple(
                    dataclasses.replace(one, reason=_cut(one.reason, longest)) for one in outcome.candidates))
            elif len(outcome.candidates) > 1:
                outcome = dataclasses.replace(
                    outcome, candidates=_without_the_least(outcome.candidates, len(text) - limit))
            elif outcome.engine and outcome.engine.service_curve:
                outcome = dataclasses.replace(outcome, engine=dataclasses.replace(outcome.engine, service_curve=()))
            elif outcome.error and cuts:
                outcome = dataclasses.replace(outcome, error=outcome.error.shortened(cuts.pop(0)))
            else:
                raise ContractError(f"outcome of {len(text)} bytes cannot be shortened to {limit}")
        return text.decode()


def _outcome(outcome: Outcome) -> dict[str, Any]:
    """Without ``facts`` where there are none: a manifest's signature is over what was written before they were
    known."""
    body: dict[str, Any] = to_plain(outcome)
    if outcome.facts is None:
        del body["facts"]
    return body


def _brief(outcome: Outcome) -> str:
    """Its JSON without the fields of candidates that are empty, which a reader takes to be absent."""
    body = _outcome(outcome)
    body["candidates"] = [_measured(one) for one in body["candidates"]]
    return dumps(body)


def _measured(candidate: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in candidate.items() if value not in (None, "", [])}


def _without_the_least(candidates: tuple[CandidateSummary, ...], excess: int) -> tuple[CandidateSummary, ...]:
    """Without the last one that neither ships nor is offered, or else without the last; and without as many as have to
    go for ``excess`` bytes even were each as long as the longest."""
    others = [index for index, one in enumerate(candidates) if one.verdict not in CHOSEN] or range(len(candidates))
    longest = max(len(dumps(_measured(to_plain(one))).encode()) for one in candidates) + len(", ")
    count = max(1, min(excess // longest, len(candidates) - 1))
    dropped = set(others[-count:])
    return tuple(one for index, one in enumerate(candidates) if index not in dropped)


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    sha256: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class ManifestSignature:
    """``key`` names the key by the first 16 hex digits of its SHA-256, ``mac`` is 64 hex digits."""

    key: str
    mac: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """``files`` maps paths relative to the engine's folder, ``/`` separated, to their content. The manifest itself
    is not in it. ``signature`` is of the build Job that published it, over :meth:`to_json` without the signature."""

    fingerprint: str
    created: str
    files: Mapping[str, FileEntry]
    outcome: Outcome
    signature: ManifestSignature | None = None
    version: int = CONTRACT_VERSION

    def to_json(self) -> str:
        """Without ``signature`` where there is none: as it was before manifests were signed."""
        body = {**to_plain(self), "outcome": _outcome(self.outcome)}
        if self.signature is None:
            del body["signature"]
        return dumps(body, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises :class:`ContractError`, also for names of files that do not lie below the engine's folder, and for
        what cannot be written as JSON again."""
        manifest = load(cls, text)
        _check_files(manifest.files)
        try:
            manifest.to_json().encode()
        except ValueError as error:
            raise ContractError(f"Manifest: holds what no JSON can: {error}") from error
        return manifest


def _check_files(files: Mapping[str, FileEntry]) -> None:
    """A manifest is read before it is trusted, and its names become paths and keys of a bucket."""
    for name, entry in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ContractError(f"Manifest.files: {name[:100]!r} leads out of its folder")
        if str(path) != name or not name.isprintable() or any(len(part.encode()) > 255 for part in path.parts):
            raise ContractError(f"Manifest.files: {name[:100]!r} is not a file name that a build writes")
        if name == MANIFEST_FILE or any(str(folder) in files for folder in path.parents):
            raise ContractError(f"Manifest.files: {name[:100]!r} lies where another file is")
        if not re.fullmatch(r"[0-9a-f]{64}", entry.sha256) or entry.bytes < 0:
            raise ContractError(f"Manifest.files: {name[:100]!r} has no SHA-256 of 64 hex digits, or no size")


@dataclass(frozen=True, kw_only=True)
class QualityReport:
    """What a replica's quality monitor says of live traffic. The newest ``samples`` requests are in its window, their
    scores by the accuracy gate's ``metric`` (0 to 1, 1 for equal answers) add up to ``total``; the engine was proven to
    lose at most ``tolerance``. ``requests`` were sampled since it began, the newest of the window ``age_seconds`` ago.
    ``problem`` says why nothing can be measured now; empty where it can.

    Of the sampled requests ``mirrored`` were answered by the candidate of a rollout, too, by its replicas at the
    addresses ``targets``; the scores of its answers against this replica's add up to ``agreed``.

    Where requests are captured, the newest capture of the model has ``captured`` samples of requests between
    ``captured_since`` and ``captured_until``, seconds since the epoch, and ``capture_digest``; ``capture_problem`` says
    why none can be written now. What is not asked for its JSON leaves out: operators that do not know a field refuse
    it."""

    metric: str
    tolerance: float
    samples: int = 0
    total: float = 0.0
    requests: int = 0
    age_seconds: float = 0.0
    problem: str = ""
    mirrored: int = 0
    agreed: float = 0.0
    targets: tuple[str, ...] = ()
    captured: int = 0
    captured_since: float = 0.0
    captured_until: float = 0.0
    capture_digest: str = ""
    capture_problem: str = ""
    version: int = CONTRACT_VERSION

    def to_json(self) -> str:
        body = to_plain(self)
        return dumps({key: value for key, value in body.items() if value or key not in _WHERE_ASKED_FOR})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises :class:`ContractError`."""
        return load(cls, text)


_WHERE_ASKED_FOR = ("mirrored", "agreed", "targets", "captured", "captured_since", "captured_until", "capture_digest",
                    "capture_problem")


# Left out of documents while they are empty: these, and fingerprints, are then as they were before the field was known.
_LATE: Mapping[str, tuple[str, ...]] = {
    "TensorSpec": ("normalise", "preprocess"), "Interface": ("postprocess", "padding", "sequence_batching"),
    "PostprocessStep": ("axis", "k", "detection"), "AccuracyRequest": ("task", "group_by"),
    "BuildRequest": ("generate", "captures"),
    "CandidateSummary": ("task", "tokens"), "Outcome": ("generate", "shard"),
    "EngineSummary": ("task", "groups", "p999_ms", "requests", "mean_ms", "pre_ms", "post_ms"),
    "GenerateSummary": ("work", "checkpoint"),
    "GenerateRequest": ("checkpoints",), "EngineRequest": ("profile",), "ResolvedSource": ("checkpoint_digests",),
}


def to_plain(value: Any) -> Any:
    """Dataclasses to JSON values: tuples become lists, None stays, but for fields that came late."""
    if value is None or isinstance(value, str | int | float):
        return value
    kind: Any = type(value)
    if names := _names(kind):
        late = _LATE.get(kind.__name__, ())
        return {name: to_plain(getattr(value, name)) for name in names if name not in late or getattr(value, name)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    """Of a dataclass's fields; none for any other class."""
    return tuple(entry.name for entry in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical(value: Any) -> str:
    """One text for one value: sorted keys, no spaces, no NaN."""
    return _CANONICAL.encode(value)


def dumps(document: Any, indent: int | None = None) -> str:
    return json.dumps(to_plain(document), ensure_ascii=False, allow_nan=False, indent=indent,
                      separators=(",", ":") if indent is None else None)


T = typing.TypeVar("T")


def load(kind: type[T], text: str) -> T:
    """Parses ``text`` into dataclass ``kind``, strictly. Raises :class:`ContractError`."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # also for numbers of many digits, and lists within lists
        raise ContractError(f"{kind.__name__}: not JSON: {error}") from error
    version = value.get("version", CONTRACT_VERSION) if isinstance(value, dict) else None
    if version != CONTRACT_VERSION:
        raise ContractError(f"{kind.__name__}.version: got {version!r}, this program speaks {CONTRACT_VERSION}")
    return typing.cast(T, _read(kind, value, kind.__name__))


def _read(kind: Any, value: Any, path: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(typing.cast(type, kind), value, path)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _read_union(args, value, path)
    if origin is Literal:
        if value not in args:
            raise ContractError(f"{path}: got {value!r}, expected one of {', '.join(map(repr, args))}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ContractError(f"{path}: expected a list, got {value!r}")
        return tuple(_read(args[0], item, f"{path}[{index}]") for index, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise ContractError(f"{path}: expected an object, got {value!r}")
        return {key: _read(args[1], item, f"{path}.{key}") for key, item in value.items()}
    return _read_scalar(kind, value, path)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """The type of each field of a dataclass. Python evaluates the annotations on each call, which takes longer than to
    read the document."""
    hints = typing.get_type_hints(kind)
    return {entry.name: hints[entry.name] for entry in dataclasses.fields(kind)}


def _read_union(args: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and type(None) in args:
        return None
    errors = []
    for option in args:
        if option is type(None):
            continue
        try:
            return _read(option, value, path)
        except ContractError as error:
            errors.append(str(error))
    raise ContractError(errors[0] if len(errors) == 1 else f"{path}: {value!r} fits none of the allowed types")


def _read_scalar(kind: Any, value: Any, path: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ContractError(f"{path}: expected {kind.__name__}, got {value!r}")
    return value


def _read_dataclass(kind: type, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise ContractError(f"{path}: expected an object, got {value!r}")
    known = _hints(kind)
    if unknown := sorted(set(value) - set(known)):
        raise ContractError(f"{path}: unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}")
    read = {name: _read(hint, value[name], f"{path}.{name}") for name, hint in known.items() if name in value}
    try:
        return kind(**read)
    except TypeError as error:
        raise ContractError(f"{path}: {error}") from error

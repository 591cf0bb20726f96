"""What the operator asks of a build: the request, and its fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from enginewright_builder.contract.documents import CONTRACT_VERSION, ContractError, canonical, dumps, load, to_plain
from enginewright_builder.contract.interface import Interface
from enginewright_builder.contract.names import BUDGET_SECONDS, COST, Fallback, StopWhen

# Raised when a field enters or leaves the hash or changes its default, so that an upgrade rebuilds on purpose only.
FINGERPRINT_VERSION = 3


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
    """Weights beside a language model's own: others of the same model, such as quantised ones, or those of a draft.
    ``digest`` is as a source's."""

    name: str
    uri: str
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class GenerateRequest:
    """What only language models have. ``ttft_ms`` is the time until the first token, ``tpot_ms`` that for each token
    after it, both at the objective's percentile; 0 means not asked for. ``context_tokens`` is the longest prompt and
    answer together, 0 for what the model was made for. ``checkpoints`` compete with the source, ``drafts`` propose
    tokens to it. No two of either have the same name."""

    ttft_ms: float = 0.0
    tpot_ms: float = 0.0
    context_tokens: int = 0
    checkpoints: tuple[CheckpointRequest, ...] = ()
    drafts: tuple[CheckpointRequest, ...] = ()


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
    store, or the one of the digest. ``steps_socket`` leads to the container that runs functions of the source's folder;
    empty where a child of the build does, which may read what the build may."""

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
    steps_socket: str = ""
    version: int = CONTRACT_VERSION

    def to_json(self) -> str:
        """Without ``bucket``, ``signing_keys``, ``steps_socket`` and ``stop_when`` where they are not asked for: a
        Job's request is as it was before they were known."""
        body = to_plain(self)
        if self.engine.stop_when == EngineRequest.stop_when:
            del body["engine"]["stop_when"]
        optional = ("bucket", "signing_keys", "steps_socket")
        return dumps({key: value for key, value in body.items() if value or key not in optional})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises :class:`ContractError` on malformed JSON, unknown fields, wrong types or another version."""
        return load(cls, text)

    def fingerprint(self) -> str:
        """64 hex digits over everything that changes the engine or the proof, and nothing else.

        Left out: who asks, who signed the source, where things are mounted, the store and its signing keys, where
        functions run, the time budget, the URIs (their digests count), and all that concerns only replicas. Where the
        source may be served for lack of time, the budget counts: more of it is another wish; so is to be content once
        the objective is met. An engine with its reference or its profile differs from one without: what is published
        is never changed, so that one without can get none later. Raises :class:`ContractError` while a digest is still
        unresolved: equal fingerprints must mean equal content.
        """
        for name, digest in self._digests().items():
            if not digest:
                raise ContractError(f"{name}: digest is not resolved yet, so there is no fingerprint")
        body = to_plain(self)
        for key in ("model_name", "store_path", "bucket", "mounts", "signature", "signing_keys", "steps_socket",
                    "version"):
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
        for draft in self.generate.drafts if self.generate else ():
            digests[f"generate.drafts {draft.name}"] = draft.digest
        return digests


def _forget_uris(request: dict[str, Any]) -> None:
    read = [request["source"], request["engine"]["calibration"], request["accuracy"]["evaluation"],
            *request.get("generate", {}).get("checkpoints", ()), *request.get("generate", {}).get("drafts", ())]
    for one in read:
        if one is not None:
            del one["uri"]

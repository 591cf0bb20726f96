"""What a spec may say of each task. A field that says nothing of the task, or does not work for it yet, is refused by
name: to ignore it would be a promise that is not kept.

The table makes the CEL rules of the CRD and the check in Python alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pydantic.alias_generators import to_snake

from enginewright.core.problems import Problem
from enginewright.core.spec.model import Spec
from enginewright.core.spec.parse import show
from enginewright_builder.contract import AGREEMENT, CAPTURED_SCHEME

INFER, GENERATE = "infer", "generate"
Kind = Literal["object", "list", "value"]
# In place of a task: of an object with spec.batch.
BATCH = "batch"


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """A field that ``task`` has no use for. ``path`` is below ``spec``. Of a value, those in ``kept`` may stand: a
    default counts as given, as the apiserver writes it. ``why`` is what the field's name begins a sentence with."""

    path: str
    why: str
    remedy: str = "remove it"
    kind: Kind = "object"
    kept: tuple[str | int | float | bool, ...] = ()
    task: str = GENERATE


_TENSORS = "describes tensors, and a language model reads and writes text"
_BATCHES = "applies to Triton's batches; vLLM forms its own batch at each step"
_CANDIDATES = "applies to engines for tensors; the build of a language model tries the server's options"
_TOKENS = "measures whole answers, and a language model answers token by token"
_LABELS = "needs labelled samples; a language model is evaluated on prompts"


def _value(path: str, why: str, *kept: str | float | bool, remedy: str = "") -> Foreign:
    return Foreign(path=path, why=why, kind="value", kept=kept, remedy=remedy or f"remove it, or write {kept[0]}")


FOREIGN: tuple[Foreign, ...] = (
    _value("source.format", "applies to models for tensors; a language model is a Hugging Face folder", "auto"),
    Foreign(path="interface", why=_TENSORS),
    Foreign(path="batching.preferredBatchSizes", why=_BATCHES, kind="list"),
    Foreign(path="batching.maxQueueDelayMicroseconds", why=_BATCHES),
    Foreign(path="instances.count", why="applies to Triton's model instances; vLLM runs one instance of a model"),
    Foreign(path="engine.calibration", why=_CANDIDATES),
    _value("engine.backend", _CANDIDATES, "auto"),
    _value("engine.precision", _CANDIDATES, "auto"),
    _value("engine.maxBatchSize", _BATCHES, 32),
    _value("engine.fallback", _CANDIDATES, "none"),
    _value("engine.profile", "traces the layers of engines for tensors, and vLLM runs a language model", False,
           remedy="remove it"),
    Foreign(path="objective.latency", why=_TOKENS, remedy="write spec.objective.tokens in its place"),
    _value("objective.throughput", _TOKENS, 0.0, remedy="remove it"),
    _value("objective.minimise", "needs a latency of whole answers, which a language model does not have", "cost"),
    # The default counts as given, so it means agreement here.
    _value("accuracy.metric", "compares tensors; a language model is compared with the source by its next tokens",
           AGREEMENT, "cosine"),
    Foreign(path="accuracy.task", why=_LABELS),
    _value("accuracy.groupBy", _LABELS, "", remedy="remove it"),
    Foreign(path="serving.queue", why="applies to Triton's queue; vLLM has a queue of its own"),
    Foreign(path="serving.responseCache", why="keeps answers in tensors, and vLLM has a cache of prompts of its own"),
    Foreign(path="quality.capture", why="keeps tensors of live requests, and a language model reads text"),
    Foreign(path="placement.classes", why="does not work for language models yet",
            remedy="write accelerator and gpu, and an object for each class"),
    _value("rollout.analysis.mirror", "sends tensors on, and a language model reads text", False, remedy="remove it"),
    _value("rollout.requireObjective", "applies to spec.objective.latency, which a language model does not have", False,
           remedy="remove it"),
    Foreign(path="rollout.gateway.grpcHostnames", why="applies to gRPC, which vLLM does not speak", kind="list",
            remedy="remove it, and let clients use hostnames"),
    Foreign(path="objective.tokens", why="applies to language models", task=INFER,
            remedy="write spec.objective.latency in its place, or task generate"),
    Foreign(path="engine.contextTokens", why="applies to language models", task=INFER,
            remedy="remove it, or write task generate"),
    Foreign(path="engine.checkpoints", why="applies to language models", task=INFER, kind="list",
            remedy="remove it, or write task generate"),
    Foreign(path="engine.drafts", why="applies to language models", task=INFER, kind="list",
            remedy="remove it, or write task generate"),
)


_ALONE = "applies to online requests; spec.batch processes all rows at once"
_NO_REPLICAS = "applies to replicas that serve; spec.batch starts none"

# What an object with spec.batch has no use for.
FOREIGN_TO_BATCH: tuple[Foreign, ...] = (
    _value("task", "applies to language models, which spec.batch does not run yet", INFER),
    Foreign(path="objective.latency", why=_ALONE, task=BATCH),
    _value("objective.throughput", _ALONE, 0.0, remedy="remove it, and raise spec.batch.parallelism"),
    _value("objective.minimise", _ALONE, "cost"),
    Foreign(path="serving.queue", why=_ALONE, task=BATCH),
    Foreign(path="replicas", why=_NO_REPLICAS, remedy="remove it, and write spec.batch.parallelism", task=BATCH),
    Foreign(path="autoscaling", why=_NO_REPLICAS, remedy="remove it, and write spec.batch.parallelism", task=BATCH),
    Foreign(path="quality", why=_NO_REPLICAS, task=BATCH),
    Foreign(path="placement.classes", why="makes a fleet that serves, and spec.batch starts no replicas",
            remedy="write accelerator and gpu", task=BATCH),
    _value("rollout.strategy", _NO_REPLICAS, "Canary"),
    Foreign(path="rollout.steps", why=_NO_REPLICAS, kind="list", task=BATCH),
    Foreign(path="rollout.gateway", why=_NO_REPLICAS, task=BATCH),
    _value("rollout.autoPromote", _NO_REPLICAS, True, remedy="remove it"),
    _value("rollout.analysis.mirror", _NO_REPLICAS, False, remedy="remove it"),
    _value("rollout.requireObjective", _NO_REPLICAS, False, remedy="remove it"),
    _value("rollout.requireThroughput", _NO_REPLICAS, False, remedy="remove it"),
)


_NO_SEQUENCES = "is not done for sequences yet"
_EACH_REQUEST = "needs stateless requests; in a sequence the same request can have different answers"
# In place of a task: of an object whose server keeps state.
SEQUENCES = "sequences"

# What an object with spec.interface.sequenceBatching has no use for.
FOREIGN_TO_SEQUENCES: tuple[Foreign, ...] = (
    _value("source.format", "names a format whose state the server cannot keep yet", "auto", "onnx",
           remedy="export the model to ONNX, or let clients carry the state"),
    _value("engine.backend", "cannot run single steps of a sequence yet", "auto", "onnxruntime",
           remedy="write auto or onnxruntime"),
    Foreign(path="batch", why="needs rows that do not depend on each other", task=SEQUENCES),
    Foreign(path="serving.queue", why="applies to Triton's dynamic batcher; sequences use the sequence batcher",
            task=SEQUENCES),
    Foreign(path="serving.responseCache", why=_EACH_REQUEST, task=SEQUENCES),
    Foreign(path="quality", why=_EACH_REQUEST, task=SEQUENCES),
    Foreign(path="accuracy.task", why="needs a label for each answer; here a sample is a whole sequence",
            task=SEQUENCES),
    Foreign(path="interface.postprocess", why=_NO_SEQUENCES, kind="list",
            remedy="remove it, and let the source or clients do that", task=SEQUENCES),
    Foreign(path="interface.padding", why=_NO_SEQUENCES, task=SEQUENCES),
    Foreign(path="interface.pythonSteps", why=_NO_SEQUENCES, task=SEQUENCES),
    Foreign(path="rollout.gateway", why="may send each request to a different replica; a sequence must stay with one",
            remedy="remove it, and let clients keep a connection to the model's Service", task=SEQUENCES),
    Foreign(path="placement.classes", why=_NO_SEQUENCES, remedy="write accelerator and gpu, and an object for each "
                                                               "class", task=SEQUENCES),
)


def generates(spec: Spec) -> bool:
    """Whether it is of a language model."""
    return spec.task == GENERATE


def task_problems(spec: Spec) -> Iterator[Problem]:
    """What ``spec`` says that its task has no use for, and what the task needs."""
    for one in FOREIGN:
        value = _at(spec, one.path)
        if one.task == spec.task and _given(one, value):
            yield _problem(f"spec.{one.path}", value, f"{one.why} (task {one.task})", one.remedy)
    if spec.task == INFER and spec.accuracy.metric == AGREEMENT:
        yield _problem("spec.accuracy.metric", AGREEMENT, "compares next tokens, which only a language model has",
                       "write cosine or another metric, or task generate")
    evaluation = spec.accuracy.evaluation
    if generates(spec) and evaluation is None:
        yield _problem("spec.accuracy.evaluation", None, "is required with task generate: prompts cannot be made up",
                       "add its uri, a .jsonl of prompts like production's")
    if generates(spec) and evaluation is not None and evaluation.uri.startswith(CAPTURED_SCHEME):
        yield _problem("spec.accuracy.evaluation.uri", evaluation.uri, "names captured tensors, and a language model "
                       "reads text", "name a .jsonl of prompts like production's")


def batch_problems(spec: Spec) -> Iterator[Problem]:
    """What ``spec`` says beside spec.batch that it has no use for."""
    if spec.batch is None:
        return
    for one in FOREIGN_TO_BATCH:
        if _given(one, value := _at(spec, one.path)):
            yield _problem(f"spec.{one.path}", value, one.why, one.remedy)
    if spec.batch.input.uri.rstrip("/") == spec.batch.output.uri.rstrip("/"):
        yield _problem("spec.batch.output.uri", spec.batch.output.uri, "is the input", "name a folder of its own")


def sequence_problems(spec: Spec) -> Iterator[Problem]:
    """What ``spec`` says beside spec.interface.sequenceBatching that it has no use for."""
    if spec.interface is None or spec.interface.sequence_batching is None:
        return
    for one in FOREIGN_TO_SEQUENCES:
        if _given(one, value := _at(spec, one.path)):
            yield _problem(f"spec.{one.path}", value, one.why, one.remedy)
    if spec.autoscaling is not None and spec.autoscaling.min_replicas == 0:
        yield _problem("spec.autoscaling.minReplicas", 0, "would end sequences that are merely idle", "write 1 or more")
    most = spec.interface.sequence_batching.max_candidate_sequences
    if too_large := [size for size in spec.batching.preferred_batch_sizes if size > most]:
        yield _problem("spec.batching.preferredBatchSizes", too_large, "exceeds spec.interface.sequenceBatching."
                       f"maxCandidateSequences {most}, and a run has one step of each", "raise that, or lower these")


def _at(spec: Spec, path: str) -> Any:
    """None where it or a block above it is absent."""
    value: Any = spec
    for step in path.split("."):
        value = None if value is None else getattr(value, to_snake(step))
    return value


def _given(one: Foreign, value: Any) -> bool:
    if one.kind == "list":
        return bool(value)
    return value is not None and not (one.kind == "value" and value in one.kept)


def _problem(field: str, value: Any, message: str, remedy: str) -> Problem:
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    elif isinstance(value, tuple):
        value = [one.model_dump(mode="json", by_alias=True, exclude_unset=True) if hasattr(one, "model_dump") else one
                 for one in value]
    return Problem(field=field, value=show(value), message=message, remedy=remedy)

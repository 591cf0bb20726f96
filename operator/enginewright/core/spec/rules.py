"""Rules between fields in CEL, so that the apiserver refuses what they forbid before the operator ever sees it.

Each stands at the lowest object that holds all fields it reads. :mod:`enginewright.core.spec.validate` says the same in
Python, for objects that are older than a rule; a test holds both against the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from enginewright.core.promql import RESERVED, RESERVED_PATTERN
from enginewright.core.spec.base import MAX_OBJECT_NAME
from enginewright.core.spec.engine import CPU_PRECISIONS
from enginewright.core.spec.quality import CAPTURES_KEPT
from enginewright.core.spec.renames import RENAMES, uses
from enginewright.core.spec.tasks import FOREIGN, FOREIGN_TO_BATCH, FOREIGN_TO_SEQUENCES, GENERATE, INFER, Foreign
from enginewright_builder.contract import CAPTURED_SCHEME


@dataclass(frozen=True, kw_only=True)
class Rule:
    """``message`` is text, or CEL that makes one when ``expression`` is true. ``field`` is where the fault is shown."""

    rule: str
    message: str
    expression: bool = False
    field: str = ""

    def as_json(self) -> dict[str, Any]:
        message = {"messageExpression": self.message} if self.expression else {"message": self.message}
        return {"rule": self.rule, **message, **({"fieldPath": self.field} if self.field else {})}


# An object from before a rename is held to no more than it was.
_PRODUCT_FOR_AUTO = ("!has(self.mig) || self.mig.profile != 'auto' || "
                     "(has(self.gpu) && (has(self.gpu.product) || has(self.gpu.products)))")

# Old names of fields stay in objects that have them, and are added to none.
_OLD_NAMES = tuple(
    Rule(rule=f"!({uses(one, 'self')}) || ({uses(one, 'oldSelf')})",
         message=f"{one.old_path} {one.fate}; {'write that' if one.new else 'remove it'}, or run enginewright migrate")
    for one in RENAMES)


def _foreign(one: Foreign) -> Rule:
    """As ``tasks.py`` says."""
    return _without(one, f"self.task != '{one.task}'", f" (task {one.task})")


def _foreign_to_batch(one: Foreign) -> Rule:
    return _without(one, "!has(self.batch)", "")


def _foreign_to_sequences(one: Foreign) -> Rule:
    return _without(one, "!has(self.interface) || !has(self.interface.sequenceBatching)", "")


def _without(one: Foreign, elsewhere: str, who: str) -> Rule:
    """The field may stand where ``elsewhere`` holds. The value is named where it is a word: the apiserver bounds no
    text that a number makes."""
    steps = one.path.split(".")
    at = "self." + one.path
    given = [f"has(self.{'.'.join(steps[:number])})" for number in range(1, len(steps) + 1)]
    if one.kind == "list":
        given.append(f"{at}.size() > 0")
    elif one.kind == "value":
        given.append(f"!({at} in [{', '.join(map(_literal, one.kept))}])")
    spoken = one.kind == "value" and isinstance(one.kept[0], str)
    rest = f"{one.why}{who}; {one.remedy}"
    message = f"'spec.{one.path} ' + {at} + {_literal(' ' + rest)}" if spoken else f"spec.{one.path} {rest}"
    return Rule(rule=f"{elsewhere} || !({' && '.join(given)})", message=message, expression=spoken,
                field=f".{one.path}")


def _literal(value: object) -> str:
    """In CEL. Texts here are our own."""
    return "'" + value.replace("'", r"\'") + "'" if isinstance(value, str) else str(value).lower()


_TASKS = (
    Rule(rule="self.task == oldSelf.task",
         message="spec.task cannot be changed: another server with other ports would have to take over; create another "
                 "object, and delete this one when that one serves", field=".task"),
    *map(_foreign, FOREIGN),
    Rule(rule=f"self.task != '{INFER}' || self.accuracy.metric != 'agreement'",
         message="spec.accuracy.metric agreement compares next tokens, which only a language model has; write cosine "
                 "or another metric, or task generate", field=".accuracy.metric"),
    Rule(rule=f"self.task != '{GENERATE}' || has(self.accuracy.evaluation)",
         message="spec.accuracy.evaluation is required with task generate: prompts cannot be made up; add its uri, a "
                 ".jsonl of prompts like production's", field=".accuracy"),
    Rule(rule=f"self.task != '{GENERATE}' || !has(self.accuracy.evaluation) || "
              f"!self.accuracy.evaluation.uri.startsWith('{CAPTURED_SCHEME}')",
         message="spec.accuracy.evaluation names captured tensors, and a language model reads text; name a .jsonl of "
                 "prompts like production's", field=".accuracy.evaluation"),
)

_BATCH = (
    Rule(rule="has(self.batch) == has(oldSelf.batch)",
         message="spec.batch cannot be added to an object or removed: what serves would have to stop; create another "
                 "object, which takes the engine from the store", field=".batch"),
    *map(_foreign_to_batch, FOREIGN_TO_BATCH),
)

_PYTHON_STEPS = (
    Rule(rule="!has(self.interface) || !has(self.interface.pythonSteps) || !has(self.quality)",
         message="spec.quality compares live answers without the functions of spec.interface.pythonSteps; remove one "
                 "of them", field=".quality"),
)

_SEQUENCES = (
    *map(_foreign_to_sequences, FOREIGN_TO_SEQUENCES),
    Rule(rule="!has(self.interface) || !has(self.interface.sequenceBatching) || !has(self.autoscaling) || "
              "self.autoscaling.minReplicas > 0",
         message="spec.autoscaling.minReplicas 0 would end sequences that are merely idle; write 1 or more",
         field=".autoscaling.minReplicas"),
)

# Of an object with classes of devices. What CEL calls a transition rule is only held against changes.
_FLEET = (
    Rule(rule="has(self.placement.classes) == has(oldSelf.placement.classes)",
         message="spec.placement.classes cannot be added to an object or removed: that would stop what serves; create "
                 "another object, and delete this one when that one serves",
         field=".placement.classes"),
    Rule(rule="!(has(self.placement.classes) && has(self.replicas))",
         message="spec.replicas and spec.placement.classes exclude each other: a fleet is not scaled through /scale; "
                 "remove spec.replicas, and set minReplicas of each class, or spec.autoscaling", field=".replicas"),
    Rule(rule="!has(self.placement.classes) || has(self.autoscaling) || "
              "!self.placement.classes.exists(one, has(one.maxReplicas))",
         message="maxReplicas of a class has no meaning without spec.autoscaling; add that, or leave minReplicas alone",
         field=".placement.classes"),
    Rule(rule="!(has(self.placement.classes) && has(self.autoscaling)) || self.autoscaling.minReplicas > 0",
         message="spec.autoscaling.minReplicas 0 and spec.placement.classes exclude each other: requests that other "
                 "classes answer wake no class up; set it to 1 or more", field=".autoscaling.minReplicas"),
    Rule(rule="!has(self.placement.classes) || self.rollout.strategy != 'BlueGreen'",
         message="spec.rollout.strategy BlueGreen does not go with spec.placement.classes: their pods share one "
                 "Service that cannot leave candidates out; write Canary, or Recreate for one class after the other",
         field=".rollout.strategy"),
    Rule(rule="!has(self.placement.classes) || self.rollout.strategy != 'Recreate' || self.rollout.autoPromote",
         message="spec.rollout.autoPromote false does not go with strategy Recreate and spec.placement.classes: "
                 "nothing is proven beside what serves; remove it, or write strategy Canary with maxSurge 0",
         field=".rollout.autoPromote"),
    # Which class it is only the operator says: of a text made by filter or map the apiserver expects too much cost.
    Rule(rule="!has(self.placement.classes) || self.engine.backend != 'tensorrt' || "
              "!self.placement.classes.exists(one, one.accelerator == 'cpu')",
         message="spec.engine.backend tensorrt needs a GPU, which a class with accelerator cpu does not have; write "
                 "auto, onnxruntime or torch, or remove that class", field=".engine.backend"),
    Rule(rule=f"!has(self.placement.classes) || self.engine.precision in {list(CPU_PRECISIONS)} || "
              "!self.placement.classes.exists(one, one.accelerator == 'cpu')",
         message="'spec.engine.precision ' + self.engine.precision + ' needs a GPU, which a class with accelerator cpu "
                 "does not have; write auto, fp32 or int8, or remove that class'", expression=True,
         field=".engine.precision"),
    Rule(rule="!has(self.placement.classes) || !(self.engine.precision in ['int8', 'fp8']) || "
              "has(self.engine.calibration) || !self.placement.classes.exists(one, one.accelerator == 'gpu')",
         message="'spec.engine.precision ' + self.engine.precision + ' on the GPU of a class needs "
                 "spec.engine.calibration; add its uri, or write auto, fp16 or bf16'", expression=True,
         field=".engine.precision"),
)

# As a pod's: the apiserver would refuse the Jobs and Deployments.
_TOLERATION = (
    Rule(rule="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
         message="tolerationSeconds is for effect NoExecute alone; write effect NoExecute, or remove it",
         field=".tolerationSeconds"),
)

# By the path below the object's root; "" is the root itself, [] each item of a list.
RULES: Mapping[str, tuple[Rule, ...]] = {
    "": (
        Rule(rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
             message="metadata.name must start with a letter and hold only lower-case letters, digits and '-': names "
                     "of Jobs, Deployments and the Service are made from it"),
        Rule(rule="!has(self.spec.placement.classes) || self.spec.placement.classes.all(one, "
                  f"size(self.metadata.name) + size(one.name) < {MAX_OBJECT_NAME})",
             message="the name of the object and that of a class of spec.placement.classes are too long: NAME-CLASS "
                     f"names an object of its own, and may have {MAX_OBJECT_NAME} characters; shorten one of them",
             field=".spec.placement.classes"),
    ),
    "spec": (
        Rule(rule="!(has(self.replicas) && has(self.autoscaling))",
             message="spec.replicas and spec.autoscaling exclude each other; remove spec.replicas to let the "
                     "load decide, or spec.autoscaling to fix the number"),
        Rule(rule="!has(self.autoscaling) || self.autoscaling.minReplicas > 0 || !has(self.rollout.gateway)",
             message="spec.autoscaling.minReplicas 0 and spec.rollout.gateway exclude each other: the routes bypass "
                     "the activator that holds requests; set minReplicas to 1 or more, or remove gateway and let a "
                     "route of your own lead to the model's Service", field=".autoscaling.minReplicas"),
        Rule(rule="self.placement.accelerator != 'cpu' || self.engine.backend != 'tensorrt'",
             message="spec.engine.backend tensorrt needs a GPU; write auto, onnxruntime or torch, or set "
                     "spec.placement.accelerator to gpu", field=".engine.backend"),
        Rule(rule=f"self.placement.accelerator != 'cpu' || self.engine.precision in {list(CPU_PRECISIONS)}",
             message="'spec.engine.precision ' + self.engine.precision + ' needs a GPU; on a CPU write auto, fp32 "
                     "or int8'", expression=True, field=".engine.precision"),
        Rule(rule="has(self.placement.classes) || self.placement.accelerator != 'gpu' || "
                  "!(self.engine.precision in ['int8', 'fp8']) || has(self.engine.calibration)",
             message="'spec.engine.precision ' + self.engine.precision + ' on a GPU needs spec.engine.calibration; "
                     "add its uri, or write auto, fp16 or bf16'", expression=True, field=".engine.precision"),
        Rule(rule="!self.engine.precision.endsWith('-weight-only') || self.engine.backend in ['auto', 'onnxruntime'] "
                  "|| (self.engine.backend == 'tensorrt' && self.engine.precision == 'int4-weight-only')",
             message="'spec.engine.backend ' + self.engine.backend + ' builds no ' + self.engine.precision + '; write "
                     "auto or onnxruntime, or set spec.engine.precision to auto'", expression=True,
             field=".engine.precision"),
        Rule(rule="self.engine.stopWhen != 'objectiveMet' || has(self.objective.latency) || "
                  "has(self.objective.tokens)",
             message="spec.engine.stopWhen objectiveMet needs spec.objective.latency, or of a language model "
                     "spec.objective.tokens, to know when a candidate is enough; add that, or write budgetSpent",
             field=".engine.stopWhen"),
        Rule(rule="self.objective.minimise != 'energy' || has(self.objective.latency)",
             message="spec.objective.minimise energy needs spec.objective.latency: it chooses among configurations "
                     "that keep a latency; add that, or write cost", field=".objective.minimise"),
        Rule(rule="self.objective.minimise != 'energy' || !(self.placement.accelerator == 'cpu' || "
                  "has(self.placement.mig) || (has(self.placement.classes) && "
                  "self.placement.classes.exists(one, one.accelerator == 'cpu' || has(one.mig))))",
             message="spec.objective.minimise energy needs whole GPUs: neither a CPU nor a MIG slice has an energy "
                     "counter of its own that a build can read; write cost, or place the model on whole GPUs",
             field=".objective.minimise"),
        Rule(rule="!has(self.engine.calibration) || !has(self.accuracy.evaluation) || "
                  "self.engine.calibration.uri != self.accuracy.evaluation.uri || "
                  f"self.engine.calibration.uri.startsWith('{CAPTURED_SCHEME}')",
             message="spec.engine.calibration and spec.accuracy.evaluation are the same data; accuracy must be "
                     "measured on data that did not calibrate the engine", field=".engine.calibration"),
        Rule(rule="!(has(self.accuracy.task) || (has(self.accuracy.groupBy) && self.accuracy.groupBy != '')) || "
                  "has(self.accuracy.evaluation)",
             message="spec.accuracy.task and spec.accuracy.groupBy name arrays or fields of the evaluation data; add "
                     "spec.accuracy.evaluation.uri, or remove them", field=".accuracy.evaluation"),
        Rule(rule="!has(self.batching) || !has(self.batching.preferredBatchSizes) || "
                  "self.batching.preferredBatchSizes.all(size, size <= self.engine.maxBatchSize)",
             message="spec.batching.preferredBatchSizes must not exceed spec.engine.maxBatchSize; raise that, or lower "
                     "these", field=".batching.preferredBatchSizes"),
        Rule(rule="!has(self.rollout.analysis.mirror) || !self.rollout.analysis.mirror || has(self.quality)",
             message="spec.rollout.analysis.mirror needs spec.quality, whose monitor samples live requests; add that, "
                     "or remove mirror", field=".rollout.analysis.mirror"),
        Rule(rule=f"!has(self.accuracy.evaluation) || !self.accuracy.evaluation.uri.startsWith('{CAPTURED_SCHEME}') || "
                  "!(has(self.accuracy.task) || (has(self.accuracy.groupBy) && self.accuracy.groupBy != ''))",
             message="spec.accuracy.task and spec.accuracy.groupBy need labels or groups in the evaluation data, and "
                     "captured requests have inputs alone; remove them, or name other data",
             field=".accuracy.evaluation"),
        Rule(rule="!has(self.quality) || !has(self.quality.capture) || !has(self.store) || !has(self.store.uri) || "
                  "self.store.uri.startsWith('pvc://')",
             message="spec.quality.capture needs a store on a volume: rights to a bucket cannot be narrowed to a "
                     "folder; write pvc://CLAIM into spec.store.uri, or remove capture", field=".quality.capture"),
        Rule(rule="!has(self.rollout.requireObjective) || !self.rollout.requireObjective || "
                  "has(self.objective.latency)",
             message="spec.rollout.requireObjective needs spec.objective.latency, which a revision could miss; add "
                     "that, or remove requireObjective", field=".rollout.requireObjective"),
        *_FLEET, *_OLD_NAMES, *_TASKS, *_BATCH, *_SEQUENCES, *_PYTHON_STEPS,
    ),
    "spec.batch": (
        Rule(rule="self.input.uri != self.output.uri",
             message="output.uri is the input; name a folder of its own", field=".output.uri"),
    ),
    "spec.objective.tokens": (
        Rule(rule="has(self.ttftMilliseconds) || has(self.tpotMilliseconds)",
             message="tokens needs a time; write ttftMilliseconds, such as 500, tpotMilliseconds, such as 50, or both"),
    ),
    "spec.placement.classes[]": (
        Rule(rule="self.accelerator != 'cpu' || !(has(self.gpu) || has(self.mig))",
             message="'class ' + self.name + ': gpu and mig need accelerator gpu; remove them, or set accelerator to "
                     "gpu'", expression=True),
        Rule(rule="!has(self.mig) || !has(self.gpu) || self.gpu.count == 1",
             message="'class ' + self.name + ': with mig a replica uses one slice; set gpu.count to 1 and ask for more "
                     "replicas'", expression=True, field=".gpu.count"),
        Rule(rule=_PRODUCT_FOR_AUTO,
             message="'class ' + self.name + ': mig.profile auto needs gpu.product, such as NVIDIA-H100-80GB-HBM3; "
                     "add it, or name a profile'", expression=True, field=".mig.profile"),
        Rule(rule="!(has(self.minReplicas) && has(self.maxReplicas)) || self.minReplicas <= self.maxReplicas",
             message="'class ' + self.name + ': minReplicas is greater than maxReplicas; raise maxReplicas or lower "
                     "minReplicas'", expression=True, field=".minReplicas"),
    ),
    "spec.accuracy.task": (
        Rule(rule="!has(self.queries) || self.queries == '' || self.metric == 'ndcg'",
             message="queries is for metric ndcg alone; remove it, or write metric ndcg", field=".queries"),
        Rule(rule="!has(self.threshold) || self.metric in ['accuracy', 'f1-macro', 'f1-micro']",
             message="threshold is for metrics of classes alone; remove it, or write metric accuracy, f1-macro or "
                     "f1-micro", field=".threshold"),
    ),
    "spec.serving.queue": (
        Rule(rule="has(self.priorityLevels) || !(has(self.defaultPriorityLevel) || has(self.priorityQueuePolicy))",
             message="defaultPriorityLevel, as priorityQueuePolicy, needs priorityLevels, of which it names one; add "
                     "that, such as 2, or remove it"),
        Rule(rule="!has(self.priorityLevels) || !has(self.defaultPriorityLevel) || "
                  "self.defaultPriorityLevel <= self.priorityLevels",
             message="defaultPriorityLevel must not exceed priorityLevels; write a level from 1 to that",
             field=".defaultPriorityLevel"),
    ),
    "spec.placement.tolerations[]": _TOLERATION,
    "spec.placement.classes[].tolerations[]": _TOLERATION,
    "spec.placement": (
        Rule(rule="!has(self.classes) || !(has(self.gpu) || has(self.mig) || self.accelerator == 'cpu')",
             message="classes replace accelerator, gpu and mig; move them into the classes", field=".classes"),
        Rule(rule="self.accelerator != 'cpu' || !(has(self.gpu) || has(self.mig))",
             message="gpu and mig need accelerator gpu; remove them, or set accelerator to gpu"),
        Rule(rule="!has(self.mig) || !has(self.gpu) || self.gpu.count == 1",
             message="with mig a replica uses one slice; set gpu.count to 1 and ask for more replicas",
             field=".gpu.count"),
        Rule(rule=_PRODUCT_FOR_AUTO,
             message="mig.profile auto needs gpu.product, such as NVIDIA-H100-80GB-HBM3; add it, or name a profile",
             field=".mig.profile"),
    ),
    "spec.source.signature": (
        Rule(rule="has(self.keyFrom) || has(self.configMapKeyRef) != has(self.secretKeyRef)",
             message="a signature needs the key from one place; give either configMapKeyRef or secretKeyRef, with name "
                     "and key"),
    ),
    "spec.interface": (
        Rule(rule="!has(self.inputs) || self.inputs.size() < 2 || "
                  "!self.inputs.exists(one, one.dtype == 'string' && has(one.preprocess))",
             message="an input of texts stands in the place of all inputs of the source; leave it alone in the list, "
                     "or remove its preprocess", field=".inputs"),
        Rule(rule="!has(self.postprocess) || self.postprocess.all(one, one.function != 'topK' || "
                  "(self.postprocess.filter(other, other.output == one.output && other.function in "
                  "['argMax', 'topK']).size() == 1 && self.postprocess.filter(other, other.output == one.output)"
                  "[self.postprocess.filter(other, other.output == one.output).size() - 1].function == 'topK'))",
             message="topK is the last step of its output, once, and without argMax; move or remove the others",
             field=".postprocess"),
        Rule(rule="!has(self.pythonSteps) || !has(self.pythonSteps.preprocess) || (has(self.inputs) && "
                  "self.inputs.size() > 0)",
             message="inputs does not say what clients send to pythonSteps.preprocess; list name, dtype and shape of "
                     "each, such as [batch, 1]", field=".inputs"),
        Rule(rule="!has(self.pythonSteps) || !has(self.pythonSteps.preprocess) || !has(self.inputs) || "
                  "!self.inputs.exists(one, has(one.preprocess) || has(one.normalise))",
             message="an input is prepared twice: by preprocess or normalise, and by pythonSteps.preprocess; remove "
                     "the former, and let the function do that", field=".inputs"),
        Rule(rule="!has(self.pythonSteps) || !has(self.pythonSteps.postprocess) || (has(self.outputs) && "
                  "self.outputs.size() > 0)",
             message="outputs does not say what clients get of pythonSteps.postprocess; list name, dtype and shape of "
                     "each, such as [batch, 1]", field=".outputs"),
        Rule(rule="!has(self.pythonSteps) || !has(self.padding)",
             message="padding is not done beside pythonSteps yet; remove one of them", field=".padding"),
    ),
    "spec.interface.pythonSteps": (
        Rule(rule="has(self.preprocess) || has(self.postprocess)",
             message="pythonSteps names no function; write preprocess or postprocess, such as steps.py:tokens"),
    ),
    "spec.interface.inputs[]": (
        Rule(rule="!has(self.normalise) || self.dtype == 'uint8'",
             message="clients send the bytes that normalise is about; write dtype uint8, or remove normalise",
             field=".dtype"),
        Rule(rule="!has(self.normalise) || (has(self.shape) && self.shape.size() > 1)",
             message="normalise needs the shape that clients send; add it, such as [batch, 3, 224, 224]"),
        Rule(rule="!has(self.preprocess) || self.dtype in ['uint8', 'string']",
             message="preprocess is about images or texts; write dtype uint8 or string, or remove preprocess",
             field=".dtype"),
        Rule(rule="!has(self.preprocess) || self.dtype != 'string' || (has(self.preprocess.fromSource) && "
                  "self.preprocess.fromSource)",
             message="only the source says how token ids are made of texts; write preprocess: {fromSource: true}",
             field=".preprocess"),
        Rule(rule="!has(self.preprocess) || self.dtype != 'string' || !has(self.shape) || self.shape.size() < 3",
             message="texts come one a row, or as pairs; write shape [batch, 1], or [batch, 2] for pairs",
             field=".shape"),
        Rule(rule="!has(self.preprocess) || self.dtype != 'uint8' || (has(self.shape) && self.shape.size() == 4)",
             message="preprocess needs the shape of the images that clients send; add it, such as [batch, 224..1024, "
                     "224..1024, 3]"),
        Rule(rule="!has(self.preprocess) || self.dtype == 'string' || "
                  "(has(self.preprocess.fromSource) && self.preprocess.fromSource) != has(self.normalise)",
             message="preprocess needs either fromSource: true or normalise; add one of them, {} for numbers from 0 to "
                     "1, or remove one"),
    ),
    "spec.interface.inputs[].preprocess": (
        Rule(rule="!has(self.fromSource) || !self.fromSource || !(has(self.size) || has(self.cropSize) || "
                  "(has(self.resample) && self.resample == 'bicubic'))",
             message="fromSource takes all of it from the source; remove it, or size, cropSize and resample",
             field=".fromSource"),
        Rule(rule="(has(self.fromSource) && self.fromSource) || has(self.size)",
             message="preprocess needs size; write height and width, or shortestEdge with cropSize, or fromSource: "
                     "true in its place"),
        Rule(rule="!has(self.size) || !has(self.size.shortestEdge) || has(self.cropSize)",
             message="by the shorter side alone images stay of different sizes; add cropSize, or write height and "
                     "width into size"),
        Rule(rule="!has(self.size) || !has(self.cropSize) || (has(self.size.shortestEdge) ? "
                  "self.cropSize.height <= self.size.shortestEdge && self.cropSize.width <= self.size.shortestEdge : "
                  "(!has(self.size.height) || self.cropSize.height <= self.size.height) && "
                  "(!has(self.size.width) || self.cropSize.width <= self.size.width))",
             message="cropSize is more than size leaves; write at most what size says, or a larger size",
             field=".cropSize"),
    ),
    "spec.interface.inputs[].preprocess.size": (
        Rule(rule="has(self.height) == has(self.width) && has(self.shortestEdge) != has(self.height)",
             message="size says one size; write height and width, or shortestEdge"),
    ),
    "spec.interface.postprocess[]": (
        Rule(rule="!has(self.mask) || self.mask == '' || self.function == 'meanPooling'",
             message="mask is for function meanPooling alone; remove it, or write function meanPooling", field=".mask"),
        Rule(rule="!has(self.axis) || self.function == 'argMax'",
             message="axis is for function argMax alone; remove it, or write function argMax", field=".axis"),
        Rule(rule="!has(self.k) || self.function in ['topK', 'objectDetection']",
             message="k is for functions topK and objectDetection alone; remove it, or write function topK",
             field=".k"),
        Rule(rule="has(self.k) || self.function != 'topK'", message="topK needs k; write how many classes, such as 5",
             field=".k"),
        Rule(rule="!has(self.detection) || self.function == 'objectDetection'",
             message="detection is for function objectDetection alone; remove it, or write function objectDetection",
             field=".detection"),
        Rule(rule="has(self.detection) || self.function != 'objectDetection'",
             message="objectDetection needs detection, which says what outputs mean; write detection, such as "
                     "{fromSource: true}", field=".detection"),
    ),
    "spec.interface.postprocess[].detection": (
        Rule(rule="!has(self.fromSource) || !self.fromSource || ((!has(self.boxes) || self.boxes == '') && "
                  "(!has(self.boxFormat) || self.boxFormat == 'cxcywh') && "
                  "(!has(self.boxUnit) || self.boxUnit == 'relative') && "
                  "(!has(self.scoring) || self.scoring == 'none') && "
                  "(!has(self.background) || self.background == 'none') && !has(self.nmsThreshold))",
             message="fromSource and other fields both say what outputs mean; remove fromSource, or all of detection "
                     "but threshold and targetSizes", field=".fromSource"),
        Rule(rule="!has(self.nmsThreshold) || (has(self.threshold) && self.threshold > 0.0)",
             message="nmsThreshold holds boxes against each other that score above threshold; write threshold, such as "
                     "0.05", field=".threshold"),
    ),
    "spec.quality.capture": (
        Rule(rule="self.retentionSeconds >= self.intervalSeconds && "
                  f"self.retentionSeconds <= {CAPTURES_KEPT} * self.intervalSeconds",
             message=f"retentionSeconds must be one to {CAPTURES_KEPT} times intervalSeconds; write a number between "
                     "these, or another intervalSeconds", field=".retentionSeconds"),
    ),
    "spec.rollout": (
        Rule(rule="self.strategy != 'BlueGreen' || self.maxSurge > 0",
             message="strategy BlueGreen runs both revisions at full strength, which maxSurge 0 does not allow; write "
                     "strategy Canary or Recreate, or raise maxSurge", field=".maxSurge"),
        Rule(rule="self.strategy == 'Canary' || !has(self.steps) || self.steps.size() == 0",
             message="steps are shares of the traffic, which only strategy Canary splits; remove them, or set "
                     "strategy to Canary", field=".steps"),
    ),
    "spec.rollout.gateway": (
        Rule(rule="!has(self.grpcHostnames) || !self.hostnames.exists(one, self.grpcHostnames.exists(other, "
                  "one == other || (one.startsWith('*.') && other.endsWith(one.substring(1))) || "
                  "(other.startsWith('*.') && one.endsWith(other.substring(1)))))",
             message="hostnames and grpcHostnames overlap, and for one host name a Gateway accepts an HTTPRoute or a "
                     "GRPCRoute, not both; give gRPC a host name of its own, or leave grpcHostnames out",
             field=".grpcHostnames"),
    ),
    "spec.autoscaling": (
        Rule(rule="self.minReplicas <= self.maxReplicas",
             message="minReplicas is greater than maxReplicas; raise maxReplicas or lower minReplicas",
             field=".minReplicas"),
        Rule(rule="(self.source == 'prometheus') == has(self.prometheus)",
             message="source prometheus and the block prometheus go together; add prometheus.url, or set source to "
                     "direct and remove the block"),
        Rule(rule="self.minReplicas > 0 || self.source == 'direct'",
             message="minReplicas 0 needs source direct: only the replicas themselves report that no request comes; "
                     "set source to direct, or minReplicas to 1 or more", field=".minReplicas"),
        Rule(rule="self.prefer == 'balanced' || (self.algorithm == 'measured' && self.source == 'direct')",
             message="prefer cost or latency needs algorithm measured and source direct: queue depth alone knows no "
                     "objective; set these, or leave prefer out", field=".prefer"),
    ),
    "spec.autoscaling.prometheus": (
        Rule(rule=f"!has(self.labels) || !self.labels.matches(r'{RESERVED_PATTERN}')",
             message="labels names a label that the operator sets; write matchers of labels other than "
                     f"{', '.join(RESERVED)}", field=".labels"),
    ),
}

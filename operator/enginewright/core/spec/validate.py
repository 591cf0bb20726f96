"""Rules between fields: those that CEL says too (the object may be older than the rule), and those it cannot say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from enginewright.core import mig, promql
from enginewright.core.problems import Problem
from enginewright.core.quantity import parse_quantity
from enginewright.core.spec.base import MAX_OBJECT_NAME, in_bucket
from enginewright.core.spec.constant_rules import constant_problems
from enginewright.core.spec.engine import CPU_PRECISIONS, CheckpointSpec
from enginewright.core.spec.fleet import fleet_problems, member_name
from enginewright.core.spec.image_rules import image_problems
from enginewright.core.spec.interface import InputSpec, InterfaceSpec
from enginewright.core.spec.model import Spec
from enginewright.core.spec.padding_rules import padding_problems
from enginewright.core.spec.parse import show
from enginewright.core.spec.placement import PlacementClassSpec
from enginewright.core.spec.pod_template_rules import check_job_template, check_serving_template
from enginewright.core.spec.postprocess_rules import postprocess_problems
from enginewright.core.spec.python_step_rules import python_step_problems
from enginewright.core.spec.quality_rules import captured_problems, is_captured, quality_problems
from enginewright.core.spec.queue_rules import queue_problems
from enginewright.core.spec.resources import ResourcesSpec
from enginewright.core.spec.response_cache_rules import response_cache_problems
from enginewright.core.spec.schedule_rules import schedule_problems
from enginewright.core.spec.sequence_rules import state_problems
from enginewright.core.spec.tasks import batch_problems, generates, sequence_problems, task_problems
from enginewright.core.spec.text_rules import text_problems
from enginewright_builder.contract import CAPTURE_SECRET, ENERGY, OBJECTIVE_MET, SIGNING_SECRET

# What a backend has no engine for, whatever the device.
NOT_OF = {"torch": ("int8-weight-only", "int4-weight-only"), "tensorrt": ("int8-weight-only",)}
CALIBRATED = ("int8", "fp8")

# Metrics on labels that answer yes or no.
WITH_THRESHOLD = ("accuracy", "f1-macro", "f1-micro")
# From where a source comes without what was signed beside it.
NO_SIGNATURE = ("https://", "hf://")
# Above these a gate lets everything pass: a cosine of 0.75 is another model, not a less exact one.
MAX_TOLERANCE = {"relative-error": 0.5}
USUAL_MAX_TOLERANCE = 0.25


def validate(spec: Spec) -> tuple[Problem, ...]:
    """Every rule between fields that ``spec`` breaks; empty when it is good. Of a fleet, those of each class. Where a
    field is not of the spec's task, that alone: other rules would ask for more of what goes."""
    if foreign := (*task_problems(spec), *batch_problems(spec), *sequence_problems(spec)):
        return foreign
    if spec.placement.classes:
        return (*_gateway(spec), *fleet_problems(spec, validate))
    return tuple(problem for check in _CHECKS for problem in check(spec))


def validate_name(name: str) -> Problem | None:
    """A DNS-1035 label of at most 40 characters, so that the names of children fit in 63."""
    if len(name) <= MAX_OBJECT_NAME and re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        return None
    return _problem("metadata.name", name, "leaves no room for the names of Jobs and Deployments, or is not a DNS "
                                           "label",
                    f"write at most {MAX_OBJECT_NAME} lower-case letters, digits and '-', the first a letter")


def validate_member_name(fleet: str, entry: PlacementClassSpec) -> Problem | None:
    """The object of a class is named after fleet and class."""
    if validate_name(member_name(fleet, entry.name)) is None:
        return None
    return _problem("spec.placement.classes", entry.name, f"makes {member_name(fleet, entry.name)}, which is too long "
                                                          "for the name of an object",
                    f"shorten it or metadata.name: {MAX_OBJECT_NAME} characters together, with the '-' between them")


def _problem(field: str, value: object, message: str, remedy: str) -> Problem:
    return Problem(field=field, value=show(value), message=message, remedy=remedy)


def _replicas(spec: Spec) -> Iterator[Problem]:
    scaling = spec.autoscaling
    if scaling is None:
        return
    if spec.replicas is not None:
        yield _problem("spec.replicas", spec.replicas, "excludes spec.autoscaling",
                       "remove it to let the load decide, or remove spec.autoscaling to fix the number")
    if scaling.min_replicas > scaling.max_replicas:
        yield _problem("spec.autoscaling.minReplicas", scaling.min_replicas,
                       f"is greater than maxReplicas {scaling.max_replicas}", "raise maxReplicas or lower minReplicas")
    if (scaling.source == "prometheus") != (scaling.prometheus is not None):
        yield _problem("spec.autoscaling.source", scaling.source, "does not go with the block prometheus",
                       "add prometheus.url for source prometheus, or set source to direct and remove the block")
    if scaling.prometheus is not None:
        try:
            promql.matchers_of(scaling.prometheus.labels)
        except promql.MatcherError as error:
            yield _problem("spec.autoscaling.prometheus.labels", scaling.prometheus.labels, str(error),
                           f"write matchers of labels other than {', '.join(promql.RESERVED)}")
    if scaling.min_replicas == 0 and scaling.source != "direct":
        yield _problem("spec.autoscaling.minReplicas", 0, "needs source direct: only replicas themselves tell that no "
                       "request comes", "set source to direct, or minReplicas to 1 or more")
    if scaling.prefer != "balanced" and (scaling.algorithm != "measured" or scaling.source != "direct"):
        yield _problem("spec.autoscaling.prefer", scaling.prefer, "needs algorithm measured and source direct: queue "
                       "depth alone knows no objective", "set algorithm to measured and source to direct, or leave "
                       "prefer out")
    if scaling.min_replicas == 0 and spec.rollout.gateway is not None:
        yield _problem("spec.autoscaling.minReplicas", 0, "excludes spec.rollout.gateway: its routes bypass the "
                                                          "activator that holds requests",
                       "set it to 1 or more, or remove gateway and point a route of your own at the model's Service")


def _engine(spec: Spec) -> Iterator[Problem]:
    engine, accelerator = spec.engine, spec.placement.accelerator
    if accelerator == "cpu" and engine.backend == "tensorrt":
        yield _problem("spec.engine.backend", engine.backend, "needs a GPU",
                       "write auto, onnxruntime or torch, or set spec.placement.accelerator to gpu")
    if accelerator == "cpu" and engine.precision not in CPU_PRECISIONS:
        yield _problem("spec.engine.precision", engine.precision, "needs a GPU", "on a CPU write auto, fp32 or int8")
    if engine.precision in NOT_OF.get(engine.backend, ()):
        yield _problem("spec.engine.precision", engine.precision, f"is not built by backend {engine.backend}",
                       "set spec.engine.backend to auto or onnxruntime, or write auto")
    if accelerator == "gpu" and engine.precision in CALIBRATED and engine.calibration is None:
        yield _problem("spec.engine.precision", engine.precision, "needs calibration data on a GPU",
                       "add spec.engine.calibration.uri, or write auto, fp16 or bf16")


def _data(spec: Spec) -> Iterator[Problem]:
    calibration, evaluation = spec.engine.calibration, spec.accuracy.evaluation
    if calibration is None or evaluation is None:
        return
    if is_captured(calibration) and is_captured(evaluation):  # each gets half of the samples
        return
    same_content = calibration.digest and calibration.digest == evaluation.digest
    if calibration.uri.rstrip("/") == evaluation.uri.rstrip("/") or same_content:
        yield _problem("spec.engine.calibration.uri", calibration.uri, "is also the evaluation data",
                       "measure accuracy on data that did not calibrate the engine: name another set")


def _checkpoints(spec: Spec) -> Iterator[Problem]:
    yield from _beside(spec, "spec.engine.checkpoints", spec.engine.checkpoints, "checkpoint",
                       "which is always a candidate", "name other weights of the same model, or remove it")
    yield from _beside(spec, "spec.engine.drafts", spec.engine.drafts, "draft",
                       "which proposes no token in less time than it chooses one", "name a smaller model of the same "
                       "family, or remove it")


def _beside(spec: Spec, field: str, listed: Sequence[CheckpointSpec], word: str, why: str,
            remedy: str) -> Iterator[Problem]:
    """Of weights that the spec lists beside the source, which they cannot be."""
    names = [one.name for one in listed]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        yield _problem(field, twice, "repeats a name", f"give each {word} its own name")
    for index, one in enumerate(listed):
        if one.uri.rstrip("/") == spec.source.uri.rstrip("/"):
            yield _problem(f"{field}[{index}].uri", one.uri, f"is the source itself, {why}", remedy)
        if spec.source.signature and one.uri.startswith(NO_SIGNATURE):
            yield _problem(f"{field}[{index}].uri", one.uri, "cannot be signed as "
                           "spec.source.signature asks: by https:// one file is fetched, by hf:// what a build reads",
                           "copy it and its signature to a volume, or remove it")


def _accuracy(spec: Spec) -> Iterator[Problem]:
    limit = MAX_TOLERANCE.get(spec.accuracy.metric, USUAL_MAX_TOLERANCE)
    if spec.accuracy.max_loss > limit:
        yield _problem("spec.accuracy.maxLoss", spec.accuracy.max_loss,
                       f"lets almost anything pass by {spec.accuracy.metric}", f"write at most {limit:g}; 0.01 is "
                                                                               f"usual")


def _labels(spec: Spec) -> Iterator[Problem]:
    accuracy, task = spec.accuracy, spec.accuracy.task
    if accuracy.evaluation is None:
        for field, value in (("task", task and task.metric), ("groupBy", accuracy.group_by)):
            if value:
                yield _problem(f"spec.accuracy.{field}", value, "needs spec.accuracy.evaluation, whose data have it",
                               "add spec.accuracy.evaluation.uri, or remove it")
    if task is None:
        return
    if task.queries and task.metric != "ndcg":
        yield _problem("spec.accuracy.task.queries", task.queries, "is for metric ndcg alone",
                       "remove it, or write metric ndcg")
    if task.threshold is not None and task.metric not in WITH_THRESHOLD:
        yield _problem("spec.accuracy.task.threshold", task.threshold, f"has no meaning with metric {task.metric}",
                       f"remove it, or write metric {', '.join(WITH_THRESHOLD[:-1])} or {WITH_THRESHOLD[-1]}")
    if task.queries and task.queries in (task.labels, accuracy.group_by):
        yield _problem("spec.accuracy.task.queries", task.queries, "is named twice",
                       "name the array or field that says of which query a sample is")
    if task.labels == "text":
        yield _problem("spec.accuracy.task.labels", task.labels, "is what the model reads",
                       "name the array or field that has the labels, such as label")


def _signature(spec: Spec) -> Iterator[Problem]:
    signature = spec.source.signature
    if signature is None:
        return
    named = [one.name for one in (signature.config_map_key_ref, signature.secret_key_ref) if one]
    if len(named) != 1:
        yield _problem("spec.source.signature", named, "needs the key from one place",
                       "give either configMapKeyRef or secretKeyRef, with name and key")
    if spec.source.uri.startswith(NO_SIGNATURE):
        yield _problem("spec.source.signature", named,
                       "needs a source on a volume, in a bucket or in a registry: by https:// one file is fetched, by "
                       "hf:// what a build reads, not all that was signed",
                       "copy the model and its signature to a volume, or state spec.source.digest instead")
    if {"..", "."} & set(signature.path.split("/")):
        yield _problem("spec.source.signature.path", signature.path, "leaves its folder",
                       "write the path without . and ..")


def _store(spec: Spec) -> Iterator[Problem]:
    store, account = spec.store, spec.source.service_account_name
    if not in_bucket(store.uri):
        for field, value in (("secretRef", store.secret_ref and store.secret_ref.name),
                             ("serviceAccountName", store.service_account_name)):
            if value:
                yield _problem(f"spec.store.{field}", value, f"has no meaning with {store.uri}: a volume is mounted by "
                               "all who may run pods", "remove it, or write s3://BUCKET/prefix or gs://BUCKET/prefix "
                                                       "into spec.store.uri")
    elif account and store.service_account_name and account != store.service_account_name:
        yield _problem("spec.store.serviceAccountName", store.service_account_name,
                       f"differs from spec.source.serviceAccountName {account}, and a build's pod has only one",
                       "write one with the rights of both, or name a Secret in secretRef for one of them")


def _objective(spec: Spec) -> Iterator[Problem]:
    latency = spec.objective.latency
    if latency is not None and latency.milliseconds < 0.05:
        yield _problem("spec.objective.latency.milliseconds", latency.milliseconds,
                       "is less than a request's time on the wire", "write milliseconds, such as 20")
    tokens = spec.objective.tokens
    if latency is None and tokens is None and spec.engine.stop_when == OBJECTIVE_MET:
        needed = f"spec.objective.{'tokens' if generates(spec) else 'latency'}"
        yield _problem("spec.engine.stopWhen", spec.engine.stop_when,
                       f"needs {needed} to know when a candidate is enough", f"add {needed}, or write budgetSpent")
    if tokens is not None and tokens.ttft_milliseconds is None and tokens.tpot_milliseconds is None:
        yield _problem("spec.objective.tokens", tokens.model_dump(by_alias=True, exclude_none=True), "needs a time",
                       "write ttftMilliseconds, such as 500, tpotMilliseconds, such as 50, or both")


def _energy(spec: Spec) -> Iterator[Problem]:
    if spec.objective.minimise != ENERGY:
        return
    if spec.objective.latency is None:
        yield _problem("spec.objective.minimise", ENERGY, "needs spec.objective.latency: it chooses among "
                       "configurations that keep a latency", "add spec.objective.latency, or write cost")
    if spec.placement.accelerator == "cpu" or spec.placement.mig is not None:
        yield _problem("spec.objective.minimise", ENERGY, "needs whole GPUs: neither a CPU nor a MIG slice has an "
                       "energy counter of its own that a build can read",
                       "write cost, or place the model on whole GPUs")


def _batching(spec: Spec) -> Iterator[Problem]:
    batching = spec.batching
    if too_large := [size for size in batching.preferred_batch_sizes if size > spec.engine.max_batch_size]:
        yield _problem("spec.batching.preferredBatchSizes", too_large,
                       f"exceeds spec.engine.maxBatchSize {spec.engine.max_batch_size}", "raise maxBatchSize, or lower "
                                                                                         "these")


def _placement(spec: Spec) -> Iterator[Problem]:
    placement = spec.placement
    if placement.accelerator == "cpu":
        for name, block in (("gpu", placement.gpu), ("mig", placement.mig)):
            if block is not None:
                yield _problem(f"spec.placement.{name}", block.model_dump(by_alias=True, exclude_none=True),
                               "needs spec.placement.accelerator gpu", "remove it, or set accelerator to gpu")
    for index, toleration in enumerate(placement.tolerations):
        if toleration.operator == "Exists" and toleration.value:
            yield _problem(f"spec.placement.tolerations[{index}].value", toleration.value,
                           "has no meaning with operator Exists", "remove it, or write operator Equal")
        if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
            yield _problem(f"spec.placement.tolerations[{index}].tolerationSeconds", toleration.toleration_seconds,
                           "is for effect NoExecute alone", "write effect NoExecute, or remove it")
        if not toleration.key and toleration.operator == "Equal":
            yield _problem(f"spec.placement.tolerations[{index}].key", "", "is required with operator Equal",
                           "name the taint's key, or write operator Exists")


def _mig(spec: Spec) -> Iterator[Problem]:
    slices, gpu = spec.placement.mig, spec.placement.gpu
    if slices is None or spec.placement.accelerator == "cpu":
        return
    if gpu is not None and gpu.count != 1:
        yield _problem("spec.placement.gpu.count", gpu.count, "is for whole GPUs: with mig a replica uses one slice",
                       "set it to 1 and ask for more replicas")
    product = gpu.product if gpu is not None else ""
    if slices.profile == "auto" and not product:
        yield _problem("spec.placement.mig.profile", "auto", "needs a named GPU",
                       "add spec.placement.gpu.product, such as NVIDIA-H100-80GB-HBM3, or name a profile")
        return
    known = mig.profiles(product)
    if slices.profile == "auto" and not known:
        yield _problem("spec.placement.mig.profile", "auto",
                       f"cannot be chosen: no MIG profiles of {product} are known",
                       "name a profile, as nvidia-smi mig -lgip shows them")
    elif slices.profile != "auto" and known and mig.profile(product, slices.profile) is None:
        yield _problem("spec.placement.mig.profile", slices.profile, f"is not a profile of {product}",
                       f"write auto or one of {', '.join(profile.name for profile in known)}")


def _rollout(spec: Spec) -> Iterator[Problem]:
    rollout = spec.rollout
    if rollout.strategy == "BlueGreen" and rollout.max_surge == 0:
        yield _problem("spec.rollout.maxSurge", 0, "does not go with strategy BlueGreen, which runs both revisions at "
                                                   "full strength",
                       "write strategy Canary or Recreate, or raise maxSurge")
    if rollout.steps and rollout.strategy != "Canary":
        yield _problem("spec.rollout.steps", [step.weight for step in rollout.steps],
                       "are shares of the traffic, which only strategy Canary splits",
                       "remove them, or set strategy to Canary")
    if rollout.analysis.mirror and spec.quality is None:
        yield _problem("spec.rollout.analysis.mirror", True, "needs the quality monitor, which samples live requests",
                       "add spec.quality, or remove it")
    if rollout.require_objective and spec.objective.latency is None:
        yield _problem("spec.rollout.requireObjective", True, "needs spec.objective.latency: there is nothing to miss",
                       "add spec.objective.latency, or remove it")
    weights = [step.weight for step in rollout.steps]
    if weights != sorted(set(weights)):
        yield _problem("spec.rollout.steps", weights, "do not rise", "write each weight greater than the one before, "
                                                                     "such as 10, 25, 50")


def _gateway(spec: Spec) -> Iterator[Problem]:
    gateway = spec.rollout.gateway
    if gateway and (both := gateway.overlap()):
        yield _problem("spec.rollout.gateway.grpcHostnames", both[1],
                       f"overlaps with {both[0]} of hostnames; for one host name a Gateway accepts an HTTPRoute or a "
                       f"GRPCRoute, not both",
                       "give gRPC a host name of its own, or leave grpcHostnames out")


def _interface(spec: Spec) -> Iterator[Problem]:
    interface = spec.interface or InterfaceSpec()
    for side, tensors in (("inputs", interface.inputs), ("outputs", interface.outputs)):
        names = [tensor.name for tensor in tensors]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            yield _problem(f"spec.interface.{side}", twice, "repeats a name", "give each tensor its own name")
        for index, tensor in enumerate(tensors):
            for dimension in tensor.shape:
                low, dots, high = str(dimension).partition("..")
                if dots and not 1 <= int(low) <= int(high):
                    yield _problem(f"spec.interface.{side}[{index}].shape", dimension, "is not a range",
                                   "write the smaller bound first, at least 1, such as 1..512")
    for index, tensor in enumerate(interface.inputs):
        yield from _normalise(f"spec.interface.inputs[{index}]", tensor)
        yield from image_problems(f"spec.interface.inputs[{index}]", tensor)
    yield from text_problems("spec.interface.inputs", interface.inputs)
    yield from postprocess_problems(interface, spec.accuracy.task)
    yield from padding_problems(interface)
    yield from state_problems(interface)
    yield from constant_problems(interface)
    yield from python_step_problems(spec)


def _normalise(field: str, tensor: InputSpec) -> Iterator[Problem]:
    how = tensor.normalise
    if how is None:
        return
    if tensor.dtype != "uint8":
        yield _problem(f"{field}.dtype", tensor.dtype, "cannot be normalised: clients send bytes",
                       "write uint8, or remove normalise")
    if len(tensor.shape) < 2:
        yield _problem(f"{field}.shape", list(tensor.shape), "has no channels to normalise",
                       "write the shape that clients send, such as [batch, 3, 224, 224]")
        return
    channels = tensor.shape[1 if how.channels == "first" else -1]
    for name, numbers in (("mean", how.mean), ("std", how.std)):
        if len(numbers) not in (1, channels):
            yield _problem(f"{field}.normalise.{name}", list(numbers), f"does not fit {channels} channels",
                           "write one number, or one for each channel")


def _uris(spec: Spec) -> Iterator[Problem]:
    uris = {"spec.source.uri": spec.source.uri, "spec.store.uri": spec.store.uri}
    if spec.engine.calibration is not None:
        uris["spec.engine.calibration.uri"] = spec.engine.calibration.uri
    if spec.accuracy.evaluation is not None:
        uris["spec.accuracy.evaluation.uri"] = spec.accuracy.evaluation.uri
    uris |= {f"spec.engine.checkpoints[{index}].uri": one.uri for index, one in enumerate(spec.engine.checkpoints)}
    uris |= {f"spec.engine.drafts[{index}].uri": one.uri for index, one in enumerate(spec.engine.drafts)}
    for field, uri in uris.items():
        if not uri.startswith("https://") and {"..", "."} & set(uri.split("/")):
            yield _problem(field, uri, "leaves its folder", "write the path without . and ..")


def _resources(spec: Spec) -> Iterator[Problem]:
    yield from _request_within_limit("spec.engine.resources", spec.engine.resources)
    yield from _request_within_limit("spec.serving.resources", spec.serving.resources)
    if spec.quality is not None:
        yield from _request_within_limit("spec.quality.resources", spec.quality.resources)


def _request_within_limit(field: str, resources: ResourcesSpec) -> Iterator[Problem]:
    for name, request in resources.requests.items():
        limit = resources.limits.get(name)
        if limit is not None and parse_quantity(request) > parse_quantity(limit):
            yield _problem(f"{field}.requests.{name}", request, f"exceeds its limit {limit}", "lower it, or raise "
                                                                                              "the limit")


def reach_problems(spec: Spec) -> Iterator[Problem]:
    """Where ``spec`` reaches for what is not its author's."""
    yield from check_serving_template(spec.serving.pod_template)
    yield from check_job_template(spec.engine.pod_template)
    yield from _secrets(spec)


def _secrets(spec: Spec) -> Iterator[Problem]:
    """Anyone who has the Secret that engines are signed with could have any engine served; and built on any requests,
    with that of captures."""
    signature = spec.source.signature
    named = {"spec.source.secretRef": spec.source.secret_ref,
             "spec.store.secretRef": spec.store.secret_ref,
             "spec.source.signature.secretKeyRef": signature.secret_key_ref if signature else None}
    for field, reference in named.items():
        if reference is not None and reference.name in (SIGNING_SECRET, CAPTURE_SECRET):
            yield _problem(f"{field}.name", reference.name, "is reserved for the operator",
                           "name a Secret of your own, or remove it")


_CHECKS: tuple[Callable[[Spec], Iterator[Problem]], ...] = (
    _replicas, schedule_problems, _engine, _checkpoints, _data, _accuracy, _labels, _objective, _energy, _batching,
    _placement, _mig, _rollout, _gateway, _interface, _uris, _resources, reach_problems, _signature, _store,
    quality_problems, captured_problems, queue_problems, response_cache_problems,
)

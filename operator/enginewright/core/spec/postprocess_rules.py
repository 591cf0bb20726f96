"""What ``spec.interface.postprocess`` may say, as far as the spec alone shows it: the build knows the model's
outputs."""

from __future__ import annotations

from collections.abc import Iterator

from enginewright.core.problems import Problem
from enginewright.core.spec.engine import TaskSpec
from enginewright.core.spec.interface import DetectionSpec, InterfaceSpec, PostprocessStepSpec
from enginewright.core.spec.parse import show
from enginewright_builder.contract import INDICES

TOP_K, OBJECT_DETECTION = "topK", "objectDetection"
# Metrics on labels that the best few classes answer.
TOP5, TOP = "top5", 5
OF_BEST = ("accuracy", TOP5, "f1-macro", "f1-micro")
# What objectDetection answers, and metrics on labels of it.
DETECTED, OF_DETECTIONS = ("scores", "labels", "boxes"), ("map", "map50")
# The functions that each field is for.
_OWN = {"mask": ("meanPooling",), "axis": ("argMax",), "k": (TOP_K, OBJECT_DETECTION),
        "detection": (OBJECT_DETECTION,)}


def postprocess_problems(interface: InterfaceSpec, task: TaskSpec | None) -> Iterator[Problem]:
    for index, step in enumerate(interface.postprocess):
        field = f"spec.interface.postprocess[{index}]"
        for name, functions in _OWN.items():
            if getattr(step, name) not in (None, "") and step.function not in functions:
                yield _problem(f"{field}.{name}", getattr(step, name), f"says nothing of function {step.function}",
                               f"remove it, or write function {functions[0]}")
        if step.function == TOP_K:
            yield from _best_few(field, index, interface)
            yield from _labels(step, task)
        if step.function == OBJECT_DETECTION:
            yield from _detection(field, index, interface)
            yield from _objects(task)


def _detection(field: str, index: int, interface: InterfaceSpec) -> Iterator[Problem]:
    step, how = interface.postprocess[index], interface.postprocess[index].detection
    if how is None:
        yield _problem(f"{field}.detection", None, "is missing, and objectDetection needs to know what outputs mean",
                       "write detection, such as {fromSource: true}")
        return
    meanings = how.model_copy(update={"threshold": 0.0, "target_sizes": ""})
    if how.from_source and meanings != DetectionSpec(from_source=True):
        yield _problem(f"{field}.detection.fromSource", True, "says what outputs mean, and so do other fields",
                       "remove fromSource, or all of detection but threshold and targetSizes")
    if how.nms_threshold is not None and not how.threshold > 0:
        yield _problem(f"{field}.detection.threshold", how.threshold,
                       "lets nmsThreshold hold every box against every other",
                       "write the least score that counts, such as 0.05")
    for other in (*interface.postprocess[:index], *interface.postprocess[index + 1:]):
        if other.function == OBJECT_DETECTION or other.output in (step.output, how.boxes or step.output):
            yield _problem(f"{field}.function", step.function, f"is beside {other.function} of {other.output}, and "
                           "objectDetection is the only step of its outputs",
                           "let detection.scoring say what is made of scores, and remove the other")
    inputs = [one.name for one in interface.inputs]
    if how.target_sizes and inputs and how.target_sizes not in inputs:
        yield _problem(f"{field}.detection.targetSizes", how.target_sizes, "is no input",
                       f"write one of {', '.join(inputs)}")


def _objects(task: TaskSpec | None) -> Iterator[Problem]:
    """Labels of what objectDetection answers."""
    if task is None:
        return
    if task.output in DETECTED and task.metric not in OF_DETECTIONS:
        yield _problem("spec.accuracy.task.metric", task.metric, f"is not of detections, which {task.output} has",
                       f"write {' or '.join(OF_DETECTIONS)}, or name another output")
    elif task.metric in OF_DETECTIONS and task.output not in ("", *DETECTED):
        yield _problem("spec.accuracy.task.output", task.output, f"has no detections, which {task.metric} is of",
                       "remove it")


def _labels(step: PostprocessStepSpec, task: TaskSpec | None) -> Iterator[Problem]:
    """Of the best few classes that ``step`` picks."""
    if task is None or task.output not in (step.output, f"{step.output}{INDICES}"):
        return
    if task.metric not in OF_BEST:
        yield _problem("spec.accuracy.task.metric", task.metric,
                       f"takes the scores of all classes, and {task.output} has the best few",
                       f"write {', '.join(OF_BEST)}, name another output, or leave topK out of "
                       "spec.interface.postprocess")
    elif task.metric == TOP5 and step.k is not None and step.k < TOP:
        yield _problem("spec.accuracy.task.metric", task.metric,
                       f"looks among the best {TOP} classes, and topK of {step.output} picks {step.k}",
                       f"write k: {TOP} in spec.interface.postprocess, or metric accuracy")


def _best_few(field: str, index: int, interface: InterfaceSpec) -> Iterator[Problem]:
    step = interface.postprocess[index]
    before, after = ([one for one in part if one.output == step.output]
                     for part in (interface.postprocess[:index], interface.postprocess[index + 1:]))
    if step.k is None:
        yield _problem(f"{field}.k", None, "is missing; topK needs the number of classes to pick",
                       "write a number, such as 5")
    for one in (*(one for one in before if one.function == "argMax"), *after):
        yield _problem(f"{field}.function", step.function, f"is beside {one.function} of the same output, and topK is "
                       "the last step", f"put topK last, once, or remove {one.function}")
    stated = next((tensor.shape for tensor in interface.outputs if tensor.name == step.output), ())
    shape = _pooled(stated, before)
    if stated and len(shape) != 2:
        yield _problem(f"{field}.output", step.output, f"has {len(shape)} dimensions, and topK needs [batch, classes]",
                       "name an output with a score for each class")
    elif stated and isinstance(shape[1], int) and (step.k or 0) > shape[1]:
        yield _problem(f"{field}.k", step.k, f"is more than the {shape[1]} classes of {step.output}",
                       f"write at most {shape[1]}")


def _pooled(shape: tuple[int | str, ...], before: list[PostprocessStepSpec]) -> tuple[int | str, ...]:
    """Without the dimension of tokens, where they are pooled."""
    return (*shape[:1], *shape[2:]) if any(one.function == "meanPooling" for one in before) else shape


def _problem(field: str, value: object, problem: str, remedy: str) -> Problem:
    if isinstance(value, DetectionSpec):
        value = value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return Problem(field=field, value=show(value), message=problem, remedy=remedy)

"""What ``spec.interface.postprocess`` may say, as far as the spec alone shows it: the build knows the model's
outputs."""

from __future__ import annotations

from collections.abc import Iterator

from enginewright.core.problems import Problem
from enginewright.core.spec.engine import TaskSpec
from enginewright.core.spec.parse import show
from enginewright.core.spec.source import InterfaceSpec, PostprocessStepSpec
from enginewright_builder.contract import INDICES

TOP_K = "topK"
# Metrics on labels that the best few classes answer.
TOP5, TOP = "top5", 5
OF_BEST = ("accuracy", TOP5, "f1-macro", "f1-micro")
# The functions that each field is for.
_OWN = {"mask": "meanPooling", "axis": "argMax", "k": TOP_K}


def postprocess_problems(interface: InterfaceSpec, task: TaskSpec | None) -> Iterator[Problem]:
    for index, step in enumerate(interface.postprocess):
        field = f"spec.interface.postprocess[{index}]"
        for name, function in _OWN.items():
            if getattr(step, name) not in (None, "") and step.function != function:
                yield _problem(f"{field}.{name}", getattr(step, name), f"says nothing of function {step.function}",
                               f"remove it, or write function {function}")
        if step.function == TOP_K:
            yield from _best_few(field, index, interface)
            yield from _labels(step, task)


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
        yield _problem(f"{field}.k", None, "is missing, and topK picks so many classes", "write how many, such as 5")
    for one in (*(one for one in before if one.function == "argMax"), *after):
        yield _problem(f"{field}.function", step.function, f"is beside {one.function} of the same output, and topK is "
                       "the last step", f"put topK last, once, or remove {one.function}")
    stated = next((tensor.shape for tensor in interface.outputs if tensor.name == step.output), ())
    shape = _pooled(stated, before)
    if stated and len(shape) != 2:
        yield _problem(f"{field}.output", step.output, f"has {len(shape)} dimensions, and topK is of [batch, classes]",
                       "name an output with a score for each class")
    elif stated and isinstance(shape[1], int) and (step.k or 0) > shape[1]:
        yield _problem(f"{field}.k", step.k, f"is more than the {shape[1]} classes of {step.output}",
                       f"write at most {shape[1]}")


def _pooled(shape: tuple[int | str, ...], before: list[PostprocessStepSpec]) -> tuple[int | str, ...]:
    """Without the dimension of tokens, where they are pooled."""
    return (*shape[:1], *shape[2:]) if any(one.function == "meanPooling" for one in before) else shape


def _problem(field: str, value: object, problem: str, remedy: str) -> Problem:
    return Problem(field=field, value=show(value), message=problem, remedy=remedy)

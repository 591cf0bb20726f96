"""What ``spec.interface.pythonSteps`` may stand beside, as far as the spec alone shows it: the build knows the source's
files."""

from __future__ import annotations

from collections.abc import Iterator

from enginewright.core.problems import Problem
from enginewright.core.spec.interface import InterfaceSpec
from enginewright.core.spec.model import Spec
from enginewright.core.spec.parse import show

_FIELD = "spec.interface.pythonSteps"


def python_step_problems(spec: Spec) -> Iterator[Problem]:
    interface = spec.interface
    if interface is None or interface.python_steps is None:
        return
    steps = interface.python_steps
    if steps.preprocess is None and steps.postprocess is None:
        yield _problem(_FIELD, steps, "names no function",
                       "write preprocess or postprocess, such as steps.py:tokens")
    if steps.preprocess is not None:
        yield from _inputs(interface)
    if steps.postprocess is not None and not interface.outputs:
        yield _problem("spec.interface.outputs", [], "does not say what clients get of pythonSteps.postprocess",
                       "list name, dtype and shape of each, such as [batch, 1]")
    if interface.padding is not None:
        yield _problem("spec.interface.padding", interface.padding.mask, "is not done beside pythonSteps yet",
                       "remove it, or pythonSteps")
    if spec.quality is not None:
        yield _problem("spec.quality", spec.quality, "compares live answers without the functions of pythonSteps",
                       "remove it, or pythonSteps")


def _inputs(interface: InterfaceSpec) -> Iterator[Problem]:
    if not interface.inputs:
        yield _problem("spec.interface.inputs", [], "does not say what clients send to pythonSteps.preprocess",
                       "list name, dtype and shape of each, such as [batch, 1]")
    for index, tensor in enumerate(interface.inputs):
        if tensor.preprocess or tensor.normalise:
            yield _problem(f"spec.interface.inputs[{index}]", tensor.name, "is prepared twice: by preprocess or "
                           "normalise, and by pythonSteps.preprocess",
                           "remove its preprocess and normalise, and let the function do that")


def _problem(field: str, value: object, message: str, remedy: str) -> Problem:
    return Problem(field=field, value=show(value), message=message, remedy=remedy)

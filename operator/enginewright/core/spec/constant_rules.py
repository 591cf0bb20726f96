"""What is wrong with inputs that have one value in all requests."""

from __future__ import annotations

import math
from collections.abc import Iterator

from enginewright.core.problems import Problem
from enginewright.core.spec.interface import InputSpec, InterfaceSpec
from enginewright.core.spec.parse import show


def constant_problems(interface: InterfaceSpec) -> Iterator[Problem]:
    how = interface.sequence_batching
    state = {one.input_name for one in how.state} if how else set()
    for index, tensor in enumerate(interface.inputs):
        if tensor.value is None:
            continue
        field = f"spec.interface.inputs[{index}].value"
        if interface.python_steps is not None and interface.python_steps.preprocess is not None:
            yield _problem(field, tensor, "sets an input that clients send to pythonSteps.preprocess",
                           "remove it, and let the function return it")
        elif tensor.name in state:
            yield _problem(field, tensor, "sets an input that the server keeps as state",
                           "remove it; dataFile of the state says what sequences begin with")
        else:
            yield from _numbers(field, tensor, tensor.value)


def _numbers(field: str, tensor: InputSpec, value: tuple[float, ...]) -> Iterator[Problem]:
    if tensor.normalise or tensor.preprocess:
        yield _problem(field, tensor, "sets an input that is computed from what clients send",
                       "remove it, or normalise and preprocess")
    elif tensor.dtype == "string":
        yield _problem(field, tensor, "sets an input of texts", "remove it, and let clients send the text")
    elif "float" not in tensor.dtype and not all(one.is_integer() for one in value):
        yield _problem(field, tensor, f"does not fit type {tensor.dtype}", "write whole numbers")
    sizes = [size for size in tensor.shape if isinstance(size, int)]
    if len(value) > 1 and len(sizes) == len(tensor.shape) > 0 and len(value) != math.prod(sizes):
        yield _problem(field, tensor, f"does not fill shape {list(tensor.shape)}",
                       "write one number, or one for each element")


def _problem(field: str, tensor: InputSpec, message: str, remedy: str) -> Problem:
    return Problem(field=field, value=show(list(tensor.value or ())), message=message, remedy=remedy)

"""What ``spec.interface.padding`` may say, as far as the spec alone shows it: the build knows the model's inputs."""

from __future__ import annotations

from collections.abc import Iterator

from enginewright.core.problems import Problem
from enginewright.core.spec.interface import InterfaceSpec
from enginewright.core.spec.parse import show

_FIELD = "spec.interface.padding"


def padding_problems(interface: InterfaceSpec) -> Iterator[Problem]:
    padding = interface.padding
    if padding is None:
        return
    known = [tensor.name for tensor in interface.inputs if tensor.value is None]
    listed = f"write one of {', '.join(known)}"
    if known and padding.mask not in known:
        yield _problem("mask", padding.mask, "is no input of spec.interface.inputs", listed)
    names = [one.input for one in padding.values]
    for index, name in enumerate(names):
        field = f"values[{index}].input"
        if name in names[:index]:
            yield _problem(field, name, "is filled up twice", "write one value for each input")
        elif name == padding.mask:
            yield _problem(field, name, "is the mask, which is filled up with 0", "remove it")
        elif known and name not in known:
            yield _problem(field, name, "is no input of spec.interface.inputs", listed)


def _problem(field: str, value: str, problem: str, remedy: str) -> Problem:
    return Problem(field=f"{_FIELD}.{field}", value=show(value), message=problem, remedy=remedy)

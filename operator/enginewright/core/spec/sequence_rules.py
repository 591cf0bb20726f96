"""What ``spec.interface.sequenceBatching`` may say, as far as the spec alone shows it: the build knows the model's
tensors."""

from __future__ import annotations

from collections.abc import Iterator

from enginewright.core.problems import Problem
from enginewright.core.spec.interface import InputSpec, InterfaceSpec
from enginewright.core.spec.parse import show

_FIELD = "spec.interface.sequenceBatching.state"


def state_problems(interface: InterfaceSpec) -> Iterator[Problem]:
    how = interface.sequence_batching
    if how is None:
        return
    for index, tensor in enumerate(interface.inputs):
        if tensor.normalise or tensor.preprocess:
            yield _problem(f"spec.interface.inputs[{index}]", tensor.name, "cannot be prepared by an engine that "
                           "answers sequences", "remove its normalise and preprocess, and let clients send what the "
                           "source takes")
    for side, name, listed in (("inputName", "input", interface.inputs), ("outputName", "output", interface.outputs)):
        known = [tensor.name for tensor in listed]
        left = [tensor.name for tensor in listed if not (isinstance(tensor, InputSpec) and tensor.value)]
        names = [one.input_name if name == "input" else one.output_name for one in how.state]
        for index, one in enumerate(names):
            field = f"{_FIELD}[{index}].{side}"
            if one in names[:index]:
                yield _problem(field, one, "is there twice", f"write one state for each {name}")
            elif left and one not in known:
                yield _problem(field, one, f"is no {name} of spec.interface.{name}s",
                               f"write one of {', '.join(known)}")
        if left and set(left) <= set(names):
            yield _problem(_FIELD, names, f"leaves no {name} for clients", f"leave out what clients "
                                                                           f"{'send' if name == 'input' else 'get'}")


def _problem(field: str, value: object, message: str, remedy: str) -> Problem:
    return Problem(field=field, value=show(value), message=message, remedy=remedy)

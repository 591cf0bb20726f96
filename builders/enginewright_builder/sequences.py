"""What a model with state looks like from outside, and what can be said of its state before it runs.

The server keeps the state (``pod/python_model/sequences.py``), so that clients send and get everything else, a step of
a sequence with each request. Everything that tries an engine takes a whole sequence for one sample: in all arrays the
steps stand behind the samples, ``{"sound": float32[samples, steps, 1, 512]}``.

A graph that takes batches, state and all, computes steps of several sequences in one run: each is a batch of 1. Any
other takes a step as a call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from enginewright_builder.contract import Interface, SequenceBatching, StateTensor, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.shapes import BATCH, STEPS, is_batch, sample_shape, shape_text, takes_batches
from enginewright_builder.tensors import Array, Tensors

_FIELD = "spec.interface.sequenceBatching"
# States that wait to be dropped are as many as those that live, at most.
_TIMES = 2


def sent(interface: Interface) -> tuple[TensorSpec, ...]:
    """The inputs of one request."""
    return _without(interface.inputs, {one.input_name for one in _state(interface)})


def answered(interface: Interface) -> tuple[TensorSpec, ...]:
    """The outputs of one request."""
    return _without(interface.outputs, {one.output_name for one in _state(interface)})


def initial(interface: Interface, count: int) -> dict[str, Any]:
    """What ``count`` sequences begin with, as a graph takes it."""
    specs = {spec.name: spec for spec in interface.inputs}
    return {one.input_name: _begun(one, specs[one.input_name], count, batched=takes_batches(interface))
            for one in _state(interface)}


def taken(interface: Interface, requests: Tensors) -> dict[str, Array]:
    """What a graph takes, beside state, of one request of each sequence: ``{"sound": float32[sequences, 1, 512]}``."""
    return {name: array[:, 0] if takes_batches(interface) else array for name, array in requests.items()}


def given(interface: Interface, answers: Tensors) -> dict[str, Array]:
    """What requests of one step of each sequence are answered, of what the graph gives."""
    return {spec.name: answers[spec.name][:, None] if takes_batches(interface) else answers[spec.name]
            for spec in answered(interface)}


def following(interface: Interface, answers: Mapping[str, Any]) -> dict[str, Any]:
    """The state that the next step begins with."""
    return {one.input_name: answers[one.output_name] for one in _state(interface)}


def in_steps(interface: Interface) -> Interface:
    """Samples that are sequences: behind the batch are the steps, and behind these the shapes of one request."""
    def stepped(specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        return tuple(dataclasses.replace(spec, shape=(BATCH, STEPS, *_alone(spec, interface))) for spec in specs)

    return Interface(inputs=stepped(sent(interface)), outputs=stepped(answered(interface)))


def described_state(interface: Interface) -> dict[str, Any]:
    """As ``engines.json`` has it; empty where there is none."""
    how, inputs = interface.sequence_batching, {spec.name: spec for spec in interface.inputs}
    if how is None:
        return {}
    return {"state": [{"input": one.input_name, "output": one.output_name, "dtype": inputs[one.input_name].dtype,
                       "shape": list(_alone(inputs[one.input_name], interface)),
                       **({"begin": list(one.begins)} if one.begins else {})} for one in how.state],
            "most": _TIMES * how.max_candidate_sequences, "idle": how.max_sequence_idle_us / 1e6}


def fixed(found: Interface, how: SequenceBatching) -> Interface:
    """``found``, a graph's own, for requests of one sequence each: free sizes that are called like a batch are 1.
    Raises :class:`UserError` ``InterfaceInvalid`` for state that cannot be carried."""
    found = with_carried_sizes(found, how)
    inputs, outputs = ({spec.name: spec for spec in side} for side in (found.inputs, found.outputs))
    for index, one in enumerate(how.state):
        _known(f"state[{index}].inputName", one.input_name, "input", inputs)
        _known(f"state[{index}].outputName", one.output_name, "output", outputs)

    def alone(specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        return tuple(dataclasses.replace(spec, shape=tuple(1 if is_batch(size) else size for size in spec.shape))
                     for spec in specs)

    made = Interface(inputs=alone(found.inputs), outputs=alone(found.outputs), sequence_batching=how)
    inputs, outputs = ({spec.name: spec for spec in side} for side in (made.inputs, made.outputs))
    for index, one in enumerate(how.state):
        _carried(f"state[{index}]", inputs[one.input_name], outputs[one.output_name])
    _left(made)
    return made


def with_carried_sizes(found: Interface, how: SequenceBatching) -> Interface:
    """``found`` with the sizes of state that comes out as they go in, where the graph leaves them free: exporters name
    them for each tensor by itself, or not at all."""
    inputs = {spec.name: spec for spec in found.inputs}
    taken = {one.output_name: inputs[one.input_name] for one in how.state if one.input_name in inputs}

    def sized(spec: TensorSpec) -> TensorSpec:
        into = taken.get(spec.name)
        if into is None or len(into.shape) != len(spec.shape):
            return spec
        return dataclasses.replace(spec, shape=tuple(
            size if isinstance(size, int) else other for size, other in zip(spec.shape, into.shape, strict=True)))

    return dataclasses.replace(found, outputs=tuple(map(sized, found.outputs)))


def most_joined(how: SequenceBatching, max_batch_size: int) -> int:
    """How many steps one run may have: Triton leads no more sequences to an instance than it may have at once."""
    return min(max_batch_size, how.max_candidate_sequences)


def kept_note(interface: Interface, why_not: str) -> str:
    """``why_not``: why steps are not joined, empty where they are."""
    names = ", ".join(one.input_name for one in _state(interface))
    how = (f"by itself, since {why_not}: steps of several sequences are not joined" if why_not else
           "together with those of other sequences that wait at the same moment, up to spec.engine.maxBatchSize in all")
    return (f"The server keeps the state ({names}) of each sequence. A request is one step of one sequence, which the "
            f"engine computes {how}")


def check_sequences(format_: str, interface: Interface) -> None:
    """What is not done together with state. Raises :class:`UserError` ``InterfaceInvalid``."""
    if format_ != "onnx":
        raise UserError("InterfaceInvalid", f"the server keeps state of ONNX models alone, and this source is "
                        f"{format_}", field=f"{_FIELD}.state", value=format_,
                        remedy="export the model to ONNX, or leave sequenceBatching out and let clients carry the "
                               "state")
    beside = {"postprocess": interface.postprocess, "padding": interface.padding,
              "inputs.normalise": any(spec.normalise for spec in interface.inputs),
              "inputs.preprocess": any(spec.preprocess for spec in interface.inputs)}
    for name, given in beside.items():
        if given:
            raise UserError("InterfaceInvalid", "cannot stand beside sequenceBatching", field=f"spec.interface.{name}",
                            value=name, remedy="remove it, or let clients carry the state")


def _known(field: str, name: str, kind: str, specs: Mapping[str, TensorSpec]) -> None:
    if name not in specs:
        raise UserError("InterfaceInvalid", f"{name!r} is no {kind} of the model", field=f"{_FIELD}.{field}",
                        value=name, remedy=f"write one of {', '.join(specs)}")


def _carried(field: str, taken: TensorSpec, given: TensorSpec) -> None:
    if free := [size for size in taken.shape if not isinstance(size, int)]:
        raise UserError("InterfaceInvalid", f"state {taken.name!r} has the free size {free[0]!r}, so that it is "
                        "unknown how many zeros a sequence begins with", field=f"{_FIELD}.{field}.inputName",
                        value=f"{taken.name} {shape_text(taken.shape)}",
                        remedy="write its size as a number into spec.interface.inputs, or export the model with it")
    if taken.dtype != given.dtype:
        raise UserError("InterfaceInvalid", f"state goes in as {taken.name!r} of type {taken.dtype} and comes out as "
                        f"{given.name!r} of type {given.dtype}", field=f"{_FIELD}.{field}.outputName",
                        value=f"{given.name}: {given.dtype}", remedy="export the model with one type of both")
    if taken.dtype == "string":
        raise UserError("InterfaceInvalid", f"state {taken.name!r} is of texts", field=f"{_FIELD}.{field}.inputName",
                        value=taken.name, remedy="export the model with numbers as its state")
    unlike = len(taken.shape) != len(given.shape) or any(
        isinstance(other, int) and other != size for size, other in zip(taken.shape, given.shape, strict=True))
    if unlike:
        raise UserError("InterfaceInvalid", f"state goes in as {taken.name!r} {shape_text(taken.shape)} and comes out "
                        f"as {given.name!r} {shape_text(given.shape)}", field=f"{_FIELD}.{field}.outputName",
                        value=f"{given.name} {shape_text(given.shape)}",
                        remedy="name the output that has the state of the next request, in the input's own shape")


def _left(made: Interface) -> None:
    for kind, left in (("input", sent(made)), ("output", answered(made))):
        if not left:
            raise UserError("InterfaceInvalid", f"every {kind} of the model is state, so that a request has none",
                            field=f"{_FIELD}.state", value=", ".join(one.input_name for one in _state(made)),
                            remedy=f"leave out of it what clients {'send' if kind == 'input' else 'get'}")


def _begun(one: StateTensor, spec: TensorSpec, count: int, *, batched: bool) -> Array:
    shape = (count, *map(int, sample_shape(spec, batched=batched)))
    made = np.zeros(shape, spec.dtype)
    if one.begins:  # where a batch of 1 stands in it is the same to their order
        made[:] = np.array(one.begins).reshape(shape[1:])
    return made


def _alone(spec: TensorSpec, interface: Interface) -> tuple[int | str, ...]:
    """Of one request, or of the state beside it."""
    return (1, *spec.shape[1:]) if takes_batches(interface) else spec.shape


def _state(interface: Interface) -> Sequence[StateTensor]:
    return interface.sequence_batching.state if interface.sequence_batching else ()


def _without(specs: tuple[TensorSpec, ...], names: set[str]) -> tuple[TensorSpec, ...]:
    return tuple(spec for spec in specs if spec.name not in names) if names else specs

"""A source whose state the server keeps, so that a sample is a whole sequence: the source itself, asked step by step.

What is measured of it and of engines is a step; what is compared are whole sequences, each begun with its first state.
An engine that loses a little in each step, or forgets, drifts away from the source in the course of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from enginewright_builder.contract import Interface
from enginewright_builder.models.base import SourceModel, TorchProgram
from enginewright_builder.models.wrapped import Wrapped
from enginewright_builder.sequences import following, given, in_steps, initial, taken
from enginewright_builder.tensors import Array, Call, Tensors, count

Run = Callable[[Tensors], Tensors]


class Sequenced(Wrapped):
    """``inner`` takes whole calls, or batches of them, with its state among inputs and outputs, and its interface says
    which is state."""

    tokenize = None

    def __init__(self, inner: SourceModel) -> None:
        super().__init__(inner)
        self.inner = inner
        self.interface: Interface = in_steps(inner.interface)

    def run(self, inputs: Tensors) -> Tensors:
        return unrolled(self.inner.run, self.inner.interface, inputs)

    def bind(self, inputs: Tensors) -> Call:
        """One step."""
        return self.inner.bind(self.begun(inputs))

    def begun(self, inputs: Tensors) -> Tensors:
        """What a graph takes at the first step of each sequence."""
        return first_call(self.inner.interface, inputs)

    def calls(self, inputs: Tensors, most: int) -> list[Tensors]:
        """What a graph takes at ``most`` steps, equally far apart, with the state that the source has there."""
        taken = list(_calls_of(self, inputs))
        places = np.unique(np.linspace(0, len(taken) - 1, min(most, len(taken))).round().astype(int))
        return [taken[place] for place in places]

    def export_onnx(self, path: Path, opset: int, precision: str = "fp32") -> None:
        self.inner.export_onnx(path, opset, precision)

    def torch_program(self, precision: str, batch: int = 0) -> TorchProgram | None:
        return None


def first_call(interface: Interface, inputs: Tensors) -> Tensors:
    """``inputs`` are sequences, the steps behind the samples."""
    return {**_at(interface, inputs, 0), **initial(interface, count(inputs))}


def unrolled(run: Run, interface: Interface, inputs: Tensors) -> dict[str, Array]:
    """Answers to all steps of sequences. ``run`` takes a call of each, with its state."""
    state, answers = initial(interface, count(inputs)), list[Tensors]()
    for step in range(_steps(inputs)):
        found = run({**_at(interface, inputs, step), **state})
        state = following(interface, found)
        answers.append(given(interface, found))
    return {name: np.stack([answer[name] for answer in answers], axis=1) for name in answers[0]}


def _calls_of(model: Sequenced, inputs: Tensors) -> Iterator[Tensors]:
    state = initial(model.inner.interface, count(inputs))
    for step in range(_steps(inputs)):
        call = {**_at(model.inner.interface, inputs, step), **state}
        yield call
        state = following(model.inner.interface, model.inner.run(call))


def _at(interface: Interface, inputs: Tensors, step: int) -> dict[str, Array]:
    return taken(interface, {name: array[:, step] for name, array in inputs.items()})


def _steps(inputs: Tensors) -> int:
    return int(next(iter(inputs.values())).shape[1])

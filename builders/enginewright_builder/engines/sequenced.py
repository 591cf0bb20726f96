"""Engines whose server keeps the state of sequences, whatever the engine: each is built as ever, of the graph that
takes and gives its state, and Triton's Python backend runs it beside ``pod/python_model/sequences.py``.

Its runner here asks whole sequences with the engine's own state from step to step, so that a candidate is held against
the source with all that it lost in the steps before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from enginewright_builder.contract import Interface
from enginewright_builder.engines.base import Artifact, BuildContext, Engine, ExportedModel, Rung, Runner, in_python
from enginewright_builder.models.sequenced import first_call, unrolled
from enginewright_builder.tensors import Call, Tensors


def sequenced(engines: Sequence[Engine], interface: Interface) -> list[Engine]:
    """``engines`` for sequences of what the graph takes, whose ``interface`` says which is state."""
    return [_Sequenced(one, interface) for one in engines]


class _Sequenced:
    def __init__(self, inner: Engine, interface: Interface) -> None:
        self.name, self._inner, self._interface = inner.name, inner, interface

    def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
        return self._inner.rungs(precision, in_python(context))

    def specialised(self, rung: Rung, context: BuildContext) -> Sequence[Rung]:
        return self._inner.specialised(rung, in_python(context))

    def build(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Artifact:
        return replace(self._inner.build(rung, model, in_python(context)), interface=self._interface)

    def load(self, artifact: Artifact) -> Runner:
        return _SequenceRunner(self._inner.load(artifact), self._interface)


class _SequenceRunner:
    def __init__(self, inner: Runner, interface: Interface) -> None:
        self._inner, self._interface, self.close = inner, interface, inner.close

    def __call__(self, inputs: Tensors) -> Tensors:
        return unrolled(self._inner, self._interface, inputs)

    def bind(self, inputs: Tensors) -> Call:
        """One step, as the source is timed."""
        return self._inner.bind(first_call(self._interface, inputs))

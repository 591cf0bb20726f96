"""Engines whose server keeps the state of sequences: each is built of the graph that takes and gives its state, and
Triton's Python backend runs it beside ``pod/python_model/sequences.py``.

The runner here asks whole sequences with the engine's own state from step to step, so that a candidate is held against
the source with all that it lost in the steps before.
"""

from __future__ import annotations

from collections.abc import Sequence

from enginewright_builder.contract import Interface
from enginewright_builder.engines.around import Surroundings, around
from enginewright_builder.engines.base import Engine, Runner
from enginewright_builder.models.sequenced import first_call, unrolled
from enginewright_builder.tensors import Call, Tensors


def sequenced(engines: Sequence[Engine], interface: Interface) -> list[Engine]:
    """``engines`` for sequences of what the graph takes, whose ``interface`` says which is state."""
    return around(engines, Surroundings(interface=interface, runner=lambda inner: _SequenceRunner(inner, interface)))


class _SequenceRunner:
    def __init__(self, inner: Runner, interface: Interface) -> None:
        self._inner, self._interface, self.close = inner, interface, inner.close

    def __call__(self, inputs: Tensors) -> Tensors:
        return unrolled(self._inner, self._interface, inputs)

    def bind(self, inputs: Tensors) -> Call:
        """One step, as the source is timed."""
        return self._inner.bind(first_call(self._interface, inputs))

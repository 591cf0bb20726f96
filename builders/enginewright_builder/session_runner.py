"""Runs engines in this process by the very modules that serve them in Triton's Python backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from enginewright_builder.errors import UserError
from enginewright_builder.tensors import Array, Call, Tensors, count, whole_call


class Session(Protocol):
    """What each ``*_session.py`` of ``pod/python_model`` has."""

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]: ...

    def bind(self, inputs: Mapping[str, Any]) -> Callable[[], object]: ...

    def close(self) -> None: ...


class SessionRunner:
    """A session as a :class:`Runner`. ``batched`` False: the model takes no batches, so each sample is a call."""

    def __init__(self, session: Session, *, batched: bool = True) -> None:
        self._session, self._batched = session, batched

    def __call__(self, inputs: Tensors) -> Tensors:
        return self._session.run(inputs) if self._batched else call_by_call(self._session.run, inputs)

    def bind(self, inputs: Tensors) -> Call:
        """Of a model that takes no batches the first sample alone."""
        return self._session.bind(inputs if self._batched else whole_call(inputs))

    def close(self) -> None:
        self._session.close()


def call_by_call(call: Callable[[Tensors], Tensors], tensors: Tensors) -> dict[str, Array]:
    """Answers to each sample alone, in front of each other. Raises :class:`UserError` ``UnsupportedModel`` where they
    differ in shape."""
    answers = [call(whole_call(tensors, index)) for index in range(count(tensors))]
    return {name: _in_front(name, [np.asarray(one[name]) for one in answers]) for name in answers[0]}


def _in_front(name: str, arrays: Sequence[Array]) -> Array:
    for array in arrays:
        if array.shape != arrays[0].shape:
            raise UserError("UnsupportedModel", f"output {name!r} has another shape from request to request, such as "
                            f"{list(arrays[0].shape)} and {list(array.shape)}, for inputs of one shape: how close an "
                            "engine's answers are could not be measured", field="spec.source.uri", value=name,
                            remedy="export the model so that it answers a fixed number of results, filled up or cut")
    found: Array = np.stack(arrays)
    return found

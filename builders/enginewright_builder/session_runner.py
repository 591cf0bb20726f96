"""Runs engines in this process by the very modules that serve them in Triton's Python backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from enginewright_builder.tensors import Array, Call, Tensors


class Session(Protocol):
    """What each ``*_session.py`` of ``pod/python_model`` has."""

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]: ...

    def bind(self, inputs: Mapping[str, Any]) -> Callable[[], object]: ...

    def close(self) -> None: ...


class SessionRunner:
    """A session as a :class:`Runner`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __call__(self, inputs: Tensors) -> Tensors:
        return self._session.run(inputs)

    def bind(self, inputs: Tensors) -> Call:
        return self._session.bind(inputs)

    def close(self) -> None:
        self._session.close()

"""Runs engines in this process by the very modules that serve them in Triton's Python backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from enginewright_builder.engines.base import Artifact
from enginewright_builder.tensors import Array, Call, Tensors

# Parameters of an artifact: batches whose CUDA graphs are captured, by this project's Python model or by Triton's own
# backend, which also has to be told the profiles.
BUCKETS, GRAPH_BATCHES, PROFILES = "buckets", "graph_batches", "profiles"


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


def captured_batches(artifact: Artifact) -> list[int]:
    """The batches that the Python model captures as CUDA graphs."""
    text = artifact.parameters.get(BUCKETS) or artifact.parameters.get(GRAPH_BATCHES, "")
    return [int(part) for part in text.split(",") if part.strip()]


def session_parameters(artifact: Artifact) -> dict[str, str]:
    """What a session is told, apart from the batches to capture."""
    return {key: value for key, value in artifact.parameters.items() if key not in (BUCKETS, GRAPH_BATCHES, PROFILES)}

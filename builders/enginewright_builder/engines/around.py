"""Engines with something around them, whatever the engine: each is built as ever, and Triton's Python backend runs it
behind what makes its inputs of those that clients send.

Its runner here asks the same way, so that a candidate is held against the source end to end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from enginewright_builder.contract import Interface
from enginewright_builder.engines.base import (
    Artifact,
    Beside,
    BuildContext,
    Engine,
    ExportedModel,
    Foresighted,
    Rung,
    Runner,
    in_python,
)
from enginewright_builder.own_steps import is_own
from enginewright_builder.texts import TOKENISER_FILE


def is_around(name: str) -> bool:
    """Whether a file of an artifact is what stands around its engine: the tokenizer, and functions of the user's."""
    return name == TOKENISER_FILE or is_own(name)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """``interface`` is that of clients; ``runner`` makes of an engine's runner one that clients could ask; ``files`` is
    what a replica needs for it beside the engine's own, by name."""

    interface: Interface
    runner: Callable[[Runner], Runner]
    files: Mapping[str, Path] = field(default_factory=dict)


def around(engines: Sequence[Engine], surroundings: Surroundings) -> list[Engine]:
    """``engines``, each within ``surroundings``."""
    return [(_Foresighted if isinstance(one, Foresighted) else _Surrounded)(one, surroundings) for one in engines]


class _Surrounded:
    def __init__(self, inner: Engine, surroundings: Surroundings) -> None:
        self.name, self._inner, self._around = inner.name, inner, surroundings

    def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
        return self._inner.rungs(precision, in_python(context))

    def specialised(self, rung: Rung, context: BuildContext) -> Sequence[Rung]:
        return self._inner.specialised(rung, in_python(context))

    def build(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Artifact:
        own = self._inner.build(rung, model, in_python(context))
        return replace(own, files={**own.files, **self._around.files}, interface=self._around.interface)

    def load(self, artifact: Artifact) -> Runner:
        files = {name: path for name, path in artifact.files.items() if name not in self._around.files}
        return self._around.runner(self._inner.load(replace(artifact, files=files)))


class _Foresighted(_Surrounded):
    def at_a_time(self, cpus: int) -> int:
        assert isinstance(self._inner, Foresighted)  # else it is no engine of this class
        return self._inner.at_a_time(cpus)

    def foresees(self, rung: Rung) -> bool:
        assert isinstance(self._inner, Foresighted)  # else it is no engine of this class
        return self._inner.foresees(rung)

    def begin(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Beside | None:
        assert isinstance(self._inner, Foresighted)  # else it is no engine of this class
        return self._inner.begin(rung, model, in_python(context))

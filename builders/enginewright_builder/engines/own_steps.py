"""Engines with functions of the user's own before and behind them, whatever the engine: each is built as ever, and
Triton's Python backend runs it between them.

Its runner here asks by the same functions, so that a candidate is held against the source end to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

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
from enginewright_builder.tensors import Call, Tensors


class Functions(Protocol):
    """The source's, with ``files`` that make an engine run them, by name."""

    @property
    def interface(self) -> Interface: ...

    @property
    def files(self) -> dict[str, Path]: ...

    def before(self, inputs: Tensors) -> Tensors: ...

    def behind(self, answers: Tensors) -> Tensors: ...


def own_stepped(engines: Sequence[Engine], functions: Functions) -> list[Engine]:
    """``engines`` for clients that send and get what ``functions`` say."""
    return [(_Foresighted if isinstance(one, Foresighted) else _OwnStepped)(one, functions) for one in engines]


class _OwnStepped:
    def __init__(self, inner: Engine, functions: Functions) -> None:
        self.name, self._inner, self._functions = inner.name, inner, functions

    def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
        return self._inner.rungs(precision, in_python(context))

    def specialised(self, rung: Rung, context: BuildContext) -> Sequence[Rung]:
        return self._inner.specialised(rung, in_python(context))

    def build(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Artifact:
        own = self._inner.build(rung, model, in_python(context))
        return replace(own, files={**own.files, **self._functions.files}, interface=self._functions.interface)

    def load(self, artifact: Artifact) -> Runner:
        files = {name: path for name, path in artifact.files.items() if not is_own(name)}
        return _OwnRunner(self._inner.load(replace(artifact, files=files)), self._functions)


class _Foresighted(_OwnStepped):
    def begin(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Beside | None:
        assert isinstance(self._inner, Foresighted)  # else it is no engine of this class
        return self._inner.begin(rung, model, in_python(context))


class _OwnRunner:
    def __init__(self, inner: Runner, functions: Functions) -> None:
        self._inner, self._functions, self.close = inner, functions, inner.close

    def __call__(self, inputs: Tensors) -> Tensors:
        return self._functions.behind(self._inner(self._functions.before(inputs)))

    def bind(self, inputs: Tensors) -> Call:
        """Without the functions, as the source is timed."""
        return self._inner.bind(self._functions.before(inputs))

"""Engines with functions of the user's own before and behind them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from enginewright_builder.contract import Interface
from enginewright_builder.engines.around import Surroundings, around
from enginewright_builder.engines.base import Engine, Runner
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
    return around(engines, Surroundings(interface=functions.interface, files=functions.files,
                                        runner=lambda inner: _OwnRunner(inner, functions)))


class _OwnRunner:
    def __init__(self, inner: Runner, functions: Functions) -> None:
        self._inner, self._functions, self.close = inner, functions, inner.close

    def __call__(self, inputs: Tensors) -> Tensors:
        return self._functions.behind(self._inner(self._functions.before(inputs)))

    def bind(self, inputs: Tensors) -> Call:
        """Without the functions, as the source is timed."""
        return self._inner.bind(self._functions.before(inputs))

"""Engines whose server makes token ids of the texts that clients send."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from enginewright_builder.contract import Interface
from enginewright_builder.engines.around import Surroundings, around
from enginewright_builder.engines.base import Engine, Runner
from enginewright_builder.pod.python_model.tokeniser import Tokeniser
from enginewright_builder.tensors import Call, Tensors
from enginewright_builder.texts import TOKENISER_FILE


def texted(engines: Sequence[Engine], interface: Interface, tokeniser: Path) -> list[Engine]:
    """``engines`` for clients that send texts, as ``interface`` says. ``tokeniser`` is the file of what serves."""
    return around(engines, Surroundings(
        interface=interface, files={TOKENISER_FILE: tokeniser},
        runner=lambda inner: _TextRunner(inner, Tokeniser(tokeniser))))


class _TextRunner:
    def __init__(self, inner: Runner, tokeniser: Tokeniser) -> None:
        self._inner, self._tokeniser, self.close = inner, tokeniser, inner.close

    def __call__(self, inputs: Tensors) -> Tensors:
        return self._inner(self._tokens(inputs))

    def bind(self, inputs: Tensors) -> Call:
        """Without the tokenizer, as the source is timed."""
        return self._inner.bind(self._tokens(inputs))

    def _tokens(self, inputs: Tensors) -> Tensors:
        """Token ids go in as they are."""
        texts = inputs.get(self._tokeniser.input)
        return inputs if texts is None else self._tokeniser.arrays(texts)

"""Engines whose server makes token ids of the texts that clients send, whatever the engine: each is built as ever, and
Triton's Python backend runs it behind the tokenizer.

Its runner here asks by the same tokenizer, so that a candidate is held against the source end to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
from enginewright_builder.pod.python_model.tokeniser import Tokeniser
from enginewright_builder.tensors import Call, Tensors
from enginewright_builder.texts import TOKENISER_FILE


def texted(engines: Sequence[Engine], interface: Interface, tokeniser: Path) -> list[Engine]:
    """``engines`` for clients that send texts, as ``interface`` says. ``tokeniser`` is the file of what serves."""
    return [(_Foresighted if isinstance(one, Foresighted) else _Texted)(one, interface, tokeniser) for one in engines]


class _Texted:
    def __init__(self, inner: Engine, interface: Interface, tokeniser: Path) -> None:
        self.name, self._inner, self._interface, self._tokeniser = inner.name, inner, interface, tokeniser

    def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
        return self._inner.rungs(precision, in_python(context))

    def specialised(self, rung: Rung, context: BuildContext) -> Sequence[Rung]:
        return self._inner.specialised(rung, in_python(context))

    def build(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Artifact:
        own = self._inner.build(rung, model, in_python(context))
        return replace(own, files={**own.files, TOKENISER_FILE: self._tokeniser}, interface=self._interface)

    def load(self, artifact: Artifact) -> Runner:
        files = {name: path for name, path in artifact.files.items() if name != TOKENISER_FILE}
        return _TextRunner(self._inner.load(replace(artifact, files=files)), Tokeniser(self._tokeniser))


class _Foresighted(_Texted):
    def begin(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Beside | None:
        assert isinstance(self._inner, Foresighted)  # else it is no engine of this class
        return self._inner.begin(rung, model, in_python(context))


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

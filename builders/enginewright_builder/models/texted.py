"""A source that takes texts: the user's own behind its own tokenizer.

The reference stays honest: transformers' tokenizer makes the token ids that the source is asked with. Engines get
theirs from the tokenizer that will serve (``engines/texted.py``) and are held against that. Graphs are made of the
source itself: a tokenizer is no graph.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.models.base import SourceModel, TorchProgram
from enginewright_builder.models.folder_tokenizer import FolderTokenizer
from enginewright_builder.models.own_steps import OwnStepped
from enginewright_builder.models.sequenced import Sequenced
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.models.wrapped import Wrapped
from enginewright_builder.pod.python_model.tokeniser import Tokeniser
from enginewright_builder.tensors import Call, Tensors
from enginewright_builder.texts import TOKENISER_FILE

_TRIED = 16


class Texted(Wrapped):
    """``inner`` asked with texts by the name and shape of ``spec``. ``tokeniser`` is the file that servers make the
    same token ids with, below ``workspace``, and ``serving`` is what they do so by. Raises :class:`UserError`
    ``InterfaceInvalid`` for a source with no tokenizer for all of its inputs, or with one that servers cannot run."""

    tokenize = None

    def __init__(self, inner: SourceModel, spec: TensorSpec, workspace: Path) -> None:
        super().__init__(inner)
        self.inner, self._text = inner, spec.name
        self._tokenizer = _tokenizer(inner, spec)
        self.interface: Interface = Interface(inputs=(spec,), outputs=inner.interface.outputs)
        self.tokeniser = workspace / TOKENISER_FILE
        self._tokenizer.write(self.tokeniser, spec.name)
        self.serving = Tokeniser(self.tokeniser)
        self._try()

    def tokens(self, inputs: Tensors) -> Tensors:
        """The source's own inputs, by its own tokenizer."""
        return self._tokenizer.arrays(inputs[self._text])

    def run(self, inputs: Tensors) -> Tensors:
        return self.inner.run(self.tokens(inputs))

    def bind(self, inputs: Tensors) -> Call:
        """Without the tokenizer, which a client of the source runs before."""
        return self.inner.bind(self.tokens(inputs))

    def export_onnx(self, path: Path, opset: int, precision: str = "fp32") -> None:
        self.inner.export_onnx(path, opset, precision)

    def torch_program(self, precision: str, batch: int = 0) -> TorchProgram | None:
        return self.inner.torch_program(precision, batch)

    def _try(self) -> None:
        """The tokenizer that serves makes the same token ids: transformers' may do more than its library."""
        texts = example_inputs(self.interface, _TRIED)[self._text]
        texts[0, 0] = texts[0, 0] * self._tokenizer.limit  # one that is cut
        wanted, served = self._tokenizer.arrays(texts), self.serving.arrays(texts)
        for name, array in wanted.items():
            if not np.array_equal(array, served[name]):
                raise UserError("InterfaceInvalid", "the source's tokenizer cannot be served: the library tokenizers "
                                f"makes other {name} than transformers does",
                                field=f"spec.interface.inputs[{self._text}].preprocess.fromSource", value=name,
                                remedy="name a function that runs it in spec.interface.pythonSteps, or leave the input "
                                       "out and let clients send token ids")


def in_tokens(source: SourceModel) -> SourceModel:
    """What graphs are made of."""
    while isinstance(source, Texted | Sequenced | OwnStepped):
        source = source.inner
    return source


def given(source: SourceModel, inputs: Tensors) -> Tensors:
    """What a graph of it takes, of what clients send: of sequences at the first step."""
    if isinstance(source, Sequenced):
        return source.begun(inputs)
    if isinstance(source, OwnStepped):
        return given(source.inner, source.before(inputs))
    return source.tokens(inputs) if isinstance(source, Texted) else inputs


def _tokenizer(inner: SourceModel, spec: TensorSpec) -> FolderTokenizer:
    if isinstance(inner.tokenize, FolderTokenizer):
        return inner.tokenize
    takes = ", ".join(one.name for one in inner.interface.inputs)
    raise UserError("InterfaceInvalid", f"input {spec.name!r} is of texts, and no tokenizer makes all that the model "
                    f"takes: {takes}", field="spec.interface.inputs", value=spec.name,
                    remedy="leave the input out, and let clients send what the model takes")

"""What every source model can do, whatever it was saved as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from enginewright_builder.contract import Interface
from enginewright_builder.engines.base import Tensors

# Texts to one padded batch of inputs.
Tokenize = Callable[[Sequence[str]], Tensors]


class SourceModel(Protocol):
    """The model as the user gave it. ``name`` says what the reference is (``PyTorch eager, FP32``); ``tokenize`` is
    None for models that bring no tokenizer; ``vocabulary`` is how many token identifiers there are."""

    @property
    def name(self) -> str: ...

    @property
    def interface(self) -> Interface: ...

    @property
    def tokenize(self) -> Tokenize | None: ...

    @property
    def vocabulary(self) -> int: ...

    @property
    def candidate(self) -> str:
        """Name of the candidate that computes exactly what the source does, empty if none does."""
        ...

    def run(self, inputs: Tensors) -> Tensors:
        """The reference: the source model's own arithmetic, unquantised. Outputs have the batch in front."""
        ...

    def export_onnx(self, path: Path, opset: int) -> None:
        """Writes ONNX with the interface's names and free dimensions. Raises :class:`UserError` ``ExportFailed``."""
        ...

"""What every source model can do, whatever it was saved as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from enginewright_builder.contract import Interface
from enginewright_builder.errors import UserError
from enginewright_builder.tensors import Call, Tensors

# Texts to one padded batch of inputs.
Tokenize = Callable[[Sequence[str]], Tensors]


@dataclass(frozen=True, kw_only=True)
class TorchProgram:
    """What ``torch.export.export`` takes: ``export(module, args, dynamic_shapes=dynamic_shapes)``.

    ``module`` takes one tensor for each input of the interface, by position, and returns a tuple of tensors, one for
    each output, of the interface's types whatever it computes in. It lies on the model's device, and so do ``args``.
    """

    module: Any
    args: tuple[Any, ...]
    dynamic_shapes: dict[str, Any]


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
    def notes(self) -> tuple[str, ...]:
        """What the user should know of how it is taken."""
        ...

    @property
    def candidate(self) -> str:
        """Name of the candidate that computes exactly what the source does, empty if none does."""
        ...

    def run(self, inputs: Tensors) -> Tensors:
        """The reference: the source model's own arithmetic, unquantised, FP32 products in full. Outputs have the batch
        in front."""
        ...

    def bind(self, inputs: Tensors) -> Call:
        """What is timed as the source model: ``inputs`` lie on its device already, and the framework's defaults hold
        (PyTorch lets cuDNN use TF32)."""
        ...

    def export_onnx(self, path: Path, opset: int, precision: str = "fp32") -> None:
        """Writes ONNX with the interface's names, types and free dimensions, computing in ``precision`` (``fp32``,
        ``fp16``, ``bf16``). Raises :class:`UserError` ``ExportFailed``, also for a precision that this source cannot be
        exported in."""
        ...

    def torch_program(self, precision: str, batch: int = 0) -> TorchProgram | None:
        """The model for ``torch.export`` in ``fp32``, ``tf32``, ``fp16`` or ``bf16``, the batch frozen to ``batch``
        unless 0; None for sources that PyTorch cannot trace."""
        ...


def pad_token(model: SourceModel) -> int:
    """What the source's own tokenizer fills texts up with; 0 where it brings none."""
    return int(getattr(model, "pad_token", 0))


def end_token(model: SourceModel) -> int | None:
    """What ends each text, where the source says so."""
    token: int | None = getattr(model, "end_token", None)
    return token


def table_rows(model: SourceModel) -> dict[str, int]:
    """By input of integers, how many rows the table has that the source looks them up in, where that is known."""
    rows: dict[str, int] = getattr(model, "table_rows", {})
    return rows


def takes_missing(model: SourceModel) -> bool:
    """Whether NaN in an input is a value that is missing, as trees and imputers take it."""
    return bool(getattr(model, "takes_missing", False))


def not_in(precision: str, what: str) -> UserError:
    """For sources that are exported as they are. Engines then convert the ONNX."""
    return UserError("ExportFailed", f"{what} is exported as it is, not in {precision}", field="spec.source",
                     value=precision, remedy="leave the conversion to the engine, or give the model as Hugging Face "
                                             "folder or .pt2")

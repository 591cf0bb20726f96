"""Source models: one loader a format, each giving the unquantised reference that every candidate is held against."""

from __future__ import annotations

from pathlib import Path

from enginewright_builder.contract import Interface
from enginewright_builder.errors import UserError
from enginewright_builder.models.base import SourceModel, Tokenize, TorchProgram
from enginewright_builder.normalise import taken
from enginewright_builder.shapes import checked_batch, takes_batches
from enginewright_builder.sources import tensorflow_packages
from enginewright_builder.sources.formats import Located

__all__ = ["SourceModel", "Tokenize", "TorchProgram", "load_model"]


def load_model(located: Located, interface: Interface | None = None, workspace: Path | None = None,
               device: str = "cpu") -> SourceModel:
    """Opens the source. ``interface`` is what the user stated, or None. ``workspace`` is where a loader
    may write (default: beside the source). ``device`` is where the model runs: ``cpu`` or ``cuda``. Where the interface
    says how inputs are normalised the model takes what clients send, and gives the source what it takes.

    Raises :class:`UserError` ``InterfaceNeeded``, ``InterfaceInvalid``, ``UnsupportedModel`` or ``SourceCorrupt``.
    """
    if interface is None or all(spec.normalise is None for spec in interface.inputs):
        return _opened(located, interface, workspace, device)
    from enginewright_builder.models.normalised import Normalised

    interface = checked_batch(interface)
    inner = _opened(located, taken(interface), workspace, device)
    if not takes_batches(inner.interface):
        raise UserError("InterfaceInvalid", f"only inputs with the batch in front are normalised. {inner.notes[0]}",
                        field="spec.interface.inputs.normalise", value=", ".join(inner.notes),
                        remedy="leave normalise out, or export the model with a free first dimension")
    return Normalised(inner, interface)


def _opened(located: Located, interface: Interface | None, workspace: Path | None, device: str) -> SourceModel:
    # Imported here: only the loader that is needed may cost the seconds that PyTorch or transformers take to import.
    if located.format == "huggingface":
        from enginewright_builder.models.huggingface import load_huggingface

        return load_huggingface(located.path, interface, device)
    if located.format == "exported-program":
        from enginewright_builder.models.exported_program import load_exported_program

        return load_exported_program(located.path, interface, device, workspace)
    if located.format == "torchscript":
        from enginewright_builder.models.torchscript import load_torchscript

        return load_torchscript(located.path, interface, device, workspace)
    if located.format in tensorflow_packages.FORMATS:
        from enginewright_builder.models.tensorflow import load_tensorflow

        return load_tensorflow(located.path, located.format, interface, device, workspace)
    if located.format == "onnx":
        from enginewright_builder.models.onnx import load_onnx

        return load_onnx(located.path, interface, workspace, device)
    raise UserError("FormatUnknown", f"no loader for {located.format!r}", field="spec.source.format",
                    value=located.format)

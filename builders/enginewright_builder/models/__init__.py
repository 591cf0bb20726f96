"""Source models: one loader a format, each giving the unquantised reference that every candidate is held against."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from enginewright_builder.constants import check_constants, without_constants
from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.detection import check_detection_source, detections_in
from enginewright_builder.errors import UserError
from enginewright_builder.models.base import SourceModel, Tokenize, TorchProgram
from enginewright_builder.normalise import taken
from enginewright_builder.own_steps import folder_of, of_source
from enginewright_builder.postprocess import without_steps
from enginewright_builder.preprocess import asked, check, check_source
from enginewright_builder.sequences import check_sequences
from enginewright_builder.shapes import checked_batch, takes_batches
from enginewright_builder.sources import tensorflow_packages
from enginewright_builder.sources.formats import Located
from enginewright_builder.texts import check_texts, text_input, without_texts

if TYPE_CHECKING:
    from enginewright_builder.models.processors import Processor

__all__ = ["SourceModel", "Tokenize", "TorchProgram", "load_model"]


def load_model(located: Located, interface: Interface | None = None, workspace: Path | None = None,
               device: str = "cpu", runner: Path | None = None) -> SourceModel:
    """Opens the source. ``interface`` is what the user stated, or None. ``workspace`` is where a loader
    may write (default: beside the source). ``device`` is where the model runs: ``cpu`` or ``cuda``. Where the interface
    says how inputs are resized or normalised the model takes what clients send, and gives the source what it takes;
    where it says what becomes of outputs the model answers that. Where clients send texts the source is behind its own
    tokenizer. Where it says what is state a sample is a whole sequence. Where it names functions of the user's own the
    source is between these, which run where the socket ``runner`` leads, or in a child of this process.

    Raises :class:`UserError` ``InterfaceNeeded``, ``InterfaceInvalid``, ``UnsupportedModel`` or ``SourceCorrupt``.
    """
    check_constants(located.format, interface)
    if interface is not None and interface.sequence_batching:
        from enginewright_builder.models.sequenced import Sequenced

        check_sequences(located.format, interface)
        return Sequenced(_opened(located, interface, workspace, device, ""))
    if interface is not None and interface.python_steps:
        from enginewright_builder.models.own_steps import OwnStepped

        inner = load_model(located, of_source(interface), workspace, device)
        return OwnStepped(inner, interface, folder_of(located), workspace or folder_of(located), runner)
    if interface is not None and (texts := text_input(interface)):
        return _texted(located, interface, texts, workspace, device)
    steps, stated = interface.postprocess if interface else (), without_steps(interface)
    mask = interface.padding.mask if interface and interface.padding else ""
    source = _taking(located, stated, workspace, device, mask)
    if not steps:
        return source
    from enginewright_builder.models.finished import Finished

    step = detections_in(steps)
    if step is None or not (step.detection and step.detection.from_source):
        return Finished(source, steps)
    from enginewright_builder.models.hf_detection import of_folder

    place = steps.index(step)
    field = f"spec.interface.postprocess[{place}].detection.fromSource"
    check_detection_source(located, step, field)
    labelled, decode = of_folder(located.path, step, field)
    return Finished(source, (*steps[:place], labelled, *steps[place + 1:]), decode)


def _texted(located: Located, interface: Interface, texts: TensorSpec, workspace: Path | None,
            device: str) -> SourceModel:
    from enginewright_builder.models.texted import Texted

    check_texts(located, interface)
    source = load_model(located, without_texts(interface), workspace, device)
    return Texted(source, texts, workspace or located.path)


def _taking(located: Located, interface: Interface | None, workspace: Path | None, device: str, mask: str
            ) -> SourceModel:
    """The source behind what is made of what clients send."""
    if interface is None or not asked(interface):
        return _opened(located, interface, workspace, device, mask)
    from enginewright_builder.models.normalised import Normalised

    constants = tuple(spec for spec in interface.inputs if spec.value)
    interface, processors = _with_processors(located, checked_batch(without_constants(interface)))
    sent = taken(interface)
    inner = _opened(located, dataclasses.replace(sent, inputs=(*sent.inputs, *constants)), workspace, device, mask)
    if not takes_batches(inner.interface):
        raise UserError("InterfaceInvalid", f"only inputs with the batch in front are normalised. {inner.notes[0]}",
                        field="spec.interface.inputs.normalise", value=", ".join(inner.notes),
                        remedy="leave normalise out, or export the model with a free first dimension")
    return Normalised(inner, interface, processors)


def _with_processors(located: Located, interface: Interface) -> tuple[Interface, dict[str, Processor]]:
    """What stands in the source's own files written out, and its own processors by input."""
    from enginewright_builder.models.processors import of_folder

    processors, inputs = {}, []
    for spec in interface.inputs:
        check_source(located, spec)
        check(spec)
        if spec.preprocess and spec.preprocess.from_source:
            spec, processors[spec.name] = of_folder(located.path, spec)
        inputs.append(spec)
    return dataclasses.replace(interface, inputs=tuple(inputs)), processors


def _opened(located: Located, interface: Interface | None, workspace: Path | None, device: str, mask: str
            ) -> SourceModel:
    """``mask``: the input that the user says marks padding; empty where nothing is said."""
    # Imported here: only the loader that is needed may cost the seconds that PyTorch or transformers take to import.
    if located.format == "huggingface":
        from enginewright_builder.models.huggingface import load_huggingface

        return load_huggingface(located.path, interface, device, mask)
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

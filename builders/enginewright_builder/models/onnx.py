"""ONNX as a source: the given graph in ONNX Runtime is the reference, and its own export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from enginewright_builder.constants import constant_notes, constants_of, without_constants
from enginewright_builder.contract import Interface
from enginewright_builder.errors import UserError, brief, first_line, known_or
from enginewright_builder.initial_state import with_files
from enginewright_builder.models.base import Tokenize, not_in
from enginewright_builder.models.onnx_batch import settled, try_whole
from enginewright_builder.models.onnx_constants import decided, with_constants
from enginewright_builder.models.onnx_joined import joined_steps
from enginewright_builder.models.onnx_tidy import save, tidied
from enginewright_builder.models.synthetic import DEFAULT_VOCABULARY, example_inputs
from enginewright_builder.onnx_interface import graph_interface, merged, takes_missing, written_interface
from enginewright_builder.onnx_outputs import settle_outputs
from enginewright_builder.ort_session import CUDA, OrtRunner, has_provider, version
from enginewright_builder.sequences import fixed, kept_note, with_carried_sizes
from enginewright_builder.shapes import takes_batches
from enginewright_builder.sources.onnx_versions import is_old, unsupported
from enginewright_builder.tensors import Array, Call, Tensors, whole_call

_FIELD = "spec.source.uri"
# Two implementations of one graph may sum in another order.
_SAME = 1e-3


class OnnxModel:
    """``path`` is an ONNX whose batch is free, or that takes whole calls, which ``notes`` then say why."""

    tokenize: Tokenize | None = None

    def __init__(self, path: Path, interface: Interface, *, vocabulary: int = DEFAULT_VOCABULARY,
                 device: str = "cpu", notes: tuple[str, ...] = (), missing: bool = False) -> None:
        self.path, self.interface, self.vocabulary, self.notes = path, interface, vocabulary, notes
        self.takes_missing = missing
        self.device = device
        self.name = "ONNX as given, on ONNX Runtime"
        self._on_gpu = device != "cpu" and has_provider(CUDA)
        # ONNX Runtime's CUDA provider uses TF32 unless told not to.
        self.candidate = "onnxruntime tf32" if self._on_gpu else "onnxruntime fp32"
        self._runner: OrtRunner | None = None
        self._timed: OrtRunner | None = None

    def run(self, inputs: Tensors) -> Tensors:
        """On the CPU whatever the device: the CUDA provider rounds products to TF32."""
        self._runner = self._runner or self._open()
        return self._runner(inputs)

    def bind(self, inputs: Tensors) -> Call:
        """On the device where ONNX Runtime has its provider, as a server of the file would run it today."""
        if not self._on_gpu:
            self._runner = self._runner or self._open()
            return self._runner.bind(inputs)
        self._timed = self._timed or self._open("gpu")
        return self._timed.bind(inputs)

    def export_onnx(self, path: Path, opset: int, precision: str = "fp32") -> None:
        """The graph keeps its own operator set: a conversion could only change it."""
        del opset
        if precision != "fp32":
            raise not_in(precision, "ONNX")
        save(onnx.load(str(self.path)), path)

    def torch_program(self, precision: str, batch: int = 0) -> None:
        return None

    def _open(self, accelerator: str = "cpu") -> OrtRunner:
        return opened(self.path, self.interface, accelerator)


def load_onnx(path: Path, interface: Interface | None, workspace: Path | None = None,
              device: str = "cpu", called: str = "") -> OnnxModel:
    """``called`` is the user's own file, where ``path`` was made of it. Raises :class:`UserError`
    ``InterfaceInvalid``, ``UnsupportedModel`` or ``SourceCorrupt``."""
    folder = workspace or path.parent
    folder.mkdir(parents=True, exist_ok=True)
    called, beside = called or path.name, path.parent
    path, output_notes = _with_outputs(path, interface, folder)
    values: dict[str, Array] = {}
    if interface is not None and any(spec.value for spec in interface.inputs):
        values = constants_of(written_interface(onnx.load(str(path), load_external_data=False)), interface)
        path, interface = with_constants(path, values, folder), without_constants(interface)
    tidy = tidied(path, folder)
    model = onnx.load(str(tidy), load_external_data=False)
    found = graph_interface(model)
    if interface is not None and interface.inputs:
        found = merged(found, interface)
    vocabulary = _vocabulary(model)
    _check_conversion(path, tidy, found, vocabulary)
    tidy = decided(tidy, folder) if values else tidy
    if interface is not None and interface.sequence_batching:
        found = with_carried_sizes(found, interface.sequence_batching)
        whole = with_files(fixed(found, interface.sequence_batching), beside)
        try_whole(tidy, called, whole, vocabulary, opened)
        batch = joined_steps(tidy, found, whole, folder, vocabulary, opened)
        notes: tuple[str, ...] = (kept_note(whole, "".join(batch.notes)),)
    else:
        batch = settled(tidy, called, found, folder, vocabulary, opened)
        notes = batch.notes
    return OnnxModel(batch.path, batch.interface, vocabulary=vocabulary, device=device,
                     notes=(*notes, *constant_notes(values), *output_notes), missing=takes_missing(model))


def _with_outputs(path: Path, interface: Interface | None, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """A graph that gives what is served, and what the user should know of it."""
    if settle_outputs(onnx.load(str(path), load_external_data=False), interface) is None:
        return path, ()
    model = onnx.load(str(path))
    notes = settle_outputs(model, interface) or ()
    made = folder / f"{path.stem}.outputs.onnx"
    save(model, made)
    return made, notes


def _check_conversion(path: Path, tidy: Path, found: Interface, vocabulary: int) -> None:
    """A graph of an old opset against ONNX's own reference, which is slow and knows all opsets. Raises
    :class:`UserError` ``UnsupportedModel``."""
    old = onnx.load(str(path), load_external_data=False)
    if not is_old(old):
        return
    inputs = example_inputs(found, 1, vocabulary=vocabulary)
    given = inputs if takes_batches(found) else whole_call(inputs)
    shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in old.graph.input}
    reference = ReferenceEvaluator(str(path))
    try:
        expected = reference.run(None, {name: array.reshape(()) if not shapes[name] else array
                                        for name, array in given.items()})
        answers = OrtRunner(tidy)(given)
    except Exception as error:  # of either library
        raise known_or(error, unsupported(path, old, "what it was converted to could not be checked: "
                                          f"{first_line(error)}")) from error
    for name, array in zip(reference.output_names, expected, strict=True):
        if not np.allclose(np.asarray(array).ravel(), answers[name].ravel(), rtol=_SAME, atol=_SAME):
            raise unsupported(path, old, f"its output {name!r} has other values once it is converted")


def opened(path: Path, interface: Interface, accelerator: str = "cpu") -> OrtRunner:
    """Raises :class:`UserError` ``UnsupportedModel``."""
    try:
        return OrtRunner(path, accelerator=accelerator, batched=takes_batches(interface))
    except Exception as error:  # ONNX Runtime's own classes
        raise known_or(error, UserError(
            "UnsupportedModel", f"ONNX Runtime cannot open {path.name}: {brief(error)}", field=_FIELD, value=path,
            remedy=f"export it again so that ONNX Runtime {version()} opens it: with standard ONNX operators, and in "
                   "types that these take")) from error


def _vocabulary(model: onnx.ModelProto) -> int:
    """Rows of the smallest table that is looked up in."""
    tables = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if len(tensor.dims) == 2}
    rows = [tables[node.input[0]] for node in model.graph.node if node.op_type == "Gather" and node.input[0] in tables]
    return max(1, min(rows, default=DEFAULT_VOCABULARY))

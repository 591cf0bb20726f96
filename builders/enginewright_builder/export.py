"""From source model to checked ONNX, the common ground of all engines; or, where PyTorch writes no ONNX of it, to the
checked program that PyTorch's own engine compiles."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx

from enginewright_builder.engines.base import ExportedModel
from enginewright_builder.errors import UserError, brief, known_or
from enginewright_builder.ids import are_ids, different_share
from enginewright_builder.models.base import SourceModel
from enginewright_builder.names import missed_share
from enginewright_builder.ort_session import OrtRunner
from enginewright_builder.shapes import takes_batches
from enginewright_builder.tensors import Array, Tensors

# What PyTorch's exporter writes natively, so nothing is converted; TensorRT 10 and ONNX Runtime both read it.
OPSET = 18
# Largest difference to the source's own outputs, relative to their largest magnitude. FP32 sums in another order differ
# by 1e-6 or so; a wrong graph by far more.
EXPORT_TOLERANCE = 1e-3
_REMEDY = "look for randomness or batch-dependent code in the forward pass, or give an ONNX file"


def export_model(model: SourceModel, folder: Path, checks: Sequence[Tensors]) -> ExportedModel:
    """Writes ``folder/model.onnx`` and compares its answers with the source's on ``checks``, batches of several sizes.

    Raises :class:`UserError` ``ExportFailed``, or ``ExportMismatch`` with the figures.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    model.export_onnx(path, OPSET)
    graph = onnx.load(str(path), load_external_data=False)
    _check_graph(path, graph, batched=takes_batches(model.interface))
    runner = _opened(model, path)
    _check_answers(model, runner, checks)
    runner.close()
    return ExportedModel(path=path, interface=model.interface, opset=_opset(graph))


def trace_model(model: SourceModel, folder: Path, checks: Sequence[Tensors], why: str) -> ExportedModel:
    """What stands for the export of a model that has no ONNX, for the reason ``why``: PyTorch traces it as for its own
    engine, and the program's answers to ``checks`` are compared with the source's. ``folder`` is empty afterwards.

    Raises :class:`UserError` ``ExportFailed``, or ``ExportMismatch`` with the figures.
    """
    from enginewright_builder.models.torch_traced import traced  # it imports PyTorch

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    program = traced(model)
    _check_answers(model, program.run, checks)
    return ExportedModel(path=folder / "model.onnx", interface=model.interface, opset=0, missing=why,
                         program_bytes=program.size_bytes)


def _opset(graph: onnx.ModelProto) -> int:
    return next((entry.version for entry in graph.opset_import if entry.domain in ("", "ai.onnx")), 0)


def _check_graph(path: Path, graph: onnx.ModelProto, *, batched: bool) -> None:
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        raise UserError("ExportFailed", f"the exported graph is invalid: {brief(error)}",
                        field="spec.source",
                        remedy="export the model to ONNX yourself and give the .onnx file") from error
    constants = {tensor.name for tensor in graph.graph.initializer}
    for value in graph.graph.input if batched else ():
        if value.name not in constants and value.type.tensor_type.shape.dim[0].HasField("dim_value"):
            raise UserError("ExportFailed", f"the export froze the batch of input {value.name!r} to "
                            f"{value.type.tensor_type.shape.dim[0].dim_value}", field="spec.source",
                            remedy="make the forward pass free of Python numbers taken from the batch size")


def _opened(model: SourceModel, path: Path) -> OrtRunner:
    try:
        return OrtRunner(path, batched=takes_batches(model.interface))
    except Exception as error:  # ONNX Runtime's own classes
        raise known_or(error, UserError(
            "ExportFailed", f"ONNX Runtime cannot open the export: {brief(error)}", field="spec.source",
            remedy="export the model to ONNX yourself and give the .onnx file")) from error


def _check_answers(model: SourceModel, runner: Callable[[Tensors], Tensors], checks: Sequence[Tensors]) -> None:
    for inputs in checks:
        batch = len(next(iter(inputs.values())))
        # The gate holds candidates against what the source itself says behind its own processor.
        expected = getattr(model, "run_as_exported", model.run)(inputs)
        try:
            got = runner(inputs)
        except Exception as error:  # ONNX Runtime's own classes, or PyTorch's
            raise known_or(error, UserError(
                "ExportMismatch", f"the export fails at batch {batch}: {brief(error)}", field="spec.source",
                value=batch, remedy="export the model to ONNX yourself and give the .onnx file")) from error
        for name in expected:
            _compare(name, batch, expected, got, getattr(model, "if_mismatched", "") or _REMEDY)


def _compare(name: str, batch: int, answers: Tensors, made: Tensors, remedy: str = _REMEDY) -> None:
    expected, got = answers[name], made[name]
    if expected.shape != got.shape:
        raise _mismatch(name, batch, f"has shape {list(got.shape)}, the source's {list(expected.shape)}", remedy)
    missed = missed_share(name, answers, made)
    worst = largest_difference(expected, got) if missed is None else missed
    if not worst <= EXPORT_TOLERANCE:
        raise _mismatch(name, batch, f"differs by {worst:.2e} of its largest value, more than {EXPORT_TOLERANCE:.0e}",
                        remedy)


def largest_difference(expected: Array, got: Array) -> float:
    """``max|got − expected| / max|expected|`` over finite places; infinity where one is finite and the other is not. Of
    numbers of classes the share that differs."""
    if are_ids(expected):
        return different_share(expected, got)
    wide, other = expected.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(wide)
    if not np.array_equal(finite, np.isfinite(other)):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = max(float(np.abs(wide[finite]).max()), 1e-6)
    return float(np.abs(wide[finite] - other[finite]).max()) / scale


def _mismatch(name: str, batch: int, what: str, remedy: str) -> UserError:
    return UserError("ExportMismatch", f"the export answers otherwise than the source: {name!r} at batch {batch} "
                     f"{what}",
                     field="spec.source", value=name, remedy=remedy)

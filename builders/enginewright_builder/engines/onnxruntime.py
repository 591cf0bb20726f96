"""ONNX Runtime. On a CPU FP32, dynamic INT8 (weights ahead, activations as they come), static INT8 (calibrated Q/DQ)
and, where asked for, weights alone in blocks of 8 or 4 bits; on a GPU the rungs of ``ort_gpu``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx

from enginewright_builder.engines import ort_gpu
from enginewright_builder.engines.base import Artifact, BuildContext, ExportedModel, Rung, Runner, not_served
from enginewright_builder.engines.ort_quantize import quantize_dynamically, quantize_statically, quantize_weights
from enginewright_builder.errors import UserError, brief
from enginewright_builder.ort_session import OrtRunner, version
from enginewright_builder.shapes import takes_batches
from enginewright_builder.tensors import Array, Tensors, count, whole_call

MODEL_FILE = "model.onnx"
INT8_DYNAMIC, INT8_STATIC = "int8-dynamic", "int8-static"
_BITS = {"int8-weight-only": 8, "int4-weight-only": 4}
_LADDER = {"fp32": ("fp32",), "int8": (INT8_DYNAMIC, INT8_STATIC), "auto": ("fp32", INT8_DYNAMIC, INT8_STATIC),
           **{name: (name,) for name in _BITS}}


class OnnxRuntimeEngine:
    name = "onnxruntime"

    def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
        """INT8 is for CPUs here: ONNX Runtime's CUDA provider runs Q/DQ slower than FP32."""
        ladder = ort_gpu.LADDER if context.device.accelerator == "gpu" else _LADDER
        return [Rung(backend=self.name, precision=name, unavailable=_why_not(name, context))
                for name in ladder.get(precision, ())]

    def specialised(self, rung: Rung, context: BuildContext) -> Sequence[Rung]:
        """None: a session tunes nothing to a batch."""
        return ()

    def build(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Artifact:
        """Raises :class:`UserError` ``CandidateFailed`` when the graph cannot be quantised or converted."""
        folder = context.workspace / rung.precision
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / MODEL_FILE
        try:
            _write(rung.precision, model, context, target)
        except (ValueError, RuntimeError, KeyError, AttributeError, onnx.checker.ValidationError) as error:
            raise UserError("CandidateFailed", f"{rung.precision} cannot be built: {brief(error)}",
                            field="spec.engine.precision", value=rung.precision, remedy="write auto or fp32") from error
        on_gpu = context.device.accelerator == "gpu"
        parameters = ort_gpu.options(rung.precision) if on_gpu else {}
        native = _native(rung.precision, context)
        return Artifact(rung=rung, files={file.name: file for file in sorted(folder.iterdir())},
                        triton_backend=self.name if native else "python", parameters=parameters,
                        in_python=parameters if native and _fills_up(context) else None,
                        interface=model.interface, runtime_version=f"onnxruntime {version()}")

    def load(self, artifact: Artifact) -> Runner:
        return OrtRunner(artifact.files[MODEL_FILE], accelerator=artifact.parameters.get("accelerator", "cpu"),
                         parameters=artifact.parameters, batched=takes_batches(artifact.interface))


def _write(precision: str, model: ExportedModel, context: BuildContext, target: Path) -> None:
    if precision in ("fp32", "tf32"):
        _copy(model.path, target)
    elif precision == INT8_DYNAMIC:
        quantize_dynamically(model.path, target, context.workspace, context.progress, context.keep_precise)
    elif precision == INT8_STATIC:
        quantize_statically(model.path, target, context.workspace, _calls(model, context.calibration),
                            context.progress, context.keep_precise)
    elif precision in _BITS:
        _weights_alone(_BITS[precision], model, context, target)
    else:
        ort_gpu.half_graph(model, context, target)


def _weights_alone(bits: int, model: ExportedModel, context: BuildContext, target: Path) -> None:
    """On a GPU what is left goes to half precision, which its kernels take. It goes there last: the tool prepares
    graphs for a CPU, which has no products in it."""
    on_gpu = context.device.accelerator == "gpu"
    made = context.workspace / f"weights-{bits}.onnx" if on_gpu else target
    quantize_weights(bits, model.path, made, context.workspace, context.progress, context.keep_precise)
    if on_gpu:
        ort_gpu.halved(made, target)


def _native(precision: str, context: BuildContext) -> bool:
    """Whether a backend of the server runs it, without Python in between."""
    on_cpu = context.device.accelerator == "cpu"
    return OnnxRuntimeEngine.name in context.runtime.backends and (on_cpu or ort_gpu.runs_native(precision))


def _fills_up(context: BuildContext) -> bool:
    """Whether Python beside the native backend may be worth it: it joins requests of different length."""
    return (context.joined is not None and "python" in context.runtime.backends
            and OnnxRuntimeEngine.name in context.runtime.python_runtimes)


def _why_not(precision: str, context: BuildContext) -> str:
    if reason := _why_not_quantised(precision, context):
        return reason
    if precision == INT8_STATIC and not context.calibration:
        return "no calibration data: give spec.engine.calibration, apart from the evaluation data"
    on_gpu = context.device.accelerator == "gpu"
    if not _native(precision, context) and OnnxRuntimeEngine.name not in context.runtime.python_runtimes:
        return not_served(context, "neither a backend onnxruntime that does, nor ONNX Runtime for Triton's Python "
                          "backend", "ONNX Runtime")
    return ort_gpu.why_not() if on_gpu else ""


def _why_not_quantised(precision: str, context: BuildContext) -> str:
    """Of what the graph's weights are."""
    weights = context.weights
    if weights is None or precision not in (INT8_DYNAMIC, INT8_STATIC, *_BITS):
        return ""
    if weights.brought:
        return f"the source brings its own quantisation ({weights.description}), which is kept and not quantised again"
    return "" if weights.products or precision not in _BITS else "no MatMul or Gemm of the model has constant weights"


def _copy(source: Path, target: Path) -> None:
    """With the weights beside it, which a graph above 2 GiB has."""
    shutil.copyfile(source, target)
    model = onnx.load(str(source), load_external_data=False)
    for name in {entry.value for tensor in model.graph.initializer for entry in tensor.external_data
                 if entry.key == "location"}:
        shutil.copyfile(source.parent / name, target.parent / name)


def _calls(model: ExportedModel, calibration: Sequence[Tensors]) -> list[Tensors]:
    """What the model is called with."""
    batches = list(_equal_shapes(calibration))
    if takes_batches(model.interface):
        return batches
    return [whole_call(batch, index) for batch in batches for index in range(count(batch))]


def _equal_shapes(batches: Sequence[Tensors]) -> Iterator[Tensors]:
    """Padded to the longest: the calibrator stacks what it sees."""
    longest = {name: max(batch[name].shape[1:] for batch in batches) for name in batches[0]} if batches else {}
    for batch in batches:
        yield {name: _padded(array, longest[name]) for name, array in batch.items()}


def _padded(array: Array, shape: tuple[int, ...]) -> Array:
    missing = [(0, max(0, want - have)) for want, have in zip(shape, array.shape[1:], strict=True)]
    return np.pad(array, [(0, 0), *missing])

"""ONNX Runtime: FP32, dynamic INT8 (weights ahead, activations as they come) and static INT8 (calibrated Q/DQ)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx

from enginewright_builder.engines.base import Array, Artifact, BuildContext, ExportedModel, Rung, Runner, Tensors
from enginewright_builder.engines.ort_quantize import quantize_dynamically, quantize_statically
from enginewright_builder.errors import UserError
from enginewright_builder.ort_session import OrtRunner, providers, version

MODEL_FILE = "model.onnx"
INT8_DYNAMIC, INT8_STATIC = "int8-dynamic", "int8-static"
_LADDER = {"fp32": ("fp32",), "int8": (INT8_DYNAMIC, INT8_STATIC), "auto": ("fp32", INT8_DYNAMIC, INT8_STATIC)}


class OnnxRuntimeEngine:
    name = "onnxruntime"

    def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
        """INT8 is for CPUs here: ONNX Runtime's CUDA provider runs Q/DQ slower than FP32."""
        if context.device.accelerator == "gpu":
            return [_gpu_rung(precision)]
        return [Rung(backend=self.name, precision=name, unavailable=_why_not(name, context))
                for name in _LADDER.get(precision, ())]

    def build(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Artifact:
        """Raises :class:`UserError` ``CandidateFailed`` when the graph cannot be quantised."""
        folder = context.workspace / rung.precision
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / MODEL_FILE
        try:
            if rung.precision == "fp32":
                _copy(model.path, target)
            elif rung.precision == INT8_DYNAMIC:
                quantize_dynamically(model.path, target, context.workspace, context.progress)
            else:
                calibration = list(_equal_shapes(context.calibration))
                quantize_statically(model.path, target, context.workspace, calibration, context.progress)
        except (ValueError, RuntimeError, KeyError, AttributeError, onnx.checker.ValidationError) as error:
            raise UserError("CandidateFailed", f"{rung.precision} cannot be built: {str(error).strip()[:300]}",
                            field="spec.engine.precision", value=rung.precision, remedy="write auto or fp32") from error
        files = {file.name: file for file in sorted(folder.iterdir())}
        backend = self.name if self.name in context.runtime.backends else "python"
        accelerator = context.device.accelerator
        return Artifact(rung=rung, files=files, triton_backend=backend, interface=model.interface,
                        runtime_version=f"onnxruntime {version()}",
                        parameters={"accelerator": accelerator} if accelerator != "cpu" else {})

    def load(self, artifact: Artifact) -> Runner:
        return OrtRunner(artifact.files[MODEL_FILE], accelerator=artifact.parameters.get("accelerator", "cpu"))


def _gpu_rung(precision: str) -> Rung:
    """Without the CUDA provider ONNX Runtime would quietly use the CPU, and a proof of that proves nothing."""
    if precision not in ("auto", "fp32"):
        return Rung(backend=OnnxRuntimeEngine.name, precision=precision,
                    unavailable="ONNX Runtime builds FP32 only on a GPU")
    usable = "CUDAExecutionProvider" in providers("gpu")
    return Rung(backend=OnnxRuntimeEngine.name, precision="fp32",
                unavailable="" if usable else "this builder image's ONNX Runtime has no CUDA provider")


def _why_not(precision: str, context: BuildContext) -> str:
    if precision == INT8_STATIC and not context.calibration:
        return "no calibration data: give spec.engine.calibration, apart from the evaluation data"
    return ""


def _copy(source: Path, target: Path) -> None:
    """With the weights beside it, which a graph above 2 GiB has."""
    shutil.copyfile(source, target)
    model = onnx.load(str(source), load_external_data=False)
    for name in {entry.value for tensor in model.graph.initializer for entry in tensor.external_data
                 if entry.key == "location"}:
        shutil.copyfile(source.parent / name, target.parent / name)


def _equal_shapes(batches: Sequence[Tensors]) -> Iterator[Tensors]:
    """Padded to the longest: the calibrator stacks what it sees."""
    longest = {name: max(batch[name].shape[1:] for batch in batches) for name in batches[0]} if batches else {}
    for batch in batches:
        yield {name: _padded(array, longest[name]) for name, array in batch.items()}


def _padded(array: Array, shape: tuple[int, ...]) -> Array:
    missing = [(0, max(0, want - have)) for want, have in zip(shape, array.shape[1:], strict=True)]
    return np.pad(array, [(0, 0), *missing])

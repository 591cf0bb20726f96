"""ONNX Runtime on a GPU: what its CUDA provider is given, and told.

Rungs: ``fp32`` and ``tf32`` are one graph, without and with TF32 in its products; ``fp16`` is the graph in half
precision, and with weights alone in blocks of 8 or 4 bits the rest is, too. Its TensorRT provider is no rung: TensorRT
competes by itself, with CUDA graphs and profiles.
"""

from __future__ import annotations

from pathlib import Path

import onnx

from enginewright_builder.engines.base import BuildContext, ExportedModel
from enginewright_builder.errors import UserError
from enginewright_builder.ort_session import CUDA, has_provider

LADDER = {"fp32": ("fp32",), "tf32": ("tf32",), "fp16": ("fp16",), "auto": ("fp32", "tf32", "fp16"),
          "int8-weight-only": ("int8-weight-only",), "int4-weight-only": ("int4-weight-only",)}
# What only this project's Python model can tell ONNX Runtime: its native backend has other names for options.
_OPTIONS = {"fp32": {"cuda.use_tf32": "0"}}


def why_not() -> str:
    """Without its provider ONNX Runtime would quietly use the CPU, and a proof of that proves nothing."""
    return "" if has_provider(CUDA) else "this builder image's ONNX Runtime has no CUDA provider"


def options(precision: str) -> dict[str, str]:
    """Parameters of the session that serves this rung."""
    return {"accelerator": "gpu", **_OPTIONS.get(precision, {})}


def runs_native(precision: str) -> bool:
    """Whether Triton's own ONNX Runtime backend serves this rung as it was measured."""
    return precision not in _OPTIONS


def half_graph(model: ExportedModel, context: BuildContext, target: Path) -> None:
    """The source exported in half precision; where it cannot be, its ONNX converted."""
    if context.source is not None:
        try:
            context.source.export_onnx(target, model.opset, "fp16")
            return
        except UserError:
            pass  # an ONNX or TorchScript source, or one that computes in FP32 in any case
    halved(model.path, target)


def halved(source: Path, target: Path) -> None:
    """The ONNX ``source`` in half precision, but for what it takes and answers."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    graph = convert_float_to_float16(onnx.load(str(source)), keep_io_types=True)
    large = graph.ByteSize() > 1_800_000_000  # protobuf ends at 2 GiB
    onnx.save(graph, str(target), save_as_external_data=large, location=f"{target.name}.data")

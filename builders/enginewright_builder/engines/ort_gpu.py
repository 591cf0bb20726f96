"""ONNX Runtime on a GPU: what its CUDA and TensorRT providers are given, and told.

Rungs: ``fp32`` and ``tf32`` are one graph, without and with TF32 in its products; ``fp16`` is the graph in half
precision on the CUDA provider, and ``fp16-tensorrt`` the same graph on the TensorRT provider. That one compiles when a
session is made, so the builder keeps the compiled engine within the ONNX itself (an "EP context" model of ONNX Runtime,
``docs/execution-providers/TensorRT-ExecutionProvider.md``), and a replica only loads it.
"""

from __future__ import annotations

from pathlib import Path

import onnx

from enginewright_builder.contract import Interface
from enginewright_builder.engines.base import BuildContext, ExportedModel
from enginewright_builder.errors import UserError
from enginewright_builder.ort_session import CUDA, TENSORRT, OrtRunner, has_provider
from enginewright_builder.shapes import UNBOUNDED, size_range

FP16_TENSORRT = "fp16-tensorrt"
LADDER = {"fp32": ("fp32",), "tf32": ("tf32",), "fp16": ("fp16", FP16_TENSORRT),
          "auto": ("fp32", "tf32", "fp16", FP16_TENSORRT)}
HALF = ("fp16", FP16_TENSORRT)
# What only this project's Python model can tell ONNX Runtime: its native backend has other names for options.
_OPTIONS = {"fp32": {"cuda.use_tf32": "0"}, FP16_TENSORRT: {"provider": "tensorrt", "trt_fp16_enable": "1"}}


def why_not(precision: str) -> str:
    """Without its provider ONNX Runtime would quietly use the CPU, and a proof of that proves nothing."""
    needed = (TENSORRT, CUDA) if precision == FP16_TENSORRT else (CUDA,)
    missing = [name.removesuffix("ExecutionProvider") for name in needed if not has_provider(name)]
    return f"this builder image's ONNX Runtime has no {missing[0]} provider" if missing else ""


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
            pass  # an ONNX or TorchScript source, or one that computes in FP32 whatever it is told
    from onnxruntime.transformers.float16 import convert_float_to_float16

    graph = convert_float_to_float16(onnx.load(str(model.path)), keep_io_types=True)
    large = graph.ByteSize() > 1_800_000_000  # protobuf ends at 2 GiB
    onnx.save(graph, str(target), save_as_external_data=large, location=f"{target.name}.data")


def compiled(graph: Path, target: Path, interface: Interface, max_batch_size: int) -> None:
    """Writes ``target``, the graph with its TensorRT engine embedded, for every shape of the interface."""
    low, high = _shapes(interface, max_batch_size)
    OrtRunner(graph, accelerator="gpu", parameters={
        **options(FP16_TENSORRT), "trt_dump_ep_context_model": "1", "trt_ep_context_embed_mode": "1",
        "trt_ep_context_file_path": str(target), "trt_profile_min_shapes": low, "trt_profile_opt_shapes": high,
        "trt_profile_max_shapes": high}).close()
    if not target.is_file():
        raise RuntimeError("the TensorRT provider left the whole graph to others")


def _shapes(interface: Interface, max_batch_size: int) -> tuple[str, str]:
    """``ids:1x1,mask:1x1`` and ``ids:32x512,mask:32x512``: the smallest and the largest shape of every input."""
    low, high = [], []
    for spec in interface.inputs:
        ranges = [(1, max_batch_size), *(size_range(size) for size in spec.shape[1:])]
        if any(end == UNBOUNDED for _, end in ranges):
            raise ValueError(f"input {spec.name!r} has a size without a limit: state it in spec.interface")
        low.append(f"{spec.name}:{'x'.join(str(begin) for begin, _ in ranges)}")
        high.append(f"{spec.name}:{'x'.join(str(end) for _, end in ranges)}")
    return ",".join(low), ",".join(high)

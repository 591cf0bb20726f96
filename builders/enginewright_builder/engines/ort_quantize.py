"""INT8 with ONNX Runtime's own tools, set as its documentation advises for CPUs (``quantization.md``).

Weights signed and per channel: on MiniLM the mean cosine of dynamic INT8 rose from 0.955 per tensor to 0.992 per
channel. Activations unsigned, as the VNNI kernels want them.

On x86 processors without VNNI, sums of products of U8 and S8 saturate in 16 bits. What is built must answer alike on
every node, so weights give up a bit (``reduce_range``), whatever the build node has: on MiniLM and 128 lines of text
that took the mean cosine of dynamic INT8 from 0.9920 to 0.9902, and of static INT8 from 0.9338 to 0.9322. The other
way, ONNX Runtime's precise kernels (``session.x64quantprecision``), also slows down processors with VNNI: 16.8 against
8.1 ms at batch 1, 59 against 38 ms at batch 8, 16 tokens each.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from enginewright_builder.tensors import Tensors

# Matrix products, and embedding tables for their size. Dynamic convolutions run slower than FP32 ones.
_DYNAMIC_OPERATORS = ["MatMul", "Gemm", "Gather"]
_STATIC_OPERATORS = ["MatMul", "Gemm", "Conv"]

Report = Callable[[float, str], None]


def quantize_dynamically(source: Path, target: Path, workspace: Path, progress: Report,
                         keep_precise: Sequence[str] = ()) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _hushed():
        prepared = _prepared(source, workspace)
        progress(0.3, "quantising weights")
        quantize_dynamic(prepared, target, per_channel=True, reduce_range=True,
                         weight_type=QuantType.QInt8, op_types_to_quantize=_DYNAMIC_OPERATORS,
                         nodes_to_exclude=_excluded(prepared, source, keep_precise),
                         extra_options={"MatMulConstBOnly": True})


def quantize_statically(source: Path, target: Path, workspace: Path, calibration: Sequence[Tensors],
                        progress: Report, keep_precise: Sequence[str] = ()) -> None:
    """``calibration`` batches must agree in shape, save for the batch."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    with _hushed():
        prepared = _prepared(source, workspace)
        quantize_static(prepared, target, _Reader(calibration, progress), quant_format=QuantFormat.QDQ,
                        per_channel=True,
                        reduce_range=True, activation_type=QuantType.QUInt8,
                        weight_type=QuantType.QInt8,
                        op_types_to_quantize=_STATIC_OPERATORS,
                        nodes_to_exclude=_excluded(prepared, source, keep_precise),
                        calibrate_method=CalibrationMethod.MinMax,
                        extra_options={"MatMulConstBOnly": True, "ActivationSymmetric": False})


def _excluded(prepared: str, source: Path, keep_precise: Sequence[str]) -> list[str]:
    """Names in the prepared graph of the source's nodes ``keep_precise`` (names, or first outputs where nodes have
    none). Preparing fuses: a fused node ends in the same value, or carries the name of a part of it."""
    import onnx

    kept = set(keep_precise)
    if not kept:
        return []
    nodes = onnx.load(str(source), load_external_data=False).graph.node
    outputs = {name for node in nodes if {node.name, *node.output} & kept for name in node.output}
    # What adds a bias may have been fused with the product before it.
    outputs |= {name for node in nodes if node.op_type == "Add" and outputs & set(node.input) for name in node.output}
    found = onnx.load(prepared, load_external_data=False).graph.node
    return [node.name for node in found if node.name and (
        outputs & set(node.output) or any(node.name == name or node.name.startswith(f"{name}/") for name in kept))]


class _Reader:
    """``CalibrationDataReader`` by shape: its tools call ``get_next`` until None."""

    def __init__(self, batches: Sequence[Tensors], progress: Report) -> None:
        self._batches, self._progress, self._next = batches, progress, 0

    def get_next(self) -> dict[str, Any] | None:
        if self._next == len(self._batches):
            return None
        self._next += 1
        self._progress(0.8 * self._next / len(self._batches), f"calibrating, batch {self._next} of "
                       f"{len(self._batches)}")
        return dict(self._batches[self._next - 1])


def _prepared(source: Path, workspace: Path) -> str:
    """Shapes inferred and constants folded, without which the tools miss operators; once for all rungs."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = workspace / "prepared.onnx"
    if not prepared.exists():
        unfinished = workspace / "prepared.part.onnx"
        quant_pre_process(str(source), str(unfinished), skip_symbolic_shape=True)
        _name_nodes(unfinished)
        os.replace(unfinished, prepared)
    return str(prepared)


def _name_nodes(path: Path) -> None:
    """The tools leave nodes out by name, so each needs one."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    for node in model.graph.node:
        node.name = node.name or f"{node.op_type}:{node.output[0]}"
    onnx.save(model, str(path))


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """The tools print and warn about what is done here on purpose."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(None):
            yield
    finally:
        root.setLevel(level)

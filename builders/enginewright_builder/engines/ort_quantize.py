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
from typing import TYPE_CHECKING, Any

import numpy as np

from enginewright_builder.tensors import Tensors

if TYPE_CHECKING:
    import onnx

# Matrix products, and embedding tables for their size. Dynamic convolutions run slower than FP32 ones.
_DYNAMIC_OPERATORS = ["MatMul", "Gemm", "Gather"]
_STATIC_OPERATORS = ["MatMul", "Gemm", "Conv"]
# Weights that share a scale and a zero point. MiniLM's mean cosine in 4 bits is 0.980 with blocks of 16, 0.974 with 32,
# 0.958 with 128, and 0.969 with 32 and no zero points; in 8 bits 0.9997 with 32. 32 is what kernels are made for.
_BLOCK = 32
# Of weights behind DequantizeLinear: ModelOpt's default, and one of the two that TensorRT's kernels read.
_WEIGHT_BLOCK = 128
# From which on DequantizeLinear takes INT4 and blocks.
_INT4_OPSET = 21
# ``accuracy_level`` of MatMulNBits by which CPUs compute in INT8 with blocks of activations quantised on the way: on
# three layers of 1024 × 4096 and batch 1 it takes 0.6 ms for 3.0 (4 bits) and 1.1 for 172 (8 bits) without it, and the
# cosine with FP32 falls by less than 0.0001.
_COMPUTE_IN_INT8 = 4

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


def quantize_weights(bits: int, source: Path, target: Path, workspace: Path, progress: Report,
                     keep_precise: Sequence[str] = ()) -> None:
    """Constant weights of products alone, rounded to the nearest in blocks: no data is needed. Raises ValueError where
    the graph has none."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    with _hushed():
        prepared = _prepared(source, workspace)
        progress(0.3, f"quantising weights to {bits} bits")
        model = onnx.load(prepared)
        _as_products(model.graph)
        work = MatMulNBitsQuantizer(model, bits=bits, block_size=_BLOCK, is_symmetric=False,
                                    accuracy_level=_COMPUTE_IN_INT8,
                                    nodes_to_exclude=_excluded(prepared, source, keep_precise))
        work.process()
    made = work.model.model
    _once(made.graph)
    if not any(node.op_type == "MatMulNBits" for node in made.graph.node):
        raise ValueError("no MatMul or Gemm of the graph has constant weights of two dimensions")
    _save(made, target)


def write_int4_weights(source: Path, target: Path, keep_precise: Sequence[str] = ()) -> None:
    """``source`` with its products' constant weights in INT4, each behind a DequantizeLinear by blocks of its rows, as
    TensorRT reads them. Whole blocks alone: other products stay as they are. Raises ValueError where none is left.

    Not by a tool: ONNX Runtime's writes scales below zero, which TensorRT refuses, and ModelOpt's has to compile C++
    when it packs four bits.
    """
    import onnx.version_converter

    with _hushed():
        model = onnx.load(str(source))
        if _opset(model) < _INT4_OPSET:
            model = onnx.version_converter.convert_version(model, _INT4_OPSET)
        _as_products(model.graph)
    if not _behind_blocks(model.graph, {*keep_precise}):
        raise ValueError(f"no MatMul or Gemm of the graph has constant weights with rows in whole blocks of "
                         f"{_WEIGHT_BLOCK}")
    _save(model, target)


def _behind_blocks(graph: onnx.GraphProto, kept: set[str]) -> bool:
    """Whether there were any. Weights that something else reads as well stay, too, beside those in four bits."""
    from onnx import helper

    held = {tensor.name: tensor for tensor in graph.initializer
            if len(tensor.dims) == 2 and not tensor.dims[0] % _WEIGHT_BLOCK}
    made: dict[str, onnx.NodeProto] = {}
    for node in graph.node:
        if node.op_type != "MatMul" or node.input[1] not in held or {node.name, *node.output} & kept:
            continue
        name = node.input[1]
        if name not in made:
            packed, scales = _in_four_bits(held[name])
            graph.initializer.extend((packed, scales))
            made[name] = helper.make_node("DequantizeLinear", [packed.name, scales.name], [f"{name}/dequantised"],
                                          name=f"{name}/dequantise", axis=0, block_size=_WEIGHT_BLOCK)
        node.input[1] = made[name].output[0]
    nodes = [*made.values(), *graph.node]
    read = {name for node in nodes for name in node.input}
    left = [tensor for tensor in graph.initializer if tensor.name in read or tensor.name not in made]
    graph.ClearField("node")
    graph.node.extend(nodes)
    graph.ClearField("initializer")
    graph.initializer.extend(left)
    return bool(made)


def _in_four_bits(weights: onnx.TensorProto) -> tuple[onnx.TensorProto, onnx.TensorProto]:
    """INT4 of shape ``[rows, columns]``, two to a byte with the first in the low half, and the scales of its blocks,
    ``[rows / block, columns]`` in the weights' own type: the largest of a block is 7 of them."""
    from onnx import TensorProto, helper, numpy_helper

    array = numpy_helper.to_array(weights)
    rows, columns = array.shape
    blocks = array.astype(np.float32).reshape(rows // _WEIGHT_BLOCK, _WEIGHT_BLOCK, columns)
    largest = np.abs(blocks).max(axis=1, keepdims=True) / 7
    # A block of zeros has any scale, and one that its type rounds to zero none.
    scales = np.where(largest > np.finfo(array.dtype).tiny, largest, 1).astype(array.dtype)
    values = np.clip(np.rint(blocks / scales.astype(np.float32)), -7, 7).astype(np.int8).reshape(-1)
    if values.size % 2:
        values = np.append(values, np.int8(0))
    packed = (values[0::2] & 0xF).astype(np.uint8) | ((values[1::2] & 0xF).astype(np.uint8) << 4)
    return (helper.make_tensor(f"{weights.name}/int4", TensorProto.INT4, [rows, columns], packed.tobytes(), raw=True),
            numpy_helper.from_array(np.ascontiguousarray(scales[:, 0, :]), f"{weights.name}/scales"))


def _opset(model: onnx.ModelProto) -> int:
    return max((int(one.version) for one in model.opset_import if one.domain in ("", "ai.onnx")), default=0)


def _save(model: onnx.ModelProto, target: Path) -> None:
    import onnx

    large = model.ByteSize() > 1_800_000_000  # protobuf ends at 2 GiB
    onnx.save(model, str(target), save_as_external_data=large, location=f"{target.name}.data")


def _as_products(graph: onnx.GraphProto) -> None:
    """Gemm with constant weights as MatMul and Add, as the tool knows products alone. ONNX Runtime's own function for
    it turns weights around in place, which changes the table that a tied embedding reads."""
    from onnx import helper, numpy_helper

    held = {tensor.name: tensor for tensor in graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        plain = given.get("alpha", 1.0) == given.get("beta", 1.0) == 1.0 and not given.get("transA", 0)
        if node.op_type != "Gemm" or not plain or node.input[1] not in held:
            nodes.append(node)
            continue
        weights, result = node.input[1], node.output[0]
        if given.get("transB", 0):
            weights += "/turned"
            if weights not in held:
                turned = numpy_helper.to_array(held[node.input[1]]).T
                held[weights] = numpy_helper.from_array(np.ascontiguousarray(turned), weights)
                graph.initializer.append(held[weights])
        biased = len(node.input) > 2 and bool(node.input[2])
        product = f"{result}/product" if biased else result
        nodes.append(helper.make_node("MatMul", [node.input[0], weights], [product], name=node.name))
        if biased:
            nodes.append(helper.make_node("Add", [product, node.input[2]], [result], name=f"{node.name}/bias"))
    graph.ClearField("node")
    graph.node.extend(nodes)


def _once(graph: onnx.GraphProto) -> None:
    """The tool writes weights that several products share once for each of them, under one name."""
    held = {tensor.name: tensor for tensor in graph.initializer}
    if len(held) < len(graph.initializer):
        kept = list(held.values())
        graph.ClearField("initializer")
        graph.initializer.extend(kept)


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
        _tidy(unfinished)
        os.replace(unfinished, prepared)
    return str(prepared)


def _tidy(path: Path) -> None:
    """The tools leave nodes out by name, so each needs one. They transpose a Gemm's weights under their name, so that a
    shape which PyTorch's exporter states of these beside the graph would contradict them."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    for node in model.graph.node:
        node.name = node.name or f"{node.op_type}:{node.output[0]}"
    weights = {tensor.name for tensor in model.graph.initializer}
    for value in [value for value in model.graph.value_info if value.name in weights]:
        model.graph.value_info.remove(value)
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

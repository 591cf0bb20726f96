"""What the weights of an ONNX graph are: which products have constant ones, and what is quantised already.

Exports of GPTQ, AWQ and ModelOpt bring weights of 4 or 8 bits, as ``MatMulNBits`` of ONNX Runtime's or behind a
``DequantizeLinear``; training with quantisation in mind brings Q/DQ. Such a graph is kept as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx

_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)
# Operators of ONNX Runtime's own that read weights in blocks.
_BLOCKS = ("MatMulNBits", "GatherBlockQuantized", "MatMulBnb4")
_INTEGER = ("QLinearMatMul", "QLinearConv", "MatMulInteger", "ConvInteger", "QGemm", "QAttention",
            "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "DynamicQuantizeLSTM", "QMoE")
_Q, _DQ = "QuantizeLinear", "DequantizeLinear"


@dataclass(frozen=True, kw_only=True)
class Weights:
    """``products`` counts MatMul and Gemm with constant weights of floating point. ``brought`` is what is quantised,
    such as ``int4 weights of MatMulNBits``, with how many there are; ``foreign`` those that ONNX Runtime alone runs.
    ``sparse`` is the share of the weights that are 2:4 sparse, 0 where the build did not look."""

    products: int = 0
    brought: Mapping[str, int] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    sparse: float = 0.0

    @property
    def description(self) -> str:
        """``24 × int4 weights of MatMulNBits``; empty where nothing is quantised."""
        return ", ".join(f"{count} × {what}" for what, count in sorted(self.brought.items()))

    @property
    def notes(self) -> tuple[str, ...]:
        """For status and report."""
        notes = []
        if self.brought:
            notes.append(f"The source brings its own quantisation ({self.description}). Every candidate keeps it as it "
                         "is, and no step quantises it again.")
        if self.sparse:
            notes.append(f"Of the source's weights {self.sparse:.0%} are 2:4 sparse: TensorRT may choose kernels that "
                         "leave the zeros out.")
        return tuple(notes)


def weights_of(path: Path) -> Weights:
    """Of the graph at ``path``, without the values of its weights."""
    graph = onnx.load(str(path), load_external_data=False).graph
    brought: Counter[str] = Counter()
    products, foreign = 0, set()
    for nodes, types in _scopes(graph, {}):
        for node in nodes:
            if node.op_type in ("MatMul", "Gemm"):
                products += len(node.input) > 1 and types.get(node.input[1]) in _FLOATS
            elif what := _quantised(node, types):
                brought[what] += 1
                if node.domain not in ("", "ai.onnx"):
                    foreign.add(node.op_type)
    return Weights(products=products, brought=dict(brought), foreign=tuple(sorted(foreign)))


def _scopes(graph: onnx.GraphProto, outer: Mapping[str, int]) -> Iterator[tuple[list[onnx.NodeProto], dict[str, int]]]:
    """The nodes of the graph and of each one inside it, with the types of the constants that they see."""
    types = {**outer, **{tensor.name: tensor.data_type for tensor in graph.initializer}}
    types |= {node.output[0]: attribute.t.data_type for node in graph.node if node.op_type == "Constant"
              for attribute in node.attribute if attribute.name == "value"}
    yield list(graph.node), types
    for node in graph.node:
        for attribute in node.attribute:
            for inside in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _scopes(inside, types)


def _quantised(node: onnx.NodeProto, types: Mapping[str, int]) -> str:
    """What ``node`` shows to be quantised, empty if nothing."""
    if node.op_type in _BLOCKS:
        bits = next((attribute.i for attribute in node.attribute if attribute.name == "bits"), 4)
        return f"int{bits} weights of {node.op_type}"
    if node.op_type == _DQ and node.input[0] in types:
        return f"{_name(types[node.input[0]])} weights of {_DQ}"
    if node.op_type == _Q:
        zero_point = types.get(node.input[2]) if len(node.input) > 2 else None
        return f"{_name(zero_point or onnx.TensorProto.UINT8)} activations of {_Q}"
    return f"integer products of {node.op_type}" if node.op_type in _INTEGER else ""


def _name(kind: int) -> str:
    """``int4``, ``float8e4m3fn``."""
    return str(onnx.TensorProto.DataType.Name(kind)).lower()

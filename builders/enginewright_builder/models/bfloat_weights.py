"""Weights of a BF16 graph that the exporter's optimiser left in FP32.

It folds the normalisation behind a convolution into that one's weights with NumPy, which has no BF16, and writes them
as FP32 beside an input in BF16 (onnxscript 0.7). No runtime takes such a graph: TensorRT says "Invalid Node".
"""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import onnx
from onnx import TensorProto, numpy_helper

# Whose inputs all have one type.
_OF_ONE_TYPE = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def align_weights(path: Path) -> None:
    """Writes the weights of such operators in BF16 where their first input is."""
    model = onnx.load(str(path))
    graph = onnx.shape_inference.infer_shapes(model).graph
    types = {one.name: one.type.tensor_type.elem_type for one in (*graph.input, *graph.value_info, *graph.output)}
    weights = {tensor.name: tensor for tensor in model.graph.initializer if tensor.data_type == TensorProto.FLOAT}
    for node in model.graph.node:
        if node.op_type not in _OF_ONE_TYPE or types.get(node.input[0]) != TensorProto.BFLOAT16:
            continue
        for tensor in (weights[name] for name in node.input[1:] if name in weights):
            narrow = numpy_helper.to_array(tensor).astype(ml_dtypes.bfloat16)
            tensor.CopyFrom(numpy_helper.from_array(narrow, tensor.name))
            del weights[tensor.name]
    onnx.save(model, str(path))

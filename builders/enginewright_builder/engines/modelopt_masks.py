"""Attention masks in graphs that are to be quantised.

Masks are made of constants as large as FP32 has (``-3.4e38``), which FP16 cannot hold, and are added to the scores. A
calibrator that meets one finds a scale of infinity, or fails. MiniLM quantised so had a cosine of 0.42 to itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

# Far enough below every score that the softmax of it is 0, and two of them still add up in FP16.
LARGEST = 30_000.0
# What carries a mask on from its constant to where it is added.
_CARRIES = {"Where", "Mul", "Sub", "Neg", "Expand", "Unsqueeze", "Squeeze", "Reshape", "Transpose", "Cast", "Concat",
            "Slice", "Identity", "Gather", "Tile"}


def clip_masks(model: onnx.ModelProto) -> tuple[str, ...]:
    """Clips FP32 constants beyond FP16's reach to ``±LARGEST`` in place. Returns the names of the additions that they
    reach: these stay unquantised, as a scale for the mask would leave nothing of the scores."""
    extreme = {name for name, tensor in _constants(model.graph) if _clip(tensor)}
    additions = []
    for node in model.graph.node:  # in topological order, as ONNX demands
        if extreme.isdisjoint(node.input):
            continue
        if node.op_type in _CARRIES:
            extreme.update(node.output)
        elif node.op_type == "Add":
            additions.append(node.name)
    return tuple(additions)


def _constants(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    yield from ((tensor.name, tensor) for tensor in graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type in ("Constant", "ConstantOfShape") and attribute.name == "value":
                yield node.output[0], attribute.t


def _clip(tensor: onnx.TensorProto) -> bool:
    if tensor.data_type != onnx.TensorProto.FLOAT or tensor.external_data:
        return False
    values = numpy_helper.to_array(tensor)
    if not values.size or not np.abs(values).max() > np.finfo(np.float16).max:
        return False
    tensor.CopyFrom(numpy_helper.from_array(np.clip(values, -LARGEST, LARGEST).astype(np.float32), tensor.name))
    return True

"""How many of a graph's weights are 2:4 sparse: of each four along what is summed at most two are not zero, which is
what the sparse tensor cores of NVIDIA's GPUs (from compute capability 8.0 on) take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

_GROUP, _MOST = 4, 2
# A product smaller than this gains nothing, whatever its weights.
_LEAST = 32


def sparse_share(path: Path) -> float:
    """Of the weights of products and convolutions in the graph at ``path``, in numbers, the share in tensors that are
    2:4 sparse. Weights beside the graph are read one tensor after the other."""
    found = total = 0
    for matrix in _matrices(path):
        total += matrix.size
        found += matrix.size * is_sparse(matrix)
    return found / total if total else 0.0


def is_sparse(matrix: np.ndarray[Any, Any]) -> bool:
    """``matrix`` has what is summed along its first axis."""
    whole = matrix[:len(matrix) // _GROUP * _GROUP]
    if min(matrix.shape) < _LEAST or np.count_nonzero(whole) * _GROUP > whole.size * _MOST:
        return False
    groups = whole.reshape(-1, _GROUP, matrix.shape[1])
    return bool((np.count_nonzero(groups, axis=1) <= _MOST).all())


def _matrices(path: Path) -> Iterator[np.ndarray[Any, Any]]:
    """Constant weights of MatMul, Gemm and Conv, each as rows that are summed."""
    graph = onnx.load(str(path), load_external_data=False).graph
    held = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        tensor = held.get(node.input[1]) if node.op_type in ("MatMul", "Gemm", "Conv") else None
        if tensor is None or tensor.data_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            continue
        array = numpy_helper.to_array(tensor, base_dir=str(path.parent))
        if node.op_type == "Conv":  # [out, in, …]: summed over the channels in
            yield np.moveaxis(array, 1, 0).reshape(array.shape[1], -1)
        elif array.ndim == 2:
            turned = any(one.name == "transB" and helper.get_attribute_value(one) for one in node.attribute)
            yield array.T if turned else array

"""Which weights are 2:4 sparse, and that TensorRT hears of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.onnx_sparse import is_sparse, sparse_share
from enginewright_builder.onnx_weights import Weights

Array = np.ndarray[Any, Any]


def pruned(rows: int, columns: int, most: int = 2) -> Array:
    """Of each four rows in a column ``most`` are kept, at random places."""
    rng = np.random.default_rng(rows + columns)
    order = np.argsort(rng.random((rows // 4, 4, columns)), axis=1)
    weights = rng.normal(size=(rows // 4, 4, columns))
    return np.where(order < most, weights, 0.0).reshape(rows, columns).astype(np.float32)


@pytest.mark.parametrize(("matrix", "expected"), [
    (pruned(64, 32), True), (pruned(64, 32, most=1), True), (pruned(64, 32, most=3), False),
    # As many zeros, at other places: half of all rows is zero, four by four.
    (np.repeat([[1.0] * 4 + [0.0] * 4], 8, 0).reshape(64, 1) * np.ones((1, 32)), False),
    (pruned(64, 32).T, False), (pruned(16, 32), False), (np.concatenate([pruned(64, 32), np.ones((3, 32))]), True)],
    ids=["2:4", "1:4", "3:4", "zeros in a row", "along the other axis", "too small", "a rest of three"])
def test_at_most_two_of_each_four_that_are_summed(matrix: Array, expected: bool) -> None:
    assert is_sparse(matrix) is expected


def test_the_share_is_of_all_weights_however_they_lie(tmp_path: Path) -> None:
    held = {"dense": np.ones((64, 64)), "turned": pruned(64, 64).T, "plain": pruned(64, 64),
            "conv": pruned(64, 64).T.reshape(64, 64, 1, 1), "bias": np.zeros(64)}
    nodes = [helper.make_node("Conv", ["x", "conv"], ["c"]), helper.make_node("GlobalAveragePool", ["c"], ["p"]),
             helper.make_node("Flatten", ["p"], ["f"]),
             helper.make_node("Gemm", ["f", "turned", "bias"], ["g"], transB=1),
             helper.make_node("MatMul", ["g", "plain"], ["m"]), helper.make_node("MatMul", ["m", "dense"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64, 8, 8])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])],
                              [numpy_helper.from_array(array.astype(np.float32), name)
                               for name, array in held.items()])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path,
              save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert sparse_share(path) == 0.75
    assert "75% are 2:4 sparse" in Weights(sparse=sparse_share(path)).notes[0]

"""A small real model whose batches are nearly free up to a size: its weights are read once for all of a batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.engines.base import Artifact, Rung

# Two layers of this size: 134 MB of weights, more than any cache holds.
WIDTH, LAYERS = 4096, 2


def perceptron(folder: Path) -> Artifact:
    rng = np.random.default_rng(0)
    nodes, weights, before = [], [], "x"
    for layer in range(LAYERS):
        weight = (rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        after = "y" if layer == LAYERS - 1 else f"r{layer}"
        nodes += [helper.make_node("MatMul", [before, f"w{layer}"], [f"h{layer}"]),
                  helper.make_node("Relu", [f"h{layer}"], [after])]  # fmt: skip
        before = after
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", WIDTH]) for name in "xy"]
    graph = helper.make_graph(nodes, "perceptron", ends[:1], ends[1:], weights)
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    tensors = [TensorSpec(name=name, dtype="float32", shape=("batch", WIDTH)) for name in "xy"]
    return Artifact(rung=Rung(backend="onnxruntime", precision="fp32"), files={"model.onnx": path},
                    triton_backend="python", interface=Interface(inputs=tuple(tensors[:1]), outputs=tuple(tensors[1:])),
                    runtime_version="onnxruntime")  # fmt: skip

"""The drill's model and data: large enough that its own time, not Triton's, is what a request takes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FEATURES, WIDTH, LAYERS = 64, 1024, 4
# The real build's; every candidate after it asks for one more, and so for an engine of its own.
FIRST_BATCH = 8


def spec(variant: int) -> dict[str, Any]:
    """The part of the drill's spec that is the model's."""
    return {
        "source": {"uri": "pvc://models/drill.onnx"},
        "engine": {"backend": "onnxruntime", "precision": "fp32", "maxBatchSize": FIRST_BATCH + variant,
                   "buildBudgetSeconds": 20,
                   "resources": {"requests": {"cpu": "200m", "memory": "512Mi"}, "limits": {"memory": "4Gi"}}},
        "accuracy": {"metric": "cosine", "maxLoss": 0.05, "evaluation": {"uri": "pvc://models/evaluation.npz"}},
        "serving": {"resources": {"requests": {"cpu": "50m", "memory": "256Mi"}}},
    }


def write(directory: Path) -> dict[str, Path]:
    """A perceptron of four layers (12 MB) and 300 samples; returns the files by name."""
    directory.mkdir(parents=True, exist_ok=True)
    onnx.save(_network(), directory / "drill.onnx")
    rows = np.random.default_rng(1).normal(size=(300, FEATURES)).astype(np.float32)
    np.savez(directory / "evaluation.npz", x=rows)
    return {path.name: path for path in directory.iterdir()}


def _network() -> onnx.ModelProto:
    """``x`` float32[batch, 64] → ``y`` float32[batch, 64]."""
    random = np.random.default_rng(0)
    widths = [FEATURES, *[WIDTH] * LAYERS, FEATURES]
    nodes, weights, last = [], [], "x"
    for index, (rows, columns) in enumerate(itertools.pairwise(widths)):
        weight = random.normal(size=(rows, columns)).astype(np.float32) / np.sqrt(rows)
        weights.append(numpy_helper.from_array(weight.astype(np.float32), f"w{index}"))
        final = index == len(widths) - 2
        product = "y" if final else f"h{index}"
        nodes.append(helper.make_node("MatMul", [last, f"w{index}"], [product]))
        if not final:
            nodes.append(helper.make_node("Relu", [product], [f"a{index}"]))
            last = f"a{index}"
    graph = helper.make_graph(
        nodes, "drill", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", FEATURES])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", FEATURES])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

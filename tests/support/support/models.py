"""Tiny models and data, good and bad, written with the real libraries."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FEATURES, OUTPUTS = 64, 16


def write_models(directory: Path) -> None:
    """Everything that the end-to-end tests put on a volume."""
    import torch  # not above: most that import this module need no PyTorch

    onnx.save(mlp(), directory / "tiny.onnx")
    onnx.save(mlp(seed=1), directory / "other.onnx")
    onnx.save(mlp(operator="Transmogrify"), directory / "unknown-operator.onnx")
    whole = (directory / "tiny.onnx").read_bytes()
    (directory / "truncated.onnx").write_bytes(whole[: len(whole) // 2])
    torch.save({"weight": torch.zeros(2, 2)}, directory / "pickled.pt")
    _truncated_safetensors(directory / "truncated-safetensors")
    np.savez(directory / "evaluation.npz", x=rows(256, seed=2))
    (directory / "evaluation-copy.npz").write_bytes((directory / "evaluation.npz").read_bytes())
    np.savez(directory / "calibration.npz", x=rows(64, seed=3))
    np.savez(directory / "empty.npz", x=rows(0, seed=4))
    np.savez(directory / "wrong-shape.npz", x=rows(8, seed=5)[:, :10])


def rows(count: int, seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(count, FEATURES)).astype(np.float32)


def mlp(seed: int = 0, operator: str = "Relu") -> onnx.ModelProto:
    """``x`` float32[batch, 64] → ``y`` float32[batch, 16] through two matrices."""
    random = np.random.default_rng(seed)
    first = random.normal(size=(FEATURES, 128)).astype(np.float32) / 8
    second = random.normal(size=(128, OUTPUTS)).astype(np.float32) / 11
    nodes = [helper.make_node("MatMul", ["x", "first"], ["hidden"]), helper.make_node(operator, ["hidden"], ["active"]),
             helper.make_node("MatMul", ["active", "second"], ["y"])]
    graph = helper.make_graph(
        nodes, "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", FEATURES])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", OUTPUTS])],
        [numpy_helper.from_array(first, "first"), numpy_helper.from_array(second, "second")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _truncated_safetensors(directory: Path) -> None:
    """A Hugging Face directory whose weights promise 4 KiB and hold 100 bytes."""
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({"architectures": ["BertModel"], "model_type": "bert"}))
    header = json.dumps({"w": {"dtype": "F32", "shape": [32, 32], "data_offsets": [0, 4096]}}).encode()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(100))

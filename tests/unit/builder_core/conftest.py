"""Small models and files, made as the libraries make them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import BuildRequest, SourceRequest
from enginewright_builder.tensors import Array

Onnx = Callable[..., Path]


@pytest.fixture(scope="session")
def write_onnx(tmp_path_factory: pytest.TempPathFactory) -> Onnx:
    """A two-layer perceptron from ``x`` [batch, 16] to ``y`` [batch, 8]."""

    def write(path: Path | None = None, *, batch: int | str = "n", scale: float = 1.0) -> Path:
        rng = np.random.default_rng(0)
        weights = {"w1": rng.normal(0, 0.3, (16, 32)), "w2": rng.normal(0, 0.3, (32, 8)) * scale}
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w1"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("MatMul", ["r", "w2"], ["y"])], "perceptron",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 16])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 8])],
            [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        target = path or tmp_path_factory.mktemp("onnx") / "perceptron.onnx"
        onnx.save(model, str(target))
        return target

    return write


@pytest.fixture(scope="session")
def perceptron(write_onnx: Onnx) -> Path:
    return write_onnx()


@pytest.fixture
def safetensors(tmp_path: Path) -> Callable[..., Path]:
    """One float32 tensor ``w`` of ``count`` entries, ``missing`` bytes of which are cut off."""

    def write(name: str = "model.safetensors", count: int = 4, missing: int = 0) -> Path:
        header = json.dumps({"w": {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}}).encode()
        path = tmp_path / name
        path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * (4 * count - missing))
        return path

    return write


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[..., Path]:
    """``.npz`` of ``count`` samples for the perceptron."""

    def write(name: str, count: int = 32, seed: int = 1, **arrays: Array) -> Path:
        rows = np.random.default_rng(seed).normal(size=(count, 16)).astype(np.float32)
        path = tmp_path / name
        np.savez(path, **(arrays or {"x": rows}))
        return path

    return write


@pytest.fixture
def request_for(tmp_path: Path) -> Callable[..., BuildRequest]:
    """A request with a store that is there."""

    def make(uri: str | Path, **fields: object) -> BuildRequest:
        store = tmp_path / "store"
        store.mkdir(exist_ok=True)
        source = fields.pop("source", SourceRequest(uri=str(uri)))
        return BuildRequest(**{"model_name": "m", "source": source, "store_path": str(store), **fields})  # type: ignore[arg-type]

    return make

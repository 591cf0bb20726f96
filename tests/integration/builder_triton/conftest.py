"""A small real model and a tritonserver that serves it to the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import pytest_asyncio
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import Interface, ServingChoice, TensorSpec
from enginewright_builder.engines.base import Artifact, Rung
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer
from support.measuring import short_measurements

__all__ = ["short_measurements"]
# Beside other tests a whole build takes minutes.
PATIENCE = pytest.mark.timeout(900)
WEIGHTS = np.random.default_rng(7).standard_normal((8, 4)).astype(np.float32)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(PATIENCE)


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """``y = x · W`` for any batch and any number of rows in between."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "multiply",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "rows", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "rows", 4])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    interface = Interface(
        inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", "1..64", 8)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", "1..64", 4)),),
    )
    return Artifact(
        rung=Rung(backend="onnxruntime", precision="fp32"),
        files={"model.onnx": path},
        triton_backend="python",
        interface=interface,
        runtime_version="onnxruntime",
    )


@pytest.fixture(scope="session")
def repository(artifact: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    write_model(
        root,
        "multiply",
        artifact,
        # Long enough that requests sent together are joined on a busy machine too.
        ServingChoice(max_batch_size=8, max_queue_delay_us=20_000),
        cores=1,
        warmup={"x": np.ones((2, 3, 8), np.float32)},
    )
    return root


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(repository: Path) -> AsyncIterator[TritonServer]:
    async with TritonServer(repository, models=("multiply",)) as running:
        yield running

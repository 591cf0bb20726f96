"""What a tritonserver takes of the host and of a real GPU as a build measures it, and what Triton's pools are of that.

`pytest -s` prints the figures: docs/how-to/memory.md has them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import DeviceRequest, MemoryFigures, RuntimeRequest, ServingChoice
from enginewright_builder.engines.base import BuildContext, ExportedModel
from enginewright_builder.engines.tensorrt import TensorRtEngine
from enginewright_builder.load import encode, run_on_time
from enginewright_builder.models.onnx import load_onnx
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton.memory import MemoryWatch
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
MODEL, MAX_BATCH, CHANNELS = "model", 16, 64
# Of one batch between the layers, in FP32.
BETWEEN = MAX_BATCH * CHANNELS * 222 * 222 * 4
DEFAULT_POOL = 256 << 20
POOLS = {"as it comes": (), "none": ("--pinned-memory-pool-byte-size=0", "--cuda-memory-pool-byte-size=0:0")}


def images(batch: int) -> Tensors:
    return {"x": np.random.default_rng(3).standard_normal((batch, 3, 224, 224)).astype(np.float32)}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    random = np.random.default_rng(1)
    first = random.standard_normal((CHANNELS, 3, 3, 3)).astype(np.float32)
    second = random.standard_normal((8, CHANNELS, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "first"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("Conv", ["b", "second"], ["c"]), helper.make_node("GlobalAveragePool", ["c"], ["y"])]
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 224, 224])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8, 1, 1])],
        [numpy_helper.from_array(first, "first"), numpy_helper.from_array(second, "second")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "m.onnx")
    source = load_onnx(folder / "m.onnx", None)
    context = BuildContext(device=DeviceRequest(accelerator="gpu", gpu_count=1), max_batch_size=MAX_BATCH,
                           runtime=RuntimeRequest(backends=("python",), python_runtimes=("tensorrt",)),
                           calibration=[images(4)], workspace=folder / "work", source=source,
                           example=images(MAX_BATCH), buckets=(1, MAX_BATCH),
                           progress=lambda fraction, detail: None)
    engine = TensorRtEngine()
    rung, = engine.rungs("fp32", context)
    artifact = engine.build(rung, ExportedModel(path=source.path, interface=source.interface, opset=18), context)
    root = folder / "repository"
    write_model(root, MODEL, artifact, ServingChoice(max_batch_size=MAX_BATCH), gpus=(0,), warmup=images(MAX_BATCH))
    return root


async def measured(root: Path, options: tuple[str, ...]) -> MemoryFigures:
    async with TritonServer(root, gpus=(0,), options=(
            "--metrics-interval-ms=100", *options)) as server:
        async with MemoryWatch(server) as watch:
            await server.load(MODEL)
            await watch.loaded()
            await watch.under_load([encode(MODEL, images(MAX_BATCH))], concurrency=4, most_seconds=20)
        assert watch.figures is not None
        return watch.figures


@pytest.mark.parametrize("pools", POOLS)
def test_of_the_host_and_the_gpu(pools: str, repository: Path) -> None:
    found = run_on_time(measured(repository, POOLS[pools]))
    print(json.dumps({"pools": pools, **asdict(found)}))
    assert found.seen == "processes"
    assert found.concurrency == 4
    assert 0 < found.empty_bytes < found.loaded_bytes <= found.peak_bytes
    assert 0 < found.held_bytes <= found.peak_bytes
    assert found.device_empty_bytes is not None
    assert found.device_loaded_bytes is not None
    assert found.device_peak_bytes is not None
    assert found.device_loaded_bytes - found.device_empty_bytes > BETWEEN / 2, "activations, the context, and weights"
    assert found.device_peak_bytes >= found.device_loaded_bytes


@pytest.mark.gpu_metrics
def test_the_pinned_pool_is_what_was_asked_for(repository: Path) -> None:
    whole, none = (run_on_time(measured(repository, POOLS[name])) for name in ("as it comes", "none"))
    assert (whole.pinned_pool_bytes, none.pinned_pool_bytes) == (DEFAULT_POOL, 0)
    assert whole.pinned_bytes is not None
    assert 0 <= whole.pinned_bytes <= DEFAULT_POOL
    assert not none.pinned_bytes

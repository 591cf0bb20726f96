"""TensorRT behind a real tritonserver on a real GPU, by each way that tensors can come: in Triton's Python backend, and
in NVIDIA's own backend where this server has it (`TRITONSERVER_BACKENDS=DIR make test-gpu`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench.transports import TRANSPORTS, Client
from enginewright_builder.contract import COMPUTED, DeviceRequest, RuntimeRequest, ServingChoice
from enginewright_builder.engines.base import Artifact, BuildContext, ExportedModel
from enginewright_builder.engines.tensorrt import TensorRtEngine
from enginewright_builder.load import Channels, encode, run_on_time
from enginewright_builder.load.requests import decode
from enginewright_builder.models.onnx import OnnxModel, load_onnx
from enginewright_builder.queue_policy import CONFIG_FILE
from enginewright_builder.response_cache import front
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton import install
from enginewright_builder.triton.own_metrics import total
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
MODEL = "model"
MAX_BATCH = 8
BATCHES = (1, 3, MAX_BATCH)
# Largest error of an output, relative to its largest value: some hundred times FP32's rounding.
TOLERANCE = 1e-4


def images(batch: int, seed: int = 3) -> Tensors:
    """Large enough that Triton's shared memory is page-locked for each alone."""
    return {"x": np.random.default_rng(seed).standard_normal((batch, 3, 96, 96)).astype(np.float32)}


def convolution(folder: Path) -> OnnxModel:
    weights = np.random.default_rng(1).standard_normal((16, 3, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
             helper.make_node("Relu", ["c"], ["y"], name="relu")]
    graph = helper.make_graph(nodes, "net",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 96, 96])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 16, 94, 94])],
                              [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "m.onnx")
    return load_onnx(folder / "m.onnx", None)


def built(source: OnnxModel, backend: str, workspace: Path) -> Artifact:
    context = BuildContext(device=DeviceRequest(accelerator="gpu", gpu_count=1), max_batch_size=MAX_BATCH,
                           runtime=RuntimeRequest(backends=tuple({"python", backend}), python_runtimes=("tensorrt",)),
                           calibration=[images(4)], workspace=workspace, source=source, example=images(MAX_BATCH),
                           buckets=BATCHES, progress=lambda fraction, detail: None)
    engine = TensorRtEngine()
    rung, = engine.rungs("fp32", context)
    return engine.build(rung, ExportedModel(path=source.path, interface=source.interface, opset=18), context)


def served_backends(scratch: Path) -> Iterator[str]:
    yield "python"
    folder = install.find(scratch).backends or Path("/opt/tritonserver/backends")
    if (folder / "tensorrt").is_dir():
        yield "tensorrt"


def test_answers_by_every_way_are_the_sources(tmp_path: Path) -> None:
    source = convolution(tmp_path)
    for backend in served_backends(tmp_path / "installed"):
        artifact = built(source, backend, tmp_path / f"work-{backend}")
        assert artifact.triton_backend == backend
        root = tmp_path / f"served-{backend}"
        write_model(root, MODEL, artifact, ServingChoice(max_batch_size=MAX_BATCH), gpus=(0,),
                    warmup=images(MAX_BATCH))
        said = run_on_time(asked_by_every_way(root, source))
        assert "inputs are copied once more" not in said, "shared memory could not be page-locked"


async def asked_by_every_way(root: Path, source: OnnxModel) -> str:
    """Returns the server's log."""
    async with TritonServer(root, models=(MODEL,), gpus=(0,)) as server:
        for transport in TRANSPORTS:
            for batch in BATCHES:
                inputs = images(batch, seed=batch)
                expected = source.run(inputs)
                got = answered(server.grpc_url, transport, inputs, expected)
                assert np.abs(got["y"] - expected["y"]).max() < TOLERANCE * np.abs(expected["y"]).max()
        return server.log_file.read_text(errors="replace")


def answered(url: str, transport: str, inputs: Tensors, like: Tensors) -> dict[str, Any]:
    """The last of several answers: shapes that come back are captured as CUDA graphs."""
    with contextlib.closing(Client(url, MODEL, transport, inputs, like)) as client:
        for _ in range(4):
            client.ask()
        return {name: np.array(client.answer(name)) for name in like}


def test_a_response_cache_keeps_what_a_gpu_answers(tmp_path: Path) -> None:
    source = convolution(tmp_path)
    for backend in served_backends(tmp_path / "installed"):
        root = tmp_path / f"cached-{backend}"
        folder = write_model(root, MODEL + COMPUTED, built(source, backend, tmp_path / f"work-cached-{backend}"),
                             ServingChoice(max_batch_size=MAX_BATCH), gpus=(0,), warmup=images(MAX_BATCH))
        (root / MODEL / "1").mkdir(parents=True)
        (root / MODEL / CONFIG_FILE).write_text(front((folder / CONFIG_FILE).read_text(), MODEL + COMPUTED))
        computed = [*BATCHES, *BATCHES[::-1]]
        page, answers = run_on_time(asked_twice(root, computed))
        for batch, got in zip(computed, answers, strict=True):
            expected = source.run(images(batch, seed=batch))["y"]
            assert np.abs(got["y"] - expected).max() < TOLERANCE * np.abs(expected).max()
        assert total(page, "nv_cache_num_hits_per_model") == len(BATCHES)
        assert total(page, "nv_inference_count") > 0


async def asked_twice(root: Path, batches: list[int]) -> tuple[str, list[Tensors]]:
    """The server's metrics afterwards, and its answers."""
    caches = install.find(root.parent / "installed").binary.parents[1] / "caches"
    options = (f"--cache-config=local,size={64 << 20}", f"--cache-directory={caches}")
    async with (TritonServer(root, models=(MODEL, MODEL + COMPUTED), gpus=(0,),
                             options=options) as server, Channels(server.grpc_url) as channels):
        answers: list[Tensors] = [
            decode(await channels.call(encode(MODEL, images(batch, seed=batch)).payload, 60.0)) for batch in batches]
        return await server.metrics(), answers

"""One model's instances on two GPUs of one host, served by a real tritonserver.

    make test-gpu GPUS=2
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import DeviceRequest, RuntimeRequest, ServingChoice
from enginewright_builder.engines.base import BuildContext, ExportedModel
from enginewright_builder.engines.tensorrt import TensorRtEngine
from enginewright_builder.load import Channels, encode, run_on_time
from enginewright_builder.models.onnx import OnnxModel, load_onnx
from enginewright_builder.pod.device import devices, free_bytes
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton.prove import Case
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer
from support.own_server import prove

pytestmark = [pytest.mark.gpu, pytest.mark.two_gpus, pytest.mark.timeout(600)]

GPUS, REQUESTS, IN_FLIGHT = (0, 1), 200, 8
# Of a CUDA context, which is some hundred million.
LEAST_BYTES = 100 << 20


def linear(folder: Path) -> OnnxModel:
    weight = np.random.default_rng(1).standard_normal((256, 64)).astype(np.float32) / 16
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "linear",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 256])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64])],
                              [numpy_helper.from_array(weight, "w")])
    path = folder / "linear.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(path))
    return load_onnx(path, None)


def test_instances_on_both_gpus_answer(tmp_path: Path) -> None:
    if len(devices()) < len(GPUS):
        pytest.fail("this machine has fewer than two GPUs: run `make test-gpu` without GPUS=2 here", pytrace=False)
    source = linear(tmp_path)
    sample: Tensors = {"x": np.random.default_rng(2).standard_normal((1, 256)).astype(np.float32)}
    context = BuildContext(device=DeviceRequest(accelerator="gpu", gpu_count=len(GPUS)),
                           runtime=RuntimeRequest(python_runtimes=("tensorrt",)), max_batch_size=4, calibration=(),
                           workspace=tmp_path / "work", source=source, example=sample, buckets=(1, 4),
                           progress=lambda fraction, detail: None)
    engine = TensorRtEngine()
    rung, = engine.rungs("fp16", context)
    artifact = engine.build(rung, ExportedModel(path=source.path, interface=source.interface, opset=18), context)
    write_model(tmp_path / "served", "m", artifact, ServingChoice(max_batch_size=4), gpus=GPUS, warmup=sample)
    prove(tmp_path / "served", "m", [Case(inputs=sample, expected=source.run(sample))], gpus=GPUS)

    before = [free_bytes((gpu,)) for gpu in GPUS]

    async def taken() -> list[int]:
        """Bytes of each GPU that the server holds, while it answers."""
        async with (TritonServer(tmp_path / "served", models=("m",), gpus=GPUS) as server,
                    Channels(server.grpc_url, count=2) as channels):
            payload, waiting = encode("m", sample).payload, asyncio.Semaphore(IN_FLIGHT)

            async def ask() -> None:
                async with waiting:
                    await channels.call(payload, 30.0)

            async with asyncio.TaskGroup() as group:
                for _ in range(REQUESTS):
                    group.create_task(ask())
            return [(old or 0) - (free_bytes((gpu,)) or 0) for gpu, old in zip(GPUS, before, strict=True)]

    # An instance that never ran holds no engine and no CUDA context of its own: Triton's warm-up ran on each.
    assert min(run_on_time(taken())) > LEAST_BYTES

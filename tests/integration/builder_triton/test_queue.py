"""Queue policies on a real tritonserver, with models that the test holds until it has seen who waits."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import pytest_asyncio
import tritonclient.grpc.aio as triton
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from enginewright.clients.signals import ReplicaMetrics
from enginewright.clients.triton import parse_metrics
from enginewright_builder.contract import (
    Interface,
    QueueLevel,
    QueuePolicy,
    QueueRequest,
    ServingChoice,
    TensorSpec,
)
from enginewright_builder.engines.base import Artifact
from enginewright_builder.load import Channels, closed_loop, encode
from enginewright_builder.load.requests import decode
from enginewright_builder.queue_policy import CONFIG_FILE, with_queue
from enginewright_builder.triton.model_config import ServedModel, model_config, to_text
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer
from support.apiserver import eventually

pytestmark = [pytest.mark.triton, pytest.mark.asyncio(loop_scope="session")]
SECONDS = 60.0
# Answers how many requests it has answered, this one included. A negative number holds it until whoever has opened the
# pipe closes it.
MODEL = """
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        self.answered = 0

    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb.get_input_tensor_by_name(request, "x").as_numpy()
            if x.flat[0] < 0:
                with open({pipe!r}) as pipe:
                    pipe.read()
            self.answered += 1
            answers.append(pb.InferenceResponse([pb.Tensor("y", np.full(x.shape, self.answered, np.float32))]))
        return answers
"""
LONG = QueuePolicy(timeout_us=3_600_000_000, allow_timeout_override=True)
LEVELS = QueueRequest(priority_levels=2, default_priority_level=2)
# By model: the largest batch, and its policy.
MODELS = {
    "full": (1, QueueRequest(policy=QueuePolicy(max_queue_size=2))),
    "levels-0": (0, LEVELS), "levels-1": (1, LEVELS), "levels-4": (4, LEVELS),
    "full-level": (1, QueueRequest(priority_levels=2, default_priority_level=1, levels=(
        QueueLevel(level=2, policy=QueuePolicy(max_queue_size=1)),))),
    # Of the first level, so that what is held is not rejected itself: no request is computed within a microsecond.
    "rejects": (1, QueueRequest(policy=QueuePolicy(timeout_us=1), priority_levels=2, default_priority_level=2, levels=(
        QueueLevel(level=1, policy=QueuePolicy()),))),
    "continues": (1, QueueRequest(policy=QueuePolicy(timeout_us=1, timeout_action="continue"))),
    "overrides": (1, QueueRequest(policy=LONG)),
}


def write_held(root: Path, name: str, largest: int, queue: QueueRequest) -> None:
    tensor = TensorSpec(name="x", dtype="float32", shape=("batch", 1) if largest else (1, 1))
    outputs = (TensorSpec(name="y", dtype="float32", shape=tensor.shape),)
    config = model_config(ServedModel(
        name="", triton_backend="python", interface=Interface(inputs=(tensor,), outputs=outputs),
        serving=ServingChoice(max_batch_size=largest)))
    (root / name / "1").mkdir(parents=True)
    (root / name / CONFIG_FILE).write_text(with_queue(to_text(config), queue))
    os.mkfifo(root / name / "pipe")
    (root / name / "1" / "model.py").write_text(MODEL.format(pipe=str(root / name / "pipe")))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def queues(artifact: Artifact, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TritonServer]:
    root = tmp_path_factory.mktemp("queues")
    for name, (largest, queue) in MODELS.items():
        write_held(root, name, largest, queue)
    folder = write_model(root, "multiply", artifact, ServingChoice(max_batch_size=8, max_queue_delay_us=500), cores=1)
    config = folder / CONFIG_FILE
    config.write_text(with_queue(config.read_text(), QueueRequest(
        policy=QueuePolicy(max_queue_size=64, timeout_us=60_000_000), priority_levels=2, default_priority_level=2)))
    async with TritonServer(root, models=(*MODELS, "multiply")) as running:
        yield running


async def metrics(server: TritonServer) -> ReplicaMetrics:
    async with httpx.AsyncClient(timeout=SECONDS) as client:
        return parse_metrics((await client.get(f"http://{server.metrics_address}/metrics")).content)


async def waiting(server: TritonServer, model: str, count: int) -> None:
    async def all_wait() -> bool:
        return (await metrics(server)).pending[model] == count

    await eventually(all_wait, SECONDS)


async def ask(server: TritonServer, model: str, value: float = 1.0, *, priority: int = 0, timeout_us: int = 0) -> float:
    async with triton.InferenceServerClient(server.grpc_url) as client:
        tensor = triton.InferInput("x", [1, 1], "FP32")
        tensor.set_data_from_numpy(np.array([[value]], np.float32))
        answer = await client.infer(model, [tensor], priority=priority, timeout=timeout_us or None)
    return float(answer.as_numpy("y").flat[0])


async def _opened(pipe: Path) -> int:
    """Once the model reads from it."""
    async def opened() -> tuple[int] | None:
        with contextlib.suppress(OSError):
            return (os.open(pipe, os.O_WRONLY | os.O_NONBLOCK),)
        return None

    found = await eventually(opened, SECONDS)
    assert found
    return found[0]


@contextlib.asynccontextmanager
async def held(server: TritonServer, model: str, priority: int = 0) -> AsyncIterator[None]:
    """The model's one instance computes a request for as long as this lasts."""
    first = asyncio.create_task(ask(server, model, -1.0, priority=priority))
    pipe = await _opened(server.repository / model / "pipe")
    try:
        yield
    finally:
        os.close(pipe)
    assert await first == 1.0


@contextlib.contextmanager
def rejected(words: str) -> Iterator[None]:
    with pytest.raises(InferenceServerException) as refused:
        yield
    assert refused.value.status() == "StatusCode.UNAVAILABLE"
    assert words in refused.value.message()


async def test_a_full_queue_rejects_by_the_protocols_own_status(queues: TritonServer) -> None:
    async with held(queues, "full"):
        both = []
        for count in (1, 2):
            both.append(asyncio.create_task(ask(queues, "full")))
            await waiting(queues, "full", count)
        with rejected("Exceeds maximum queue size"):
            await ask(queues, "full")
        async with httpx.AsyncClient(base_url=queues.http_url, timeout=SECONDS) as client:
            answer = await client.post("/v2/models/full/infer", json={"inputs": [
                {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}]})
        assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE
        assert "Exceeds maximum queue size" in answer.text
    assert sorted(await asyncio.gather(*both)) == [2.0, 3.0], "those that waited are answered"


async def test_the_load_generator_counts_what_a_full_queue_rejects_apart(queues: TritonServer) -> None:
    async with held(queues, "full-level"):
        waits = asyncio.create_task(ask(queues, "full-level", priority=2))
        await waiting(queues, "full-level", 1)
        request = encode("full-level", {"x": np.ones((1, 1), np.float32)})
        payload = with_priority(request.payload, 2)
        async with Channels(queues.grpc_url, count=1) as channels:
            found = await closed_loop(channels, [type(request)(payload, 1)], concurrency=1, seconds=SECONDS,
                                      max_requests=3, retries=2)
        assert (found.rejected, found.failed, found.errors, found.retried) == ({"QUEUE_FULL": 3}, 0, {}, 0)
    assert await waits == 2.0


def with_priority(payload: bytes, level: int) -> bytes:
    message = service_pb2.ModelInferRequest.FromString(payload)
    message.parameters["priority"].uint64_param = level
    return bytes(message.SerializeToString())


@pytest.mark.parametrize("model", ["levels-0", "levels-1", "levels-4"])
async def test_a_request_of_high_priority_overtakes_those_that_wait(queues: TritonServer, model: str) -> None:
    """Also where the model takes no batches, and where the batch that it takes holds all that wait."""
    async with held(queues, model):
        low = []
        for count, level in enumerate((0, 2, 0), start=1):
            low.append(asyncio.create_task(ask(queues, model, priority=level)))
            await waiting(queues, model, count)
        high = asyncio.create_task(ask(queues, model, priority=1))
        await waiting(queues, model, 4)
    assert await high == 2.0
    assert await asyncio.gather(*low) == [3.0, 4.0, 5.0]


async def test_a_request_that_waits_for_too_long_is_rejected_and_no_failure(queues: TritonServer) -> None:
    before = (await metrics(queues)).rejected
    async with held(queues, "rejects", priority=1):
        with rejected("Request timeout expired"):
            await ask(queues, "rejects")
        async with Channels(queues.grpc_url, count=1) as channels:
            found = await closed_loop(channels, [encode("rejects", {"x": np.ones((1, 1), np.float32)})], concurrency=1,
                                      seconds=SECONDS, max_requests=2, retries=2)
        assert (found.rejected, found.failed, found.errors) == ({"QUEUE_TIMEOUT": 2}, 0, {})

    async def counted() -> bool:  # by Triton, which may answer before
        return (await metrics(queues)).rejected - before == 3.0

    await eventually(counted, SECONDS)
    assert (await metrics(queues)).broken == 0.0


async def test_one_that_may_go_on_is_answered_after_its_timeout(queues: TritonServer) -> None:
    async with held(queues, "continues"):
        late = asyncio.create_task(ask(queues, "continues"))
        await waiting(queues, "continues", 1)
    assert await late == 2.0


async def test_a_request_may_bring_a_shorter_timeout(queues: TritonServer) -> None:
    async with held(queues, "overrides"):
        patient = asyncio.create_task(ask(queues, "overrides"))
        await waiting(queues, "overrides", 1)
        with rejected("Request timeout expired"):
            await ask(queues, "overrides", timeout_us=1)
    assert await patient == 2.0


async def test_an_engine_in_the_python_backend_is_served_with_a_policy(queues: TritonServer) -> None:
    x = np.random.default_rng(3).standard_normal((3, 5, 8)).astype(np.float32)
    weights = np.random.default_rng(7).standard_normal((8, 4)).astype(np.float32)
    async with Channels(queues.grpc_url) as channels:
        answers = await asyncio.gather(*(channels.call(encode("multiply", {"x": x}).payload, SECONDS)
                                         for _ in range(8)))
    for answer in answers:
        np.testing.assert_allclose(decode(answer)["y"], x @ weights, rtol=1e-4, atol=1e-5)

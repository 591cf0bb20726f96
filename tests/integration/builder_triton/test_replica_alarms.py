"""Alarms about what replicas do, fired by a real Prometheus that scrapes a real tritonserver."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from tritonclient.utils import InferenceServerException

from enginewright_builder.contract import Interface, ServingChoice, TensorSpec
from enginewright_builder.load import Channels, encode
from enginewright_builder.queue_policy import CONFIG_FILE
from enginewright_builder.triton.model_config import ServedModel, model_config, to_text
from enginewright_builder.triton.own_metrics import FAILED, total
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer
from support.apiserver import eventually
from support.picks import picks
from support.prometheus import answers, at_once, fired, fires_only, runbook_finds, running

pytestmark = pytest.mark.triton
NAME = "minilm"
# What a request is, by its number: held until the test lets it go, one that the model breaks on, or answered at once.
HELD, BROKEN, GOOD = -1.0, 0.0, 1.0
MODEL = """
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(pb.get_input_tensor_by_name(request, "x").as_numpy()) for request in requests]

    def answer(self, x):
        if x.flat[0] < 0:
            with open({pipe!r}) as pipe:
                pipe.read()
        if x.flat[0] == 0:
            raise RuntimeError("out of memory")  # an error as an answer Triton counts as a success
        return pb.InferenceResponse([pb.Tensor("y", x)])
"""


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.fixture
async def server(tmp_path: Path, pipe: Path) -> AsyncIterator[TritonServer]:
    """Of one model that takes requests one by one."""
    folder = tmp_path / "repository" / NAME
    (folder / "1").mkdir(parents=True)
    x, y = (TensorSpec(name=name, dtype="float32", shape=("batch", 1)) for name in "xy")
    config = model_config(ServedModel(name="", triton_backend="python", interface=Interface(inputs=(x,), outputs=(y,)),
                                      serving=ServingChoice(max_batch_size=1)))
    (folder / CONFIG_FILE).write_text(to_text(config))
    (folder / "1" / "model.py").write_text(MODEL.format(pipe=str(pipe)))
    async with TritonServer(folder.parent, models=(NAME,)) as found:
        yield found


@contextlib.asynccontextmanager
async def held(pipe: Path) -> AsyncIterator[None]:
    """Lets the model go at the end; it has come to a request that is held before the block begins."""

    async def opened() -> tuple[int] | None:
        with contextlib.suppress(OSError):  # nobody reads it yet
            return (os.open(pipe, os.O_WRONLY | os.O_NONBLOCK),)
        return None

    found = await eventually(opened)
    assert found
    try:
        yield
    finally:
        os.close(found[0])


async def test_requests_that_wait_and_requests_that_fail(server: TritonServer, pipe: Path, tmp_path: Path) -> None:
    # With the labels that the chart's PodMonitor gives.
    target = {"targets": [server.metrics_address],
              "labels": {"namespace": "models", "pod": "a", "revision": "1", "optimisedmodel": NAME}}
    async with (
        running(tmp_path, [target], [at_once(tmp_path)]) as url,
        triton.InferenceServerClient(server.grpc_url) as client,
        httpx.AsyncClient(timeout=60) as http,
        asyncio.TaskGroup() as group,
    ):

        async def ask(kind: float) -> None:
            tensor = triton.InferInput("x", [1, 1], "FP32")
            tensor.set_data_from_numpy(np.array([[kind]], np.float32))
            await client.infer(NAME, [tensor])

        async def waits(requests: int) -> None:
            async def recorded() -> bool:
                return await answers(http, url, f"enginewright:queue_depth:sum == {requests}")

            await eventually(recorded)

        await waits(0)
        await fires_only(http, url)
        group.create_task(ask(HELD))
        async with held(pipe):
            # Nothing is answered, so that there is no mean time of answered requests.
            for _ in range(8):
                group.create_task(ask(GOOD))
            await waits(8)
            await fires_only(http, url, ("RequestsWait", NAME))
            group.create_task(ask(HELD))
            await waits(9)
            group.create_task(ask(GOOD))
            group.create_task(ask(GOOD))
            await waits(11)
        # Eight that waited have been answered, and two wait behind the one that is held now.
        await waits(2)
        async with held(pipe):
            await eventually(lambda: answers(http, url, "enginewright:requests:rate1m > 0"))
            await fires_only(http, url, ("RequestsWait", NAME))
            await runbook_finds(http, url, "RequestsWait", NAME)
        await waits(0)
        await fires_only(http, url)

        for _ in range(10):
            with pytest.raises(InferenceServerException, match="out of memory"):
                await ask(BROKEN)
        await fires_only(http, url, ("InferencesFail", NAME))
        await runbook_finds(http, url, "InferencesFail", NAME)


async def test_a_request_that_fails_beside_others_of_its_batch(tmp_path: Path) -> None:
    """Of an engine as the builder writes it into the model repository. Triton counts a success."""
    write_model(tmp_path / "repository", NAME, picks(tmp_path / "picks"),
                ServingChoice(max_batch_size=2, max_queue_delay_us=1_000_000), cores=1)
    payloads = [encode(NAME, {"x": np.array([[number]], np.int64)}).payload for number in (1, 9)]
    async with TritonServer(tmp_path / "repository", models=(NAME,)) as server:
        target = {"targets": [server.metrics_address],
                  "labels": {"namespace": "models", "pod": "a", "revision": "1", "optimisedmodel": NAME}}
        async with (
            running(tmp_path, [target], [at_once(tmp_path)]) as url,
            Channels(server.grpc_url) as channels,
            httpx.AsyncClient(timeout=60) as http,
        ):

            async def one_of_two_fails() -> bool:
                answers = await asyncio.gather(*(channels.call(one, 30.0) for one in payloads), return_exceptions=True)
                assert [isinstance(one, Exception) for one in answers] == [False, True]
                return (await fired(http, url)) == {("InferencesFail", NAME)}

            await eventually(one_of_two_fails)
            assert total(await server.metrics(), FAILED) > 0
            await runbook_finds(http, url, "InferencesFail", NAME)

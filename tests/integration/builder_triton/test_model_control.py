"""Other batching for a real tritonserver while it serves: nothing is lost, and only who knows the key may do it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import httpx
import numpy as np
import pytest
import pytest_asyncio
from tritonclient.grpc import service_pb2

from enginewright.clients.errors import RefusedError, TransientError
from enginewright.clients.model_control import ModelControl
from enginewright.clients.triton import TritonClient
from enginewright.core.batching import Setting
from enginewright.core.labels import KEY_HEADER
from enginewright_builder.contract import ServingChoice
from enginewright_builder.engines.base import Artifact
from enginewright_builder.load import Channels, closed_loop, encode
from enginewright_builder.triton import install
from enginewright_builder.triton.ports import HOST, free_ports
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer
from support.apiserver import eventually

pytestmark = [pytest.mark.triton, pytest.mark.asyncio(loop_scope="session")]
KEY = "a-key-of-this-test"
SETTINGS = (Setting(delay_us=2000, preferred=(4, 8)), Setting(), Setting(delay_us=500), Setting(delay_us=1000))


class Locked(TritonServer):
    """Model control needs a key, by either protocol."""

    def _arguments(self, installation: install.Installation) -> list[str]:
        return [*super()._arguments(installation), f"--http-restricted-api=model-repository:{KEY_HEADER}={KEY}",
                f"--grpc-restricted-protocol=model-repository:{KEY_HEADER}={KEY}"]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def locked(artifact: Artifact, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TritonServer]:
    root = tmp_path_factory.mktemp("locked")
    # Without a warm-up: Triton counts its requests, too, at each load.
    write_model(root, "multiply", artifact, ServingChoice(max_batch_size=8), cores=1)
    write_model(root, "unbatched", artifact, ServingChoice(max_batch_size=1), cores=1)
    async with Locked(root, models=("multiply", "unbatched"), ready_seconds=60) as running:
        yield running


def port(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


async def test_batching_changes_under_load_and_no_request_is_lost(locked: TritonServer) -> None:
    http, stop = port(locked.http_url), asyncio.Event()
    request = [encode("multiply", {"x": np.ones((1, 3, 8), np.float32)})]
    async with ModelControl(KEY) as control, Channels(locked.grpc_url, count=4) as channels, TritonClient() as metrics:

        async def counted() -> float:
            return (await metrics.scrape(HOST, port(locked.metrics_address))).successes["multiply"]

        before = await counted()
        load = asyncio.create_task(closed_loop(channels, request, concurrency=8, seconds=120.0, stop=stop))
        try:
            for setting in SETTINGS:
                assert await control.apply(HOST, "multiply", setting, http)
                assert await control.batching(HOST, "multiply", http) == setting
                assert not await control.apply(HOST, "multiply", setting, http), "it has it already"
        finally:
            stop.set()
            await asyncio.wait({load})
        result = load.result()
        assert result.requests > 0
        assert (result.failed, dict(result.errors)) == (0, {})
        # Counters go on, whatever was loaded meanwhile. A request is counted after it was answered.
        async def complete() -> bool:
            return await counted() - before == result.requests

        await eventually(complete)


async def test_nothing_but_batching_changes(locked: TritonServer) -> None:
    async with httpx.AsyncClient(base_url=locked.http_url) as client, ModelControl(KEY) as control:
        before = (await client.get("/v2/models/multiply/config")).json()
        await control.apply(HOST, "multiply", Setting(delay_us=3300), port(locked.http_url))
        after = (await client.get("/v2/models/multiply/config")).json()
    assert before.pop("dynamic_batching") != after.pop("dynamic_batching")
    assert before == after


@pytest.mark.parametrize("key", ["", "another"])
async def test_without_the_key_it_is_refused_and_serves_on(locked: TritonServer, key: str) -> None:
    http = port(locked.http_url)
    async with ModelControl(key) as stranger, ModelControl(KEY) as control:
        before = await control.batching(HOST, "multiply", http)
        with pytest.raises(RefusedError, match="answered 40"):
            await stranger.apply(HOST, "multiply", Setting(delay_us=7700), http)
        assert await control.batching(HOST, "multiply", http) == before


async def test_nor_by_grpc(locked: TritonServer) -> None:
    async with grpc.aio.insecure_channel(locked.grpc_url) as channel:
        call = channel.unary_unary(
            "/inference.GRPCInferenceService/RepositoryModelLoad",
            request_serializer=service_pb2.RepositoryModelLoadRequest.SerializeToString,
            response_deserializer=service_pb2.RepositoryModelLoadResponse.FromString)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(service_pb2.RepositoryModelLoadRequest(model_name="multiply"))
    assert refused.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED)
    assert "restrict" in (refused.value.details() or "")


async def test_what_triton_refuses_leaves_the_old_one_serving(locked: TritonServer) -> None:
    http = port(locked.http_url)
    request = [encode("multiply", {"x": np.ones((1, 3, 8), np.float32)})]
    async with ModelControl(KEY) as control, Channels(locked.grpc_url, count=1) as channels:
        before = await control.batching(HOST, "multiply", http)
        with pytest.raises(RefusedError, match="answered 500"):
            await control.apply(HOST, "multiply", Setting(delay_us=100, preferred=(64,)), http)
        assert await control.batching(HOST, "multiply", http) == before
        assert (await closed_loop(channels, request, concurrency=1, seconds=60.0, max_requests=5)).failed == 0


async def test_a_model_that_forms_no_batches_is_told_apart(locked: TritonServer) -> None:
    async with ModelControl(KEY) as control:
        with pytest.raises(RefusedError, match="forms no batches"):
            await control.apply(HOST, "unbatched", Setting(delay_us=100), port(locked.http_url))


async def test_a_replica_that_is_not_there(tmp_path: Path) -> None:
    async with ModelControl(KEY, deadline=5.0) as control:
        with pytest.raises(TransientError):
            await control.batching(HOST, "multiply", free_ports(1)[0])

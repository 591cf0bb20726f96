"""A tritonserver that somebody else runs, by its address alone: what a build's proof speaks to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import httpx
import numpy as np
import pytest
import pytest_asyncio
from tritonclient.grpc import service_pb2

from enginewright_builder.contract import ServingChoice
from enginewright_builder.engines.base import Artifact
from enginewright_builder.errors import UserError
from enginewright_builder.load import Channels, encode
from enginewright_builder.triton.client import Address, Server
from enginewright_builder.triton.model_config import model_config
from enginewright_builder.triton.ports import HOST, free_ports
from enginewright_builder.triton.repository import served_model, write_model
from enginewright_builder.triton.server import TritonServer

pytestmark = [pytest.mark.triton, pytest.mark.asyncio(loop_scope="session")]
HEADER, KEY = "triton-model-control", "a-key-of-this-test"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def elsewhere(artifact: Artifact, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TritonServer]:
    """It has no model loaded, and opens model control to the key alone."""
    root = tmp_path_factory.mktemp("elsewhere")
    write_model(root, "multiply", artifact, ServingChoice(max_batch_size=8), cores=1)
    options = (f"--http-restricted-api=model-repository:{HEADER}={KEY}",
               f"--grpc-restricted-protocol=model-repository:{HEADER}={KEY}")
    async with TritonServer(root, options=options) as running:
        yield running


async def test_a_model_is_loaded_asked_and_unloaded(elsewhere: TritonServer, artifact: Artifact) -> None:
    two = ServingChoice(max_batch_size=4, instance_count=2)
    config = model_config(served_model("multiply", artifact, two, cores=2))
    async with Server(elsewhere.address, headers={HEADER: KEY}) as server:
        assert (server.version, server.start_seconds) == (elsewhere.version, 0.0)
        assert await server.load("multiply", config) > 0
        async with Channels(server.grpc_url, count=1) as channels:
            await channels.call(encode("multiply", {"x": np.ones((1, 3, 8), np.float32)}).payload, 60.0)
        async with httpx.AsyncClient(timeout=60) as client:
            loaded = (await client.get(f"{server.http_url}/v2/models/multiply/config")).json()
        assert loaded["instance_group"][0]["count"] == 2
        assert 'model="multiply"' in await server.metrics()
        await server.unload("multiply")
        assert not await server.model_ready("multiply")
    async with Server(elsewhere.address) as again:  # it outlives its clients
        assert again.version == elsewhere.version


async def test_of_a_server_without_a_gpu_nobody_tells_the_memory(elsewhere: TritonServer) -> None:
    async with Server(elsewhere.address) as server:
        assert await server.memory_bytes() == 0


async def test_without_the_key_nothing_is_loaded(elsewhere: TritonServer) -> None:
    async with Server(elsewhere.address) as server:
        with pytest.raises(UserError, match="restricted") as caught:
            await server.load("multiply")
    assert caught.value.reason == "ServerLoadFailed"


async def test_nor_by_grpc(elsewhere: TritonServer) -> None:
    async with grpc.aio.insecure_channel(elsewhere.grpc_url) as channel:
        call = channel.unary_unary(
            "/inference.GRPCInferenceService/RepositoryModelLoad",
            request_serializer=service_pb2.RepositoryModelLoadRequest.SerializeToString,
            response_deserializer=service_pb2.RepositoryModelLoadResponse.FromString)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(service_pb2.RepositoryModelLoadRequest(model_name="multiply"))
    assert refused.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED)
    assert "restrict" in (refused.value.details() or "")


async def test_what_does_not_load_is_told_with_tritons_words_and_where_the_log_is(elsewhere: TritonServer) -> None:
    async with Server(elsewhere.address, headers={HEADER: KEY}) as server:
        with pytest.raises(UserError, match="absent") as caught:
            await server.load("absent")
    assert f"The log of the server at {elsewhere.address.http} says more" in caught.value.message


async def test_a_server_that_never_comes_is_not_awaited_for_ever() -> None:
    http, grpc, metrics = (f"{HOST}:{port}" for port in free_ports(3))
    with pytest.raises(UserError, match="not ready within 0 s") as caught:
        async with Server(Address(http=http, grpc=grpc, metrics=metrics), ready_seconds=0.2):
            pass
    assert (caught.value.reason, caught.value.value) == ("ServerDidNotStart", http)

"""The first request to an engine that a sweep has loaded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import grpc
import grpc.aio
import pytest

from enginewright_builder.contract import BatchingRequest, InstancesRequest, ObjectiveRequest, ServingChoice
from enginewright_builder.engines.base import Artifact
from enginewright_builder.errors import UserError
from enginewright_builder.load import Request
from enginewright_builder.sweep import _cold_start
from enginewright_builder.sweep.bench import Bench
from enginewright_builder.sweep.space import Space
from enginewright_builder.triton.client import Server


async def _refuse(payload: bytes, context: grpc.aio.ServicerContext) -> None:
    await context.abort(grpc.StatusCode.INTERNAL, "no kernel")


async def test_an_engine_that_loads_and_does_not_answer_is_one_that_the_server_cannot_run(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """So that another way to serve it is tried, and the build says what the server said."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
        "inference.GRPCInferenceService", {"ModelInfer": grpc.unary_unary_rpc_method_handler(_refuse)}),))
    url = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()

    async def loaded(self: Bench, serving: ServingChoice) -> float:
        return 1.0

    monkeypatch.setattr(Bench, "use", loaded)
    triton = SimpleNamespace(grpc_url=url, last_words=lambda: "its last words")
    bench = Bench(server=cast(Server, triton), artifact=cast(Artifact, None), model_name="m",
                  requests=[Request(b"", 1)], objective=ObjectiveRequest(), cores=1, gpus=(), point_seconds=1.0)
    space = Space.of(max_batch_size=1, batching=BatchingRequest(), instances=InstancesRequest(count=1), cores=1, gpus=0)
    try:
        with pytest.raises(UserError, match=r"INTERNAL: no kernel\. its last words") as caught:
            await _cold_start(bench, space)
        assert caught.value.reason == "ServerLoadFailed"
    finally:
        await server.stop(None)

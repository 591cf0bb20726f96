"""Triton's own clients ask a real tritonserver that is not there yet, through the activator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio as by_grpc
import tritonclient.http.aio as by_http

from enginewright.activator.serve import Options, activator
from enginewright_builder.triton import server as triton
from enginewright_builder.triton.patience import READY_SECONDS
from enginewright_builder.triton.ports import HOST, free_ports
from support.apiserver import eventually

pytestmark = pytest.mark.triton

ROWS = np.random.default_rng(3).standard_normal((2, 3, 8)).astype(np.float32)


def tensor(module: Any) -> Any:
    found = module.InferInput("x", list(ROWS.shape), "FP32")
    found.set_data_from_numpy(ROWS)
    return found


async def streamed(client: by_grpc.InferenceServerClient) -> list[Any]:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        for number in range(3):
            yield {"model_name": "multiply", "inputs": [tensor(by_grpc)], "request_id": str(number)}

    found = []
    async for result, error in client.stream_infer(requests()):
        assert error is None
        found.append(result.as_numpy("y"))
    return found


async def test_what_is_asked_before_the_server_starts_is_answered(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    http, grpc, _ = ports = free_ports(3)
    monkeypatch.setattr(triton, "free_ports", lambda _: ports)
    options = Options(backend=HOST, backend_http=http, backend_grpc=grpc, host=HOST, http_port=0,
                      grpc_port=0, metrics_port=0, hold=READY_SECONDS)
    async with (
        activator(options) as running,
        by_http.InferenceServerClient(f"{HOST}:{running.http_port}", conn_timeout=READY_SECONDS) as plain,
        by_grpc.InferenceServerClient(f"{HOST}:{running.grpc_port}") as remote,
    ):
        assert await plain.is_server_ready()
        assert await remote.is_server_ready()
        asked = [
            asyncio.create_task(plain.infer("multiply", [tensor(by_http)])),
            # Packed, which the activator must leave as it is.
            asyncio.create_task(plain.infer("multiply", [tensor(by_http)], request_compression_algorithm="gzip",
                                            response_compression_algorithm="gzip")),
            asyncio.create_task(remote.infer("multiply", [tensor(by_grpc)])),
            asyncio.create_task(streamed(remote)),
            asyncio.create_task(plain.get_model_metadata("multiply")),
        ]

        async def held() -> bool:
            return running.gate.pending == len(asked)

        await eventually(held)
        async with triton.TritonServer(repository, models=("multiply",)) as server:
            *answers, stream, described = await asyncio.gather(*asked)
            wanted = (await _direct(server)).as_numpy("y")
            for found in (*(answer.as_numpy("y") for answer in answers), *stream):
                np.testing.assert_allclose(found, wanted, rtol=1e-5)
            assert len(stream) == 3
            assert described["name"] == "multiply"
            with pytest.raises(by_grpc.InferenceServerException, match="unknown model"):
                await remote.infer("nothing", [tensor(by_grpc)])
            with pytest.raises(by_http.InferenceServerException, match="unknown model"):
                await plain.infer("nothing", [tensor(by_http)])


async def _direct(server: triton.TritonServer) -> Any:
    async with by_grpc.InferenceServerClient(server.grpc_url) as client:
        return await client.infer("multiply", [tensor(by_grpc)])

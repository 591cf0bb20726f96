"""The queue of a real tritonserver as a real Prometheus tells it to the operator."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
import pytest
import pytest_asyncio
import tritonclient.grpc.aio as triton

from enginewright.clients.errors import TransientError
from enginewright.clients.prometheus import PrometheusClient
from enginewright.plugin.measured import over_time
from enginewright.plugin.wishes import WishError
from enginewright_builder.contract import ServingChoice
from enginewright_builder.engines.base import Artifact
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer
from support.apiserver import eventually
from support.dashboards import expressions
from support.prometheus import answers, running
from support.stand_in import free_port

pytestmark = [pytest.mark.triton, pytest.mark.asyncio(loop_scope="module")]

RULES = Path(__file__).resolve().parents[3] / "charts" / "enginewright" / "files" / "rules.yaml"
POD = "queued-0a1b2c3d-6f7c8d-x2x4z"
BATCH, QUEUED = 8, 3
# For ever, as far as this test goes: the requests wait until others fill their batch.
DELAY_US = 600_000_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def patient(artifact: Artifact, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TritonServer]:
    """A server whose batcher waits for a full batch, and which exports all that Triton can."""
    root = tmp_path_factory.mktemp("patient")
    choice = ServingChoice(max_batch_size=BATCH, max_queue_delay_us=DELAY_US)
    write_model(root, "queued", artifact, choice, cores=1)
    options = ("--metrics-config=summary_latencies=true",)
    async with TritonServer(root, models=("queued",), options=options) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prometheus(patient: TritonServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The URL of a Prometheus that scrapes that server each second, with the labels that pod discovery gives."""
    labels = {"namespace": "models", "pod": POD, "optimisedmodel": "queued"}
    target = {"targets": [patient.metrics_address], "labels": labels}
    async with running(tmp_path_factory.mktemp("prometheus"), [target], [RULES]) as url:
        yield url


async def test_what_waits_in_triton_is_what_the_operator_reads(patient: TritonServer, prometheus: str) -> None:
    async with (PrometheusClient(deadline=60, stale_after=10) as client,
                triton.InferenceServerClient(patient.grpc_url) as server):
        async def reads(pending: dict[str, float]) -> bool:
            return await client.pending(prometheus, "models", "queued") == pending

        await eventually(lambda: reads({POD: 0.0}))
        tensor = triton.InferInput("x", [1, 2, 8], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 2, 8), np.float32))
        waiting = [asyncio.create_task(server.infer("queued", [tensor])) for _ in range(QUEUED)]
        await eventually(lambda: reads({POD: float(QUEUED)}))
        await eventually(lambda: _recorded(prometheus, QUEUED))
        waiting += [asyncio.create_task(server.infer("queued", [tensor])) for _ in range(BATCH - QUEUED)]
        await asyncio.gather(*waiting)
        await eventually(lambda: reads({POD: 0.0}))
        assert await client.pending(prometheus, "elsewhere", "queued") == {}
        assert await client.pending(prometheus, "models", "queue") == {}


async def test_the_report_gets_replicas_queue_and_requests_over_time(patient: TritonServer, prometheus: str) -> None:
    model = {"metadata": {"namespace": "models", "name": "queued"}}

    async def seen() -> bool:
        found = await over_time(prometheus, model, datetime.now(UTC), 1.0)
        # A rate needs two readings.
        return all(found.values()) and found["replicas"][-1][1] == 1

    await eventually(seen)
    elsewhere = {"metadata": {"namespace": "elsewhere", "name": "queued"}}
    assert await over_time(prometheus, elsewhere, datetime.now(UTC), 1.0) == {"replicas": [], "queued": [], "rate": []}
    with pytest.raises(WishError, match=r"^--prometheus http://127.0.0.1:\d+: "):
        await over_time(f"http://127.0.0.1:{free_port()}", model, datetime.now(UTC), 1.0)


# Of a server with a GPU.
NOT_HERE = ("nv_gpu_", "nv_energy_")
# Of one with a response cache, whose counters test_response_cache.py reads.
OF_CACHES = "nv_cache_"


async def test_no_panel_of_the_dashboards_is_empty(patient: TritonServer, prometheus: str) -> None:
    """Every expression of the chart's dashboards that reads a server's metrics, asked of the real Prometheus."""
    variables = {"__rate_interval": "1m", "namespace": "models", "model": "queued"}
    asked = [(panel, text) for panel, text in expressions("nv_", variables)
             if not any(metric in text for metric in NOT_HERE)]
    assert len(asked) > 12
    async with httpx.AsyncClient(timeout=60) as http, triton.InferenceServerClient(patient.grpc_url) as server:
        tensor = triton.InferInput("x", [1, 2, 8], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 2, 8), np.float32))

        async def no_panel_is_empty() -> bool:
            # A rate needs two readings with requests between them.
            await asyncio.gather(*(server.infer("queued", [tensor]) for _ in range(BATCH)))
            empty = [panel for panel, text in asked if not await answers(http, prometheus, text)]
            assert empty == []
            return True

        await eventually(no_panel_is_empty)


async def _recorded(prometheus: str, depth: float) -> bool:
    """Whether the recording rule, which autoscalers read, says ``depth``."""
    query = {"query": 'enginewright:queue_depth:sum{namespace="models",optimisedmodel="queued"}'}
    async with httpx.AsyncClient(timeout=60) as http:
        found = (await http.get(f"{prometheus}/api/v1/query", params=query)).json()["data"]["result"]
    return [float(entry["value"][1]) for entry in found] == [depth]


async def test_rules_name_only_what_triton_exports(patient: TritonServer) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        page = (await http.get(f"http://{patient.metrics_address}/metrics")).text
    named = re.findall(r"nv_[a-z_]+", RULES.read_text())
    asked = {name for name in named if not name.startswith((*NOT_HERE, OF_CACHES))}
    assert len(asked) > 5
    assert asked <= set(re.findall(r"^nv_[a-z_]+", page, re.MULTILINE))


async def test_a_prometheus_that_is_gone_is_transient() -> None:
    async with PrometheusClient(deadline=1) as client:
        with pytest.raises(TransientError, match="query"):
            await client.pending(f"http://127.0.0.1:{free_port()}", "models", "queued")

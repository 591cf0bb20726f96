"""The alarm about activators, fired by a real Prometheus that scrapes real activators."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import httpx

from enginewright.activator.serve import Options, Running, activator
from enginewright_builder.triton.ports import HOST
from support.apiserver import eventually
from support.prometheus import answers, at_once, fires_only, runbook_finds, running
from support.stand_in import StandIn

# For ever, as far as this test goes.
LONG = 3600.0


@contextlib.asynccontextmanager
async def holding(replica: StandIn, **options: Any) -> AsyncIterator[Running]:
    chosen = Options(backend=HOST, backend_http=replica.http_port, backend_grpc=replica.grpc_port, host=HOST,
                     http_port=0, grpc_port=0, metrics_port=0, **options)
    async with activator(chosen) as found:
        yield found


async def test_one_request_that_was_turned_away_is_enough(tmp_path: Path) -> None:
    """Whether it came too late or found no place. One that a replica answered fires nothing."""
    answering, absent = StandIn(), StandIn()
    async with (
        answering.running(),
        holding(answering, hold=LONG) as awake,
        holding(absent, hold=0.0) as late,
        holding(absent, hold=LONG, requests=1) as full,
        httpx.AsyncClient() as http,
    ):
        ways = {"awake": awake, "late": late, "full": full}
        # With the labels that the chart's PodMonitor gives.
        targets = [{"targets": [f"{HOST}:{one.metrics_port}"],
                    "labels": {"namespace": "models", "pod": f"{name}-activator", "optimisedmodel": name}}
                   for name, one in ways.items()]

        async def ask(name: str) -> int:
            url = f"http://{HOST}:{ways[name].http_port}/v2/models/{name}/infer"
            return (await http.post(url, content=b"x", timeout=LONG)).status_code

        async with running(tmp_path, targets, [at_once(tmp_path)]) as url:

            async def all_are_scraped() -> bool:
                return all([await answers(http, url, f'enginewright_activator_pending{{optimisedmodel="{name}"}}')
                            for name in ways])

            await eventually(all_are_scraped)
            async with _held(ask("full"), full):
                assert [await ask(name) for name in ways] == [200, 503, 503]
            await fires_only(http, url, ("ActivatorDelays", "late"), ("ActivatorDelays", "full"))
            for name in ("late", "full"):
                await runbook_finds(http, url, "ActivatorDelays", name)


@contextlib.asynccontextmanager
async def _held(request: Coroutine[Any, Any, int], place: Running) -> AsyncIterator[None]:
    """For the length of the block; then its client gives up."""
    task = asyncio.create_task(request)

    async def it_waits() -> bool:
        return place.gate.pending == 1

    try:
        await eventually(it_waits)
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})

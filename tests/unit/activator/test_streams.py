"""The activator between clients of OpenAI's API and a fake server of it: streams, and who goes away."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from enginewright.activator.serve import Options, Running, activator
from enginewright.core.servers.vllm import VLLM
from enginewright_builder.triton.ports import HOST
from support.fake_openai import FakeOpenAI, fake_openai
from support.stand_in import free_port

PATIENCE = 120.0
END = b"data: [DONE]\n\n"
ASK = {"model": "m", "prompt": "a", "max_tokens": 3, "stream": True}


@contextlib.asynccontextmanager
async def running(port: int, **options: Any) -> AsyncIterator[Running]:
    """Before a replica at ``port``, which need not be there yet."""
    chosen = Options(backend=HOST, backend_http=port, backend_grpc=port, host=HOST, http_port=0, grpc_port=0,
                     metrics_port=0, live_path=VLLM.live_path, ready_path=VLLM.ready_path,
                     **{"hold": PATIENCE, **options})
    async with activator(chosen) as found:
        yield found


def replica(port: int, **settings: Any) -> contextlib.AbstractAsyncContextManager[FakeOpenAI]:
    return fake_openai(lambda tokens: {len(tokens): 0.0}, port=port, **settings)


def url(found: Running, path: str = "/v1/completions") -> str:
    return f"http://{HOST}:{found.http_port}{path}"


async def until_waiting(found: Running, requests: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while found.gate.pending != requests:  # noqa: ASYNC110  (others' counters)
            await asyncio.sleep(0.01)


async def event(answer: aiohttp.ClientResponse) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return await answer.content.readuntil(b"\n\n")


async def whole(session: aiohttp.ClientSession, found: Running) -> bytes:
    async with session.post(url(found), json=ASK) as answer:
        assert answer.status == 200
        return await answer.read()


@pytest.mark.parametrize("path", [VLLM.live_path, "/v1/../health"])
async def test_a_question_after_its_health_starts_nothing(path: str) -> None:
    async with running(free_port()) as found, aiohttp.ClientSession() as session, session.get(url(found, path)) as said:
        assert said.status == 200
        assert found.gate.pending == 0


async def test_streams_are_held_until_the_server_is_healthy_and_then_whole() -> None:
    port = free_port()
    async with running(port) as found, aiohttp.ClientSession() as session:
        asked = [asyncio.create_task(whole(session, found)) for _ in range(20)]
        await until_waiting(found, 20)
        async with replica(port) as server:
            answers = await asyncio.gather(*asked)
            assert len(server.seen) == 20, "each once"
    assert all(answer.endswith(END) and answer.count(b"data:") == 4 for answer in answers)
    assert found.tally.count("http", "forwarded") == 20
    assert found.room.taken == found.room.bytes == 0


async def test_a_server_that_is_not_healthy_gets_nothing() -> None:
    """vLLM listens before it is; it says 503 or 500 then."""
    healthy, port = False, free_port()
    seen: list[str] = []

    async def health(_: web.Request) -> web.Response:
        return web.Response(status=200 if healthy else 503)

    async def complete(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(body=END)

    app = web.Application()
    app.router.add_get("/health", health)
    app.router.add_post("/v1/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, HOST, port).start()
    async with running(port) as found, aiohttp.ClientSession() as session:
        asked = asyncio.create_task(whole(session, found))
        await until_waiting(found, 1)
        assert not seen
        healthy = True
        assert await asked == END
    await runner.cleanup()
    assert seen == ["/v1/completions"]


async def test_each_token_reaches_the_client_before_the_next_is_made() -> None:
    port, gate = free_port(), asyncio.Event()
    async with running(port) as found, replica(port, gate=gate), aiohttp.ClientSession() as session, \
            session.post(url(found), json=ASK) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        first = json.loads((await event(answer)).removeprefix(b"data: "))
        assert first["choices"][0]["text"] == "<1>", "the server makes no second one yet"
        gate.set()
        assert (await answer.read()).endswith(END)


async def test_a_client_that_goes_away_ends_its_request_at_the_server() -> None:
    port = free_port()
    async with running(port) as found, replica(port, gate=asyncio.Event()) as server:
        async with aiohttp.ClientSession() as session, session.post(url(found), json=ASK) as answer:
            await event(answer)
            answer.close()
        async with asyncio.timeout(PATIENCE):
            await server.gone.wait()
    assert found.room.taken == 0


async def test_a_stream_that_the_server_cuts_does_not_look_whole() -> None:
    port = free_port()
    async with running(port) as found, replica(port, trouble="cut"), aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientPayloadError):
            await whole(session, found)


async def test_without_a_server_in_time_it_says_so() -> None:
    async with running(free_port(), hold=0.2) as found, aiohttp.ClientSession() as session, \
            session.post(url(found), json=ASK) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")

"""Finding 8: the activator holds no more than it says, whatever clients announce, withhold or send at once.

It also follows no redirect of a replica (finding 6).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest
from aiohttp import web

from enginewright.activator.serve import Options, Running, activator
from enginewright_builder.triton.ports import HOST
from support.raw_grpc import RawCalls
from support.stand_in import INFER, STREAM, StandIn

PATIENCE = 60.0
MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[2]
PATH = "/v2/models/m/infer"


@contextlib.asynccontextmanager
async def running(replica: StandIn, **options: Any) -> AsyncIterator[Running]:
    chosen = Options(backend=HOST, backend_http=replica.http_port, backend_grpc=replica.grpc_port, host=HOST,
                     http_port=0, grpc_port=0, metrics_port=0, **{"hold": 2 * PATIENCE, **options})
    async with activator(chosen) as found:
        yield found


@contextlib.asynccontextmanager
async def connection(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  (others' counters)
            await asyncio.sleep(0.01)


async def post(found: Running, body: bytes) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{HOST}:{found.http_port}{PATH}", data=body) as answer,
    ):
        return answer.status, await answer.read()


def head(**headers: str) -> bytes:
    named = (f"{key.replace('_', '-')}: {value}" for key, value in headers.items())
    lines = [f"POST {PATH} HTTP/1.1", "Host: m", *named]
    return "\r\n".join([*lines, "", ""]).encode()


async def status(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(PATIENCE):
        return int((await reader.readline()).split()[1])


async def test_an_announced_length_reserves_nothing() -> None:
    replica = StandIn()
    async with running(replica) as found, contextlib.AsyncExitStack() as stack:
        for _ in range(8):
            _, writer = await stack.enter_async_context(connection(found.http_port))
            writer.write(head(Content_Length=str(16 * MIB)))
        await until(lambda: found.room.taken == 8)
        assert found.room.bytes == 0
        async with replica.running():
            assert await post(found, b"honest") == (200, b"honest"), "eight liars fill 128 MiB with nothing"


@pytest.mark.parametrize("headers", [{"Content_Length": "1000"}, {"Transfer_Encoding": "chunked"}])
async def test_bytes_are_charged_as_they_come(headers: dict[str, str]) -> None:
    replica = StandIn()
    part = b"a" * 100
    async with running(replica, size=1000) as found, connection(found.http_port) as (_, writer):
        writer.write(head(**headers) + (part if "Content_Length" in headers else b"64\r\n" + part + b"\r\n"))
        await until(lambda: found.room.bytes == 100)
        async with replica.running():
            assert (await post(found, b"b" * 900))[0] == 200
            assert (await post(found, b"b" * 901))[0] == 503
        assert found.room.bytes == 100
        writer.close()
        await until(lambda: found.room.bytes == found.room.taken == 0)


@pytest.mark.parametrize("sent", [head(Content_Length="1000"), head(Content_Length="1000") + b"a" * 10,
                                  head(Transfer_Encoding="chunked") + b"3e8\r\n" + b"a" * 10])
async def test_a_slow_client_is_let_go(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginewright.activator.pace.GRACE", 0.1)
    async with running(StandIn()) as found, connection(found.http_port) as (reader, writer):
        writer.write(sent)
        assert await status(reader) == 408
        assert found.room.taken == found.room.bytes == 0
        assert found.tally.count("http", "slow") == 1


async def test_a_client_that_keeps_the_least_rate_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time to begin is over after the first byte, but what it has sent gives it an hour more."""
    monkeypatch.setattr("enginewright.activator.pace.GRACE", 0.1)
    monkeypatch.setattr("enginewright.activator.pace.RATE", 10 / 3600)
    replica = StandIn()
    async with running(replica) as found, replica.running(), connection(found.http_port) as (reader, writer):
        writer.write(head(Content_Length="20") + b"a" * 10)
        await until(lambda: found.room.bytes == 10)
        await asyncio.sleep(0.2)  # longer than the time to begin; however long, the answer is the same
        writer.write(b"a" * 10)
        assert await status(reader) == 200


async def test_what_comes_beyond_the_announced_length_is_not_passed_on() -> None:
    replica = StandIn()
    async with running(replica) as found, connection(found.http_port) as (reader, writer):
        writer.write(head(Content_Length="10") + b"0123456789" + head(Content_Length="8") + b"smuggled")
        await until(lambda: found.gate.pending == 1)
        assert found.room.bytes == 10
        async with replica.running():
            assert await status(reader) == 200
            await reader.read()
    assert replica.seen == {b"0123456789": 1}


@pytest.mark.parametrize("sent", [b"", b"POST /v2", b"GET / HTTP/1.1\r\nHost: m\r\nX"])
async def test_a_connection_without_a_request_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginewright.activator.serve.HEAD_SECONDS", 0.1)
    async with running(StandIn()) as found, connection(found.http_port) as (reader, writer):
        writer.write(sent)
        async with asyncio.timeout(PATIENCE):
            assert await reader.read() == b""


async def test_silent_grpc_calls_are_let_go_and_others_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginewright.activator.pace.GRACE", 0.1)
    replica = StandIn()
    async with (
        running(replica) as found, replica.running(),
        grpc.aio.insecure_channel(f"{HOST}:{found.grpc_port}") as channel,
    ):
        silent = [channel.stream_stream(STREAM)() for _ in range(40)]
        await until(lambda: found.room.taken > 0)
        assert await channel.unary_unary(INFER)(b"honest") == b"honest"
        for call in silent:
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
            assert "came too slowly" in (await call.details() or "")
        assert found.tally.count("grpc", "slow") == 40
    assert replica.seen == {b"honest": 1}


async def test_few_grpc_messages_are_taken_into_memory_at_once() -> None:
    """What every call may send of a message that it never ends."""
    attack = RawCalls(INFER, calls=40, size=4 * MIB, withheld=1)
    async with running(StandIn()) as found, attack.open(found.grpc_port):
        await until(lambda: found.room.taken == 40 and len(attack.whole) >= 4)
        await until(lambda: min(attack.sent.values()) > 0)
        assert len(attack.whole) == 4
        others = [sent for call, sent in attack.sent.items() if call not in attack.whole]
        assert max(others) <= 65535, "HTTP/2's first window"
        assert found.room.bytes == 0


async def test_a_grpc_message_beyond_the_limit_starts_nothing() -> None:
    async with running(StandIn()) as found, grpc.aio.insecure_channel(f"{HOST}:{found.grpc_port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(INFER)(bytes(17 * MIB))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await until(lambda: found.room.taken == 0)
        assert found.gate.pending == found.room.bytes == 0


async def test_health_by_grpc_takes_nothing_in() -> None:
    attack = RawCalls("/grpc.health.v1.Health/Check", calls=50, size=4 * MIB, withheld=1)
    async with running(StandIn()) as found, attack.open(found.grpc_port):
        await until(lambda: len(attack.ended) == 50)
        assert not attack.whole


async def test_an_open_stream_is_charged_for_what_it_holds_now() -> None:
    replica = StandIn()
    async with (
        running(replica, size=1000) as found, replica.running(),
        grpc.aio.insecure_channel(f"{HOST}:{found.grpc_port}") as channel,
    ):
        stream = channel.stream_stream(STREAM)()
        for number in range(5):
            await stream.write(b"%d" % number * 800)
            assert await stream.read() == b"%d" % number * 800
            await until(lambda: found.room.bytes == 0)
        await stream.done_writing()
        assert await stream.code() is grpc.StatusCode.OK


CHILD = """
import asyncio, json, sys
from enginewright.activator.serve import Options, activator

def peak():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) >> 10

async def main():
    options = Options(backend="127.0.0.1", backend_http=1, backend_grpc=1, host="127.0.0.1", http_port=0, grpc_port=0,
                      metrics_port=0, hold=600.0)
    async with activator(options) as found:
        print(json.dumps({"grpc": found.grpc_port, "http": found.http_port}), flush=True)
        while line := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
            print(json.dumps({"peak": peak(), "bytes": found.room.bytes, "taken": found.room.taken,
                              "full": found.tally.count("grpc", "full")}), flush=True)
asyncio.run(main())
"""


@dataclass
class Child:
    """An activator in a process of its own, whose peak of memory is the activator's alone."""

    process: asyncio.subprocess.Process
    ports: dict[str, int]

    async def said(self) -> dict[str, int]:
        assert self.process.stdin
        self.process.stdin.write(b"\n")
        return await _line(self.process)


async def _line(process: asyncio.subprocess.Process) -> dict[str, int]:
    assert process.stdout
    async with asyncio.timeout(PATIENCE):
        found: dict[str, int] = json.loads(await process.stdout.readline())
        return found


@contextlib.asynccontextmanager
async def child() -> AsyncIterator[Child]:
    paths = os.pathsep.join(str(ROOT / part) for part in ("operator", "builders"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, env={**os.environ, "PYTHONPATH": paths},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Child(process, await _line(process))
    finally:
        process.kill()
        await process.wait()


# Without an attack it takes some 60 MiB. With the attack of the review it took 797 MiB.
BOUND_MIB = 300


async def test_many_big_grpc_calls_are_refused_before_they_are_in_memory() -> None:
    """The attack of the review: 25 calls of 30 MiB each."""
    attack = RawCalls(INFER, calls=25, size=30 * MIB)
    async with child() as found, attack.open(found.ports["grpc"]):
        await until(lambda: len(attack.whole | attack.ended) == 25)
        assert (await found.said())["peak"] < BOUND_MIB
        assert len(attack.ended) == 25, "none is held"


async def test_grpc_calls_that_fit_one_by_one_are_held_up_to_the_limit_and_no_more_is_in_memory() -> None:
    attack = RawCalls(INFER, calls=60, size=15 * MIB)
    async with child() as found, attack.open(found.ports["grpc"]):
        await until(lambda: len(attack.ended) == 52)
        said = await found.said()
        assert (said["taken"], said["bytes"], said["full"]) == (8, 8 * 15 * MIB, 52)
        assert said["peak"] < 128 + BOUND_MIB, "what is held, and what is being read"


async def test_http_bodies_beyond_the_limit_are_not_kept() -> None:
    async def zeros() -> AsyncIterator[bytes]:
        for _ in range(15 * 16):
            yield bytes(MIB // 16)

    async with child() as found, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        url = f"http://{HOST}:{found.ports['http']}{PATH}"
        asked = [asyncio.create_task(_status(session, url, zeros())) for _ in range(40)]
        async with asyncio.timeout(PATIENCE):
            said = await found.said()
            while said["taken"] + sum(task.done() for task in asked) != 40 or said["bytes"] != said["taken"] * 15 * MIB:
                await asyncio.sleep(0.05)
                said = await found.said()
        assert said["bytes"] <= 128 * MIB
        assert said["peak"] < 128 + BOUND_MIB
        assert {task.result() for task in asked if task.done()} == {503}
        for task in asked:
            task.cancel()
        await asyncio.wait(asked)


async def _status(session: aiohttp.ClientSession, url: str, body: AsyncIterator[bytes]) -> int:
    async with session.post(url, data=body) as answer:
        return answer.status


async def test_readiness_follows_no_redirect_of_a_replica() -> None:
    """A replica must not make the activator ask an address that only pods of its namespace reach."""
    asked: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response()

    async def redirect(_: web.Request) -> web.Response:
        away = runner.addresses[0]
        return web.Response(status=307, headers={"Location": f"http://{away[0]}:{away[1]}/secret"})

    target, replica = web.Application(), web.Application()
    target.router.add_route("*", "/{path:.*}", elsewhere)
    replica.router.add_route("*", "/{path:.*}", redirect)
    runner, front, stand_in = web.AppRunner(target), web.AppRunner(replica), StandIn()
    await runner.setup()
    await front.setup()
    try:
        await web.TCPSite(runner, HOST, 0).start()
        await web.TCPSite(front, HOST, stand_in.http_port).start()
        async with running(stand_in, hold=1.0) as found:
            assert (await post(found, b"x"))[0] == 503, "a replica that redirects is not ready"
        assert not asked
    finally:
        await front.cleanup()
        await runner.cleanup()

"""The activator between real clients and a stand-in replica that comes and goes."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest

from enginewright.activator import grpc_proxy
from enginewright.activator.grpc_proxy import READERS
from enginewright.activator.serve import Options, Running, activator
from enginewright.clients.activator import ActivatorClient
from enginewright.clients.errors import TransientError
from enginewright.clients.signals import NoSignalError
from enginewright_builder.triton.ports import HOST
from support.stand_in import INFER, STREAM, StandIn

PATIENCE = 120.0


@contextlib.asynccontextmanager
async def running(replica: StandIn, **options: Any) -> AsyncIterator[Running]:
    chosen = Options(backend=HOST, backend_http=replica.http_port, backend_grpc=replica.grpc_port, host=HOST,
                     http_port=0, grpc_port=0, metrics_port=0, **{"hold": PATIENCE, **options})
    async with activator(chosen) as found:
        yield found


@contextlib.asynccontextmanager
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield session


def url(found: Running, path: str = "/v2/models/m/infer") -> str:
    return f"http://{HOST}:{found.http_port}{path}"


async def post(found: Running, body: bytes, path: str = "/v2/models/m/infer", **headers: str) -> tuple[int, bytes]:
    async with client() as session, session.post(url(found, path), data=body, headers=headers) as answer:
        return answer.status, await answer.read()


async def call(found: Running, message: bytes, method: str = INFER, **more: Any) -> bytes:
    async with grpc.aio.insecure_channel(f"{HOST}:{found.grpc_port}") as channel:
        answer: bytes = await channel.unary_unary(method)(message, **more)
        return answer


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  (others' counters)
            await asyncio.sleep(0.01)


async def test_requests_wait_for_a_replica_and_are_passed_on_once() -> None:
    replica = StandIn()
    async with running(replica) as found:
        asked = [asyncio.create_task(post(found, b"http %d" % number)) for number in range(20)]
        called = [asyncio.create_task(call(found, b"grpc %d" % number)) for number in range(20)]
        await until(lambda: found.gate.pending == 40)
        assert not replica.seen
        async with replica.running():
            assert await asyncio.gather(*asked) == [(200, b"http %d" % number) for number in range(20)]
            assert await asyncio.gather(*called) == [b"grpc %d" % number for number in range(20)]
    assert set(replica.seen.values()) == {1}
    assert len(replica.seen) == 40
    assert found.room.taken == found.room.bytes == found.gate.pending == 0
    assert found.tally.count("http", "forwarded") == found.tally.count("grpc", "forwarded") == 20


async def test_a_replica_that_listens_but_is_not_ready_gets_nothing() -> None:
    replica = StandIn(ready=False)
    async with running(replica) as found, replica.running():
        asked = asyncio.create_task(post(found, b"x"))
        await until(lambda: found.gate.pending == 1)
        replica.ready = True
        assert await asked == (200, b"x")


async def test_a_request_is_passed_on_as_it_came_and_so_is_the_answer() -> None:
    replica, packed = StandIn(status=404), gzip.compress(b"packed")
    async with running(replica) as found, replica.running(), client() as session:
        headers = {"Content-Encoding": "gzip", "Inference-Header-Content-Length": "7", "Connection": "X-Hop",
                   "X-Hop": "1", "Expect": "100-continue"}
        async with session.post(url(found, "/v2/models/a%2Fb/infer?x=%20y"), data=packed, headers=headers) as answer:
            assert (answer.status, await answer.read()) == (404, packed)
            assert answer.headers["X-Answer"] == "yes"
            assert answer.headers["Connection"] == "close", "the next request goes where the Service leads then"
    (seen,) = replica.requests
    assert seen.raw_path == "/v2/models/a%2Fb/infer?x=%20y"
    assert seen.headers["Content-Encoding"] == "gzip"
    assert seen.headers["Inference-Header-Content-Length"] == "7"
    assert "X-Hop" not in seen.headers
    assert seen.headers.getall("Content-Length") == [str(len(packed))]


@pytest.mark.parametrize("path", ["//elsewhere.example/x", "http://elsewhere.example/x"])
async def test_a_request_cannot_name_another_host(path: str) -> None:
    replica = StandIn()
    async with running(replica) as found, replica.running():
        reader, writer = await asyncio.open_connection(HOST, found.http_port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: m\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] == b"200"
        writer.close()
        await writer.wait_closed()
    assert len(replica.requests) == 1


async def test_health_is_answered_here_and_wakes_nobody() -> None:
    async with running(StandIn()) as found, client() as session:
        for path in ("/v2/health/live", "/v2/health/ready"):
            async with session.get(url(found, path)) as answer:
                assert answer.status == 200
        for name in ("inference.GRPCInferenceService/ServerLive", "inference.GRPCInferenceService/ServerReady",
                     "grpc.health.v1.Health/Check"):
            assert await call(found, b"", f"/{name}") == b"\x08\x01"
        assert found.gate.pending == 0


async def test_who_comes_too_late_is_told_when_to_try_again() -> None:
    async with running(StandIn(), hold=0.1) as found:
        async with client() as session, session.post(url(found), data=b"x") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
            assert "no replica was ready within 0.1 s" in (await answer.json())["error"]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(found, b"x")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "no replica was ready within 0.1 s" in (caught.value.details() or "")
        assert found.tally.count("http", "late") == found.tally.count("grpc", "late") == 1
    assert found.room.taken == found.room.bytes == 0


async def test_no_more_is_held_than_there_is_room_for() -> None:
    replica = StandIn()
    async with running(replica, requests=2) as found:
        held = [asyncio.create_task(post(found, b"a")), asyncio.create_task(call(found, b"b"))]
        await until(lambda: found.gate.pending == 2)
        status, said = await post(found, b"c")
        assert status == 503
        assert b"2 requests are already held" in said
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(found, b"d")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        async with replica.running():
            assert await asyncio.gather(*held) == [(200, b"a"), b"b"]
    assert replica.seen == {b"a": 1, b"b": 1}


async def test_nor_more_bytes() -> None:
    replica = StandIn()
    async with running(replica, size=1000) as found:
        held = asyncio.create_task(post(found, b"a" * 800))
        await until(lambda: found.gate.pending == 1)
        assert (await post(found, b"b" * 300))[0] == 503

        async def drip() -> AsyncIterator[bytes]:
            for _ in range(3):
                yield b"c" * 100

        async with client() as session, session.post(url(found), data=drip()) as answer:
            assert answer.status == 503, "no length was announced"
        assert (await post(found, b"d" * 1001))[0] == 413
        assert found.room.bytes == 800
        for message, code in ((b"e" * 300, "UNAVAILABLE"), (b"f" * 1001, "RESOURCE_EXHAUSTED")):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(found, message)
            assert caught.value.code().name == code
        async with replica.running():
            assert (await held)[0] == 200
    assert list(replica.seen) == [b"a" * 800]


async def test_who_opens_a_stream_and_says_nothing_keeps_no_place() -> None:
    async with running(StandIn(), hold=0.5) as found, grpc.aio.insecure_channel(f"{HOST}:{found.grpc_port}") as channel:
        stream = channel.stream_stream(STREAM)()
        await until(lambda: found.room.taken == 1)
        assert await stream.code() is grpc.StatusCode.UNAVAILABLE
        assert found.room.taken == 0
        assert found.tally.count("grpc", "late") == 1


async def test_who_has_gone_is_not_passed_on() -> None:
    replica = StandIn()
    async with running(replica, hold=2 * PATIENCE) as found:  # it is not for being late that they leave
        gone = [asyncio.create_task(post(found, b"a")), asyncio.create_task(call(found, b"b"))]
        await until(lambda: found.gate.pending == 2)
        for task in gone:
            task.cancel()
        await asyncio.wait(gone)
        await until(lambda: found.gate.pending == 0)
        async with replica.running():
            assert (await post(found, b"c"))[0] == 200
        assert found.room.taken == 0
    assert replica.seen == {b"c": 1}


async def test_an_error_of_the_replica_reaches_the_client_by_grpc() -> None:
    replica = StandIn(code=grpc.StatusCode.INVALID_ARGUMENT)
    async with running(replica) as found, replica.running():
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(found, b"x", metadata=(("x-token", "t"), ("x-bin", b"\x00\xff")))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "as asked"
    assert ("x-why", "test") in tuple(caught.value.trailing_metadata() or ())
    assert replica.metadata[0]["x-token"] == "t"
    assert replica.metadata[0]["x-bin"] == b"\x00\xff"
    assert replica.seen == {b"x": 1}


async def test_a_stream_is_passed_on_message_by_message() -> None:
    replica = StandIn()
    async with running(replica) as found, grpc.aio.insecure_channel(f"{HOST}:{found.grpc_port}") as channel:
        stream = channel.stream_stream(STREAM)()
        await stream.write(b"0")
        await until(lambda: found.gate.pending == 1)
        async with replica.running():
            for number in range(1, 5):
                assert await stream.read() == b"%d" % (number - 1), "each before the next is sent"
                await stream.write(b"%d" % number)
            await stream.done_writing()
            assert await stream.read() == b"4"
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() is grpc.StatusCode.OK
    assert sum(replica.seen.values()) == 5


async def test_a_stream_whose_next_message_finds_no_room_ends_with_a_status() -> None:
    replica = StandIn()
    async with (
        running(replica, size=1000) as found, replica.running(),
        grpc.aio.insecure_channel(f"{HOST}:{found.grpc_port}") as channel,
    ):
        stream = channel.stream_stream(STREAM)()
        await stream.write(b"a")
        assert await stream.read() == b"a"
        with found.room.enter() as other:
            other.grow(800)
            await stream.write(b"b" * 900)
            async with asyncio.timeout(PATIENCE):
                assert await stream.code() is grpc.StatusCode.UNAVAILABLE
        assert "800 of 1000 bytes are already held" in (await stream.details() or "")
        assert (found.tally.count("grpc", "full"), found.tally.count("grpc", "gone")) == (1, 0)
        assert found.room.taken == found.room.bytes == 0
    assert replica.seen == {b"a": 1}


async def test_a_stream_that_gets_no_turn_to_be_read_ends_with_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent streams keep the turns for as long as they like; the next one waits no longer than a request is held. A
    turn is waited for a thousandth of that here, so that all else has the time that a busy machine takes."""
    loop, acquired = asyncio.get_running_loop(), grpc_proxy._acquired

    async def soon(readers: asyncio.Semaphore, deadline: float) -> None:
        await acquired(readers, loop.time() + (deadline - loop.time()) / 1000)

    monkeypatch.setattr(grpc_proxy, "_acquired", soon)
    replica = StandIn()
    async with (
        running(replica) as found, replica.running(),
        grpc.aio.insecure_channel(f"{HOST}:{found.grpc_port}") as channel,
    ):
        streams: list[Any] = []
        for number in range(READERS + 1):
            # One after the other: of calls that are opened at once, any may be the one whose first message waits.
            streams.append(stream := channel.stream_stream(STREAM)())
            await stream.write(b"first")
            # On a busy machine the last one may end before its answer is read.
            with contextlib.suppress(*[grpc.aio.AioRpcError] if number == READERS else []):
                assert await stream.read() == b"first"
        ended = {asyncio.create_task(stream.code()): stream for stream in streams}
        (first,), others = await asyncio.wait(ended, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        assert await first is grpc.StatusCode.UNAVAILABLE
        assert f"{READERS} messages are already being read" in (await ended[first].details() or "")
        assert (found.tally.count("grpc", "full"), found.tally.count("grpc", "gone")) == (1, 0)
        for code in others:
            await ended[code].done_writing()
            assert await code is grpc.StatusCode.OK


async def test_a_client_keeps_no_grpc_connection_through_the_activator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginewright.activator.grpc_proxy.CONNECTION_AGE_MS", 100)
    replica = StandIn()
    async with (
        running(replica) as found, replica.running(),
        grpc.aio.insecure_channel(f"{HOST}:{found.grpc_port}") as channel,
    ):
        await channel.unary_unary(INFER)(b"first")
        replica.go.clear()
        replica.arrived.clear()
        slow = asyncio.create_task(_awaited(channel.unary_unary(INFER)(b"slow")))
        await replica.arrived.wait()
        while channel.get_state() is grpc.ChannelConnectivity.READY:
            await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        replica.go.set()
        assert await slow == b"slow", "what is under way is finished"


async def _awaited(pending: Any) -> Any:
    return await pending


async def test_a_replica_that_dies_in_the_middle_is_not_asked_again() -> None:
    replica = StandIn()
    hits = 0

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hits
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET /v2/health/ready"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        else:
            hits += 1
        writer.close()

    server = await asyncio.start_server(die, HOST, replica.http_port)
    async with running(replica) as found, server:
        status, said = await post(found, b"x")
    assert status == 502
    assert b"it may have computed the request" in said
    assert hits == 1


async def test_an_answer_that_breaks_off_does_not_look_whole() -> None:
    replica = StandIn()

    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET /v2/health/ready"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(break_off, HOST, replica.http_port)
    async with running(replica) as found, server:
        with pytest.raises(aiohttp.ClientPayloadError):
            await post(found, b"x")


async def test_metrics_answer_at_once_when_a_request_waits() -> None:
    replica = StandIn()
    async with running(replica) as found, client() as session:
        page = f"http://{HOST}:{found.metrics_port}/metrics"
        asking = asyncio.create_task(_text(session, f"{page}?wait={PATIENCE}"))
        held = asyncio.create_task(post(found, b"x"))
        assert "enginewright_activator_pending 1.0" in await asking
        async with replica.running():
            await held
        assert "enginewright_activator_pending 0.0" in await _text(session, page)
        async with session.get(f"{page}?wait=long") as answer:
            assert answer.status == 400


async def test_the_operators_client_reads_what_is_held() -> None:
    replica = StandIn()
    async with running(replica) as found, ActivatorClient(deadline=PATIENCE) as operator:
        assert await operator.held(HOST, port=found.metrics_port) == 0.0
        asking = asyncio.create_task(operator.held(HOST, wait=PATIENCE, port=found.metrics_port))
        held = asyncio.create_task(post(found, b"x"))
        assert await asking == 1.0
        async with replica.running():
            await held
    async with ActivatorClient(deadline=PATIENCE) as operator:
        with pytest.raises(TransientError):
            await operator.held(HOST, port=found.metrics_port)


async def test_another_servers_page_does_not_tell_what_is_held() -> None:
    replica = StandIn()
    async with replica.running(), ActivatorClient(deadline=PATIENCE) as operator:
        with pytest.raises(NoSignalError, match="no enginewright_activator_pending"):
            await operator.held(HOST, port=replica.http_port)


async def _text(session: aiohttp.ClientSession, page: str) -> str:
    async with session.get(page) as answer:
        return await answer.text()


async def _taken(found: Running) -> bool:
    """Whether it still takes connections."""
    try:
        _, writer = await asyncio.open_connection(HOST, found.http_port)
    except ConnectionRefusedError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def test_when_it_is_told_to_stop_it_still_passes_on_what_it_holds() -> None:
    replica = StandIn()
    async with contextlib.AsyncExitStack() as stack:
        found = await stack.enter_async_context(running(replica))
        held = [asyncio.create_task(post(found, b"a")), asyncio.create_task(call(found, b"b"))]
        await until(lambda: found.gate.pending == 2)
        stopping = asyncio.create_task(stack.aclose())
        while await _taken(found):  # noqa: ASYNC110  (another socket's state)
            await asyncio.sleep(0.01)
        async with replica.running():
            assert await asyncio.gather(*held) == [(200, b"a"), b"b"]
            await stopping
    assert replica.seen == {b"a": 1, b"b": 1}


async def test_when_it_is_told_to_stop_answers_have_longer_than_a_request_may_wait() -> None:
    """A language model's stream that goes through it may take as long as one of a replica that ends."""
    replica = StandIn()
    replica.go.clear()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(replica.running())
        found = await stack.enter_async_context(running(replica, hold=3.0, leave=PATIENCE))
        answers = [asyncio.create_task(post(found, b"a")), asyncio.create_task(call(found, b"b"))]
        await until(lambda: replica.seen == {b"a": 1, b"b": 1})
        async with asyncio.TaskGroup() as ending:
            ending.create_task(_release_after_some_holds(answers, replica))
            await stack.aclose()
    assert [await one for one in answers] == [(200, b"a"), b"b"]


async def _release_after_some_holds(answers: list[asyncio.Task[Any]], replica: StandIn) -> None:
    """A second more than a request may wait, which is long enough for a busy machine to have both under way."""
    cut, _ = await asyncio.wait(answers, timeout=4.0, return_when=asyncio.FIRST_COMPLETED)
    assert not cut
    replica.go.set()


@pytest.mark.parametrize("cycles", [10, pytest.param(50, marks=pytest.mark.study)])
async def test_cycles_under_load_lose_nothing_and_send_nothing_twice(
    cycles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real sockets: the replica comes and goes while clients ask without a pause, each answer checked."""
    monkeypatch.setattr("enginewright.activator.gate.PERIOD", 0.01)
    monkeypatch.setattr("enginewright.activator.gate.FRESH", 0.05)
    replica, done, number = StandIn(), asyncio.Event(), iter(range(10**9))
    asked: list[bytes] = []

    async def ask(found: Running) -> None:
        while not done.is_set():
            body = b"%d" % next(number)
            asked.append(body)
            if len(asked) % 2:
                assert await post(found, body) == (200, body)
            else:
                assert await call(found, body) == body

    async with running(replica) as found, asyncio.TaskGroup() as askers:
        for _ in range(8):
            askers.create_task(ask(found))
        for _ in range(cycles):
            await until(lambda: found.gate.pending == 8)
            assert found.room.taken == 8
            async with replica.running():
                replica.ready, goal = True, replica.seen.total() + 16
                await until(lambda goal=goal: replica.seen.total() >= goal)  # type: ignore[misc]
                # As a replica ends: nobody is sent there any more, what is there is finished, then it stops.
                replica.ready = False
                await until(lambda: found.gate.pending == 8)
        done.set()
        replica.ready = True
        async with replica.running():
            await until(lambda: found.room.taken == 0)
    assert set(replica.seen.values()) == {1}
    assert replica.seen.keys() == set(asked)

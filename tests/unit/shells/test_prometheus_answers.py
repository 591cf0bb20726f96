"""Queue depth out of Prometheus' answers; a real server is asked in tests/integration."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from enginewright.clients.errors import ClientError, RefusedError, TransientError
from enginewright.clients.prometheus import LARGEST_ANSWER, PrometheusClient, pending_query, read_pending
from enginewright.clients.signals import NoSignalError

AT = 1000.0


def series(pod: str, value: object, *, time: object = None, version: str = "1") -> list[dict[str, Any]]:
    """A value and, with ``time``, the mark that tells when it was sampled."""
    labels = {"pod": pod, "model": "m", "version": version}
    found: list[dict[str, Any]] = [{"metric": {"__name__": "nv", **labels}, "value": [AT, str(value)]}]
    if time is not None:
        found.append({"metric": {**labels, "enginewright_sample": "time"}, "value": [AT, str(time)]})
    return found


def test_fresh_values_are_summed_by_pod() -> None:
    answer = series("a", 3, time=999) + series("a", 4, time=995, version="2") + series("b", 1, time=1000)
    assert read_pending(answer, 10) == {"a": 7.0, "b": 1.0}


@pytest.mark.parametrize("answer", [series("a", 3, time=900), series("a", 3), series("a", "NaN", time=1000),
                                    series("a", 3, time="NaN")])
def test_a_stale_undated_or_absent_value_is_left_out(answer: list[dict[str, Any]]) -> None:
    assert read_pending(answer, 10) == {}


@pytest.mark.parametrize(
    "answer", [[{}], [{"metric": {}, "value": [1, "1"]}], [{"metric": {"pod": "a"}, "value": [1]}]]
)
def test_an_unreadable_answer_is_no_signal(answer: list[dict[str, Any]]) -> None:
    with pytest.raises(NoSignalError):
        read_pending(answer, 10)


@pytest.mark.parametrize("value", ["+Inf", "-Inf", "-1", "1e300"])
def test_a_number_that_no_queue_has_is_no_signal(value: str) -> None:
    """An infinite one would end each pass and each look with an OverflowError."""
    with pytest.raises(NoSignalError, match="has a queue of"):
        read_pending(series("b", 1, time=1000) + series("a", value, time=1000), 10)
    assert read_pending(series("a", value, time=900), 10) == {}


def test_query_quotes_what_it_is_given() -> None:
    query = pending_query('na"me', "minilm", 'cluster="eu-1"')
    wanted = 'namespace="na\\"me",pod=~"minilm-[0-9a-f]+-[a-z0-9]+-[a-z0-9]+",cluster="eu-1"'
    assert query.startswith(f"nv_inference_pending_request_count{{{wanted}}} or label_replace(timestamp(")


async def test_nobody_listens(unused_tcp_port: int) -> None:
    async with PrometheusClient(deadline=60) as client:
        with pytest.raises(TransientError):
            await client.pending(f"http://127.0.0.1:{unused_tcp_port}", "ns", "m")


async def test_one_that_never_ends_its_answers_costs_neither_memory_nor_the_others(unused_tcp_port: int) -> None:
    """Users write the address: it may be anybody's."""
    sent = 0

    async def endless(_: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        nonlocal sent
        out.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while sent < 16 * LARGEST_ANSWER:
                out.write(b" " * (1 << 16))
                sent += 1 << 16
                await out.drain()
        out.close()

    async with PrometheusClient(deadline=60) as client, listening(endless) as url:
        with pytest.raises(TransientError, match="more than"):
            await client.pending(url, "ns", "m")
        assert sent < 8 * LARGEST_ANSWER


@pytest.mark.parametrize("drips", [True, False])
async def test_one_that_does_not_get_done_is_given_up_at_the_deadline(drips: bool) -> None:
    """Also where every byte comes in time, as of one that sends a space now and then."""
    async with PrometheusClient(deadline=1) as client, listening(never_done(drips)) as url:
        with pytest.raises(TransientError):
            await client.pending(url, "ns", "m")


async def test_those_that_do_not_get_done_keep_nobody_from_the_others(unused_tcp_port: int) -> None:
    async with PrometheusClient(deadline=600) as client, listening(never_done(drips=False)) as url:
        waiting = [asyncio.create_task(client.pending(url, "ns", f"m{number}")) for number in range(40)]
        last = asyncio.create_task(client.pending(f"http://127.0.0.1:{unused_tcp_port}", "ns", "m"))
        with pytest.raises(TransientError, match="Connect call failed"):
            await last
        assert not any(one.done() for one in waiting)
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)


def never_done(drips: bool) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def slow(reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        out.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while drips:
                out.write(b" ")
                await out.drain()
                await asyncio.sleep(0.01)
            await reader.read()
        out.close()

    return slow


@pytest.mark.parametrize(("status", "body", "error", "said"), [
    (400, b"bad matcher", RefusedError, "answered 400; the log"),
    (503, b"later", TransientError, "answered 503; the log"),
    (200, b"<html>", NoSignalError, "does not answer as a Prometheus"),
    (200, b'{"data": []}', NoSignalError, "does not answer as a Prometheus"),
])
async def test_answers_that_are_no_values(status: int, body: bytes, error: type[ClientError], said: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        assert (request.path, "+" in request.query["query"]) == ("/base/api/v1/query", True)
        return web.Response(status=status, body=body)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server, PrometheusClient(deadline=60) as client:
        with pytest.raises(error, match=said):
            await client.pending(str(server.make_url("/base/")), "ns", "m")


@contextlib.asynccontextmanager
async def ranged(*values: object, begins: float = 0.0) -> AsyncIterator[str]:
    """The address of a Prometheus that answers any range query with one series of ``values``, one a second."""
    async def answer(request: web.Request) -> web.Response:
        assert request.path == "/api/v1/query_range"
        series = {"metric": {}, "values": [[begins + at, str(value)] for at, value in enumerate(values)]}
        return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": [series]}})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


SPAN = datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(9, UTC), 1.0


async def test_values_over_time_leave_out_what_is_not_a_number() -> None:
    async with ranged(2, "NaN", 0, "1e3") as url, PrometheusClient(deadline=60) as client:
        assert await client.over_time(url, "up", *SPAN) == [(0.0, 2.0), (2.0, 0.0), (3.0, 1000.0)]


@pytest.mark.parametrize("value", ["+Inf", "-Inf", "-1", "1e300"])
async def test_a_value_over_time_that_nothing_counted_has_is_no_signal(value: str) -> None:
    """The report's page would draw it, and scale all others to it."""
    async with ranged(1, value) as url, PrometheusClient(deadline=60) as client:
        with pytest.raises(NoSignalError, match="which no number of requests has"):
            await client.over_time(url, "up", *SPAN)


@pytest.mark.parametrize("begins", [-5.0, 60.0, 1e18])
async def test_a_time_that_was_not_asked_for_is_no_signal(begins: float) -> None:
    """One beyond the year 9999 ended the report with an error of the calendar."""
    async with ranged(1, begins=begins) as url, PrometheusClient(deadline=60) as client:
        with pytest.raises(NoSignalError, match="which was not asked for"):
            await client.over_time(url, "up", *SPAN)


@contextlib.asynccontextmanager
async def listening(serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
                    ) -> AsyncIterator[str]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()

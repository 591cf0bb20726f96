"""Finding 4: the page of metrics of one tenant's replica could keep the operator's only loop busy for seconds, each
second: 4 MiB were read and parsed, for each replica in each round.

Real replicas on loopback, of which some give pages that no honest one gives, and the operator's own scraper.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from enginewright.clients.errors import ClientError
from enginewright.clients.prometheus import PrometheusClient
from enginewright.clients.quality import QualityClient
from enginewright.clients.signals import ReplicaMetrics
from enginewright.clients.triton import TritonClient
from enginewright.observe.keys import Key
from enginewright.observe.signals import Signals, Target
from enginewright.observe.window import Window

KEY = Key("team", "net")
HONEST = b'nv_inference_pending_request_count{model="net",version="1"} 3\n'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
LINE = b'nv_inference_request_success{model="net",version="%d",gpu_uuid="GPU-%d"} 1\n'


def whole(page: bytes) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(page) + page


def pieces(page: bytes, size: int) -> bytes:
    parts = (page[at : at + size] for at in range(0, len(page), size))
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(
        b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


LARGE = HONEST + b"".join(LINE % (number, number) for number in range(60_000))
ATTACKS = {
    "4 MiB of samples": whole(LARGE[: 4 << 20]),
    "256 KiB of samples": whole(LARGE[: 256 << 10]),
    "4 MiB of other lines": whole(HONEST + b"other_metric 1\n" * 270_000),
    "empty lines": whole(HONEST + b"\n" * (255 << 10)),
    "lines of many labels": whole(HONEST + b"nv_inference_exec_count{" + b'a="",' * 40_000 + b"} 1\n"),
    "a byte at a time": pieces(HONEST + b"#" * (64 << 10), 1),
    "interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000 + whole(HONEST),
    "without an end": HEAD + b"\r\n" + HONEST + b"#" * (8 << 20),
}


@contextlib.asynccontextmanager
async def listening(answer: Callable[[], bytes], host: str = "127.0.0.1", port: int = 0
                    ) -> AsyncIterator[tuple[int, list[int]]]:
    """The port, and how many bytes of each answer were taken."""
    taken: list[int] = []

    async def serve(reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            taken.append(0)
            place, data = len(taken) - 1, answer()
            for at in range(0, len(data), 1 << 14):
                out.write(data[at : at + (1 << 14)])
                await out.drain()
                taken[place] = at
        out.close()

    server = await asyncio.start_server(serve, host, port)
    try:
        yield int(server.sockets[0].getsockname()[1]), taken
    finally:
        server.close()


@pytest.mark.parametrize("attack", ATTACKS)
async def test_no_page_of_more_than_an_honest_replicas_is_read(attack: str) -> None:
    async with listening(lambda: ATTACKS[attack]) as (port, taken), TritonClient(deadline=60) as client:
        with pytest.raises(ClientError):
            await client.scrape("127.0.0.1", port)
    # What the kernel's buffers on both sides of loopback took in is not what the operator read.
    assert max(taken) < 8 << 20


async def test_an_answer_is_given_up_before_it_is_whole() -> None:
    """64 MiB, of which no buffer holds a quarter."""
    async with (listening(lambda: HEAD + b"\r\n" + b"#" * (64 << 20)) as (port, taken),
                TritonClient(deadline=60) as client):
        with pytest.raises(ClientError):
            await client.scrape("127.0.0.1", port)
    assert max(taken) < 16 << 20


async def test_an_honest_page_is_read() -> None:
    async with listening(lambda: whole(HONEST + b"other_metric 1\n" * 2000)) as (port, _), TritonClient() as client:
        assert (await client.scrape("127.0.0.1", port)).queued == 3.0


@pytest.mark.parametrize("packed", [b"gzip", b"deflate", b"br"])
async def test_nothing_is_unpacked(packed: bytes) -> None:
    head = HEAD + b"Content-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (packed, len(HONEST))
    async with listening(lambda: head + HONEST) as (port, _), TritonClient(deadline=60) as client:
        with pytest.raises(ClientError):
            await client.scrape("127.0.0.1", port)


async def test_a_quality_monitors_report_is_bounded_as_well() -> None:
    async with listening(lambda: whole(b" " * (32 << 10) + b"{}")) as (port, _), QualityClient(deadline=60) as client:
        with pytest.raises(ClientError, match="more than"):
            await client.report("127.0.0.1", port)


class PortTriton(TritonClient):
    """In a cluster each replica has Triton's own port."""

    port = 0

    async def scrape(self, address: str, port: int = 0) -> ReplicaMetrics:
        return await super().scrape(address, self.port)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def scraper(port: int, clock: Clock) -> AsyncIterator[Signals]:
    async with PortTriton(deadline=60) as triton, PrometheusClient() as prometheus:
        triton.port = port
        made = Signals(triton, prometheus, wake=lambda _: None, clock=clock, scraped=lambda *_: None)
        yield made
        await made.close()


async def rounds(signals: Signals, target: Target, window: Window, clock: Clock, seconds: int) -> None:
    """One each second."""
    for _ in range(seconds):
        await signals.round(KEY, target, window)
        clock.now += 1.0


async def test_a_replica_with_too_large_a_page_is_asked_less_and_less_and_an_honest_one_each_second() -> None:
    clock, window = Clock(), Window(0.0)
    async with (
        listening(lambda: ATTACKS["4 MiB of samples"]) as (port, attacks),
        listening(lambda: whole(HONEST), "127.0.0.2", port) as (_, honest),
        scraper(port, clock) as signals,
    ):
        target = Target(replicas={"bad": "127.0.0.1", "good": "127.0.0.2"}, current=2)
        await rounds(signals, target, window, clock, 120)
    assert len(honest) == 120
    # At 0, 1, 3, 7, 15, 31, 61 and 91 seconds.
    assert len(attacks) == 8
    assert [one.pending for one in window.view().samples[-120:]] == [{"good": 3.0}] * 120


async def test_a_replica_that_recovers_is_asked_again_soon() -> None:
    clock, window, healthy = Clock(), Window(0.0), False
    async with (listening(lambda: whole(HONEST) if healthy else ATTACKS["4 MiB of samples"]) as (port, asked),
                scraper(port, clock) as signals):
        target = Target(replicas={"one": "127.0.0.1"}, current=1)
        await rounds(signals, target, window, clock, 1000)
        healthy, before = True, len(asked)
        await rounds(signals, target, window, clock, 30)
        assert len(asked) > before
        before = len(asked)
        await rounds(signals, target, window, clock, 30)
    assert len(asked) == before + 30


async def test_one_failure_costs_no_round() -> None:
    clock, window, count = Clock(), Window(0.0), 0

    def answer() -> bytes:
        nonlocal count
        count += 1
        return ATTACKS["empty lines"] if count == 5 else whole(HONEST)

    async with listening(answer) as (port, asked), scraper(port, clock) as signals:
        await rounds(signals, Target(replicas={"one": "127.0.0.1"}, current=1), window, clock, 20)
    assert len(asked) == 20



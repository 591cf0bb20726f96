"""Pages over connections that are kept, from servers on loopback that answer as they please."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from enginewright.clients.errors import TransientError
from enginewright.clients.gets import PageClient

HERE = "127.0.0.1"
Answer = Callable[[int, int], list[bytes]]


def sized(body: bytes, more: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (more, len(body), body)


@dataclass
class Pod:
    """``asked`` has one list of requests for each connection; ``ended`` counts connections that are over."""

    port: int = 0
    asked: list[list[str]] = field(default_factory=list)
    ended: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(30), self.changed:
            await self.changed.wait_for(true)

    @property
    def url(self) -> str:
        return f"http://{HERE}:{self.port}/metrics"


@contextlib.asynccontextmanager
async def pod(answer: Answer) -> AsyncIterator[Pod]:
    """``answer`` says what to send, piece by piece, on a connection of a number to a request of a number; an empty
    piece ends the connection."""
    found = Pod()

    async def serve(reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        mine: list[str] = []
        found.asked.append(mine)
        number = len(found.asked) - 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                mine.append(head.decode())
                for piece in answer(number, len(mine) - 1):
                    if not piece:
                        raise ConnectionError
                    out.write(piece)
                    await out.drain()
                async with found.changed:
                    found.changed.notify_all()
        out.close()
        found.ended += 1
        async with found.changed:
            found.changed.notify_all()

    server = await asyncio.start_server(serve, HERE, 0)
    found.port = int(server.sockets[0].getsockname()[1])
    try:
        yield found
    finally:
        server.close()


def client(deadline: float = 30.0, largest: int = 1 << 16) -> PageClient:
    return PageClient(deadline=deadline, largest=largest)


async def test_pages_of_one_pod_come_over_one_connection() -> None:
    async with pod(lambda _, request: [sized(b"page %d" % request)]) as one, client() as asks:
        assert [await asks._page(one.url) for _ in range(3)] == [b"page 0", b"page 1", b"page 2"]
    assert [len(requests) for requests in one.asked] == [3]
    assert one.asked[0][0] == f"GET /metrics HTTP/1.1\r\nHost: {HERE}:{one.port}\r\nAccept-Encoding: identity\r\n\r\n"


async def test_what_a_url_asks_for_is_sent_with_it() -> None:
    async with pod(lambda *_: [sized(b"")]) as one, client() as asks:
        assert await asks._page(f"{one.url}?wait=1") == b""
    assert one.asked[0][0].startswith("GET /metrics?wait=1 HTTP/1.1\r\n")


async def test_two_pages_at_once_take_two_connections() -> None:
    """The first is answered after the second."""
    second = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"?first" in head:
            await second.wait()
        out.write(sized(head.split()[1]))
        second.set()

    server = await asyncio.start_server(serve, HERE, 0)
    url = f"http://{HERE}:{server.sockets[0].getsockname()[1]}/page"
    async with server, client() as asks:
        pages = await asyncio.gather(asks._page(f"{url}?first"), asks._page(f"{url}?second"))
    assert list(pages) == [b"/page?first", b"/page?second"]


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n5;x=y\r\n page\r\n0\r\n\r\n"


@pytest.mark.parametrize("whole", [
    CHUNKED, sized(b"some page"), sized(b"some page", b"Content-Encoding: identity\r\n"),
])
async def test_an_answer_in_any_pieces_is_read(whole: bytes) -> None:
    pieces = [whole[at : at + 1] for at in range(len(whole))]
    async with pod(lambda *_: pieces) as one, client() as asks:
        assert [await asks._page(one.url) for _ in range(2)] == [b"some page"] * 2
    assert len(one.asked) == 1


@pytest.mark.parametrize("answer", [
    [b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\npage"], [sized(b"page", b"Connection: close\r\n")],
    [sized(b"page") + sized(b"another that was not asked for")], [sized(b"page") + b"no HTTP"],
])
async def test_a_connection_that_is_of_no_more_use_is_not_kept(answer: list[bytes]) -> None:
    async with pod(lambda *_: answer) as one, client() as asks:
        assert [await asks._page(one.url) for _ in range(2)] == [b"page"] * 2
        await one.until(lambda: one.ended == 2)
    assert [len(requests) for requests in one.asked] == [1, 1]


async def test_a_connection_that_ended_between_two_requests_is_made_again() -> None:
    """As of a server that keeps connections for less time: the end and the next request cross."""
    async with pod(lambda _, request: [sized(b"page")] if request == 0 else [b""]) as one, client() as asks:
        assert [await asks._page(one.url) for _ in range(2)] == [b"page"] * 2
    assert [len(requests) for requests in one.asked] == [2, 1]


@pytest.mark.parametrize(("answer", "why"), [
    ([b""], "EndedError"),
    ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome", b""], "ConnectionResetError"),
    ([b"HTTP/1.1 200 OK\r\n\r\npage", b""], "not valid HTTP"),
    ([b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\npages"], "not valid HTTP"),
    ([b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\npage"], "not valid HTTP"),
    ([b"HTTP/1.1 100 Continue\r\n\r\n" + sized(b"page")], "answered 100"),
    ([b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"], "answered 101"),
    ([sized(b"page", b"Content-Encoding: gzip\r\n")], "more than"),
    ([sized(b"x" * 70_000)], "more than"),
    ([b"HTTP/1.1 200 OK\r\nX: %s\r\n" % (b"y" * 120_000)], "more than"),
    ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 2000], "more than"),
])
async def test_what_is_no_sound_answer_is_an_error_and_ends_the_connection(answer: list[bytes], why: str) -> None:
    async with pod(lambda *_: answer) as one, client() as asks:
        with pytest.raises(TransientError, match=why):
            await asks._page(one.url)
        await one.until(lambda: one.ended == 1)
    assert len(one.asked) == 1


async def test_an_answer_that_comes_too_late_is_not_taken_for_that_to_the_next_request() -> None:
    """The first connection never answers: whatever it would say later, nothing listens."""
    async with pod(lambda number, _: [sized(b"in time")] if number else []) as one:
        async with client(deadline=0.05) as asks:
            with pytest.raises(TransientError, match=r"no answer within 0.05 s"):
                await asks._page(one.url)
            await one.until(lambda: one.ended == 1)
        async with client() as asks:
            assert await asks._page(one.url) == b"in time"


async def test_a_connection_that_nothing_is_asked_over_is_closed_and_one_in_use_is_kept() -> None:
    async with pod(lambda *_: [sized(b"page")]) as one, client() as asks:
        await asks._page(one.url)
        asks._sweep()
        await asks._page(one.url)
        asks._sweep()
        assert one.ended == 0
        asks._sweep()
        await one.until(lambda: one.ended == 1)
        assert await asks._page(one.url) == b"page"
    assert [len(requests) for requests in one.asked] == [2, 1]


async def test_a_client_that_is_closed_keeps_nothing() -> None:
    async with pod(lambda *_: [sized(b"page")]) as one:
        async with client() as asks:
            await asks._page(one.url)
        await one.until(lambda: one.ended == 1)

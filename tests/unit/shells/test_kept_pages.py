"""Pages over connections that are kept: what is read here, what is left to aiohttp, and what becomes of connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.clients import kept
from enginewright.clients.errors import TransientError
from enginewright.clients.kept import Answer, KeptPages, UnusualError
from enginewright.clients.pods import TooLargeError

SOUND = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\npage"
LAST = SOUND.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
UNUSUAL = {
    "in pieces": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npage\r\n0\r\n\r\n",
    "in pieces, with a length": SOUND.replace(b"Content-Type: text/plain", b"Transfer-Encoding: chunked"),
    "packed": SOUND.replace(b"Content-Type: text/plain", b"content-encoding: gzip"),
    "of the older protocol": SOUND.replace(b"1.1", b"1.0"),
    "with two lengths": SOUND.replace(b"Content-Type: text/plain", b"Content-Length: 4"),
    "with a length that is none": SOUND.replace(b": 4", b": +4"),
    "with a field that goes on": SOUND.replace(b"text/plain", b"text/plain;\r\n charset=utf-8"),
    "without a length": SOUND.replace(b"Content-Length: 4\r\n", b""),
    "with a head without an end": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 4000,
    "of another protocol": b"SSH-2.0\r\n\r\n",
}


@contextlib.asynccontextmanager
async def serving(answer: Callable[[int], bytes]) -> AsyncIterator[tuple[int, list[int]]]:
    """The port, and how many requests each connection has had. ``answer`` gets the number of the request, of all; after
    an empty one the connection is closed."""
    asked: list[int] = []

    async def serve(reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        place = len(asked)
        asked.append(0)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:")
                asked[place] += 1
                if not (data := answer(sum(asked))):
                    break
                out.write(data)
                await out.drain()
        out.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield int(server.sockets[0].getsockname()[1]), asked
    finally:
        server.close()


async def get(pages: KeptPages, port: int) -> bytes:
    async with asyncio.timeout(20):
        return await pages.get("127.0.0.1", port, "/metrics", "GET it")


@pytest.fixture
async def pages() -> AsyncIterator[KeptPages]:
    made = KeptPages(100)
    yield made
    made.close()


async def test_one_connection_serves_all_requests(pages: KeptPages) -> None:
    async with serving(lambda _: SOUND) as (port, asked):
        assert [await get(pages, port) for _ in range(3)] == [b"page"] * 3
        assert asked == [3]


async def test_two_that_ask_at_once_have_a_connection_each(pages: KeptPages) -> None:
    async with serving(lambda _: SOUND) as (port, asked):
        first, second = await asyncio.gather(get(pages, port), get(pages, port))
        assert first == second == b"page"
        assert asked == [1, 1]
        assert await get(pages, port) == b"page"
        assert sum(asked) == 3
        assert len(asked) == 2, "one of them was kept"


@pytest.mark.parametrize("first", [LAST, SOUND + b"more"], ids=["which says that it is the last", "followed by more"])
async def test_an_answer_after_which_no_other_may_come_ends_the_connection(pages: KeptPages, first: bytes) -> None:
    async with serving(lambda number: first if number == 1 else SOUND) as (port, asked):
        assert [await get(pages, port), await get(pages, port)] == [b"page", b"page"]
        assert asked == [1, 1]


async def test_a_connection_that_the_server_has_closed_meanwhile_costs_no_reading(pages: KeptPages) -> None:
    """Whether that is known before or after the request was sent."""
    async with serving(lambda number: b"" if number == 2 else SOUND) as (port, asked):
        assert [await get(pages, port), await get(pages, port)] == [b"page", b"page"]
        assert asked == [2, 1]


async def test_a_new_connection_that_is_closed_is_an_error(pages: KeptPages) -> None:
    async with serving(lambda _: b"") as (port, asked):
        with pytest.raises(ConnectionError):
            await get(pages, port)
        assert asked == [1]


async def test_an_answer_that_breaks_off_is_not_asked_for_again(pages: KeptPages) -> None:
    async with serving(lambda number: SOUND if number == 1 else SOUND[:-1]) as (port, asked):
        assert await get(pages, port) == b"page"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await pages.get("127.0.0.1", port, "/metrics", "GET it")
        assert asked == [2]
        assert not pages._kept, "what comes late is no answer to the next request"


@pytest.mark.parametrize("what", UNUSUAL)
async def test_what_is_unusual_is_left_to_others(pages: KeptPages, what: str) -> None:
    async with serving(lambda _: UNUSUAL[what]) as (port, _):
        with pytest.raises(UnusualError):
            await get(pages, port)
        assert not pages._kept


@pytest.mark.parametrize("status", [100, 302, 404, 500])
async def test_another_status_is_an_error_that_names_it(pages: KeptPages, status: int) -> None:
    async with serving(lambda _: SOUND.replace(b"200 OK", b"%d No" % status)) as (port, _):
        with pytest.raises(TransientError, match=str(status)):
            await get(pages, port)
        assert not pages._kept


async def test_a_body_that_is_too_large_is_not_read(pages: KeptPages) -> None:
    async with serving(lambda _: SOUND.replace(b": 4", b": 101")) as (port, _):
        with pytest.raises(TooLargeError, match="more than 100 bytes"):
            await get(pages, port)


async def test_connections_that_no_request_uses_are_closed(pages: KeptPages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "IDLE", 0.01)
    async with serving(lambda _: SOUND) as (port, _):
        await get(pages, port)
        (connection,) = pages._kept.values()
        async with asyncio.timeout(20):
            while pages._kept or connection.usable:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


@given(st.lists(st.integers(1, 20), max_size=10), st.binary(max_size=30))
def test_an_answer_is_the_same_in_whatever_pieces_it_comes(cuts: list[int], body: bytes) -> None:
    data = b"HTTP/1.1 200 OK\r\nx: y\r\ncontent-LENGTH:%d \r\n\r\n" % len(body) + body
    answer, at, found = Answer(100, ""), 0, None
    for cut in (*cuts, len(data)):
        piece, at = data[at:at + cut], at + cut
        found = answer.take(piece) if piece else found
    assert (found, answer.keeps) == (body, True)


@given(st.binary(max_size=60))
def test_any_bytes_are_an_answer_or_none(data: bytes) -> None:
    for text in (data, b"HTTP/1.1 200 OK\r\n" + data, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n" + data):
        with contextlib.suppress(UnusualError, TransientError):
            Answer(100, "").take(text)

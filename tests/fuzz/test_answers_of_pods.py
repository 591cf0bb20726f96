"""What a pod answers to a GET, in whatever pieces it comes: the body of a sound answer, or an error without a word of
it, and never more of it than an honest answer has."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from enginewright.clients.direct import READ
from enginewright.clients.gets import Connection

MARK = b"swordfish"
LARGEST = 4096
BODIES = st.binary(max_size=600) | st.just(MARK * 40)
HEADS = st.sampled_from([
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 200 \r\n", b"HTTP/1.1 307 Moved\r\n", b"HTTP/2 200\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n", b"Content-Length: 3\r\n", b"content-length: -1\r\n",
    b"Content-Length: 99999999999\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Content-Encoding: gzip\r\n",
    b"Connection: close\r\n", b"Connection: upgrade\r\nUpgrade: x\r\n", b"X: " + MARK + b"\r\n", b" folded\r\n",
    b"\r\n", b"\n",
    b"3\r\nabc\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"\0", MARK])


class Wire(asyncio.Transport):
    """Where a connection's transport would be. ``over`` says whether the connection has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.over = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.over

    def abort(self) -> None:
        self.over = True


@st.composite
def sound(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """An answer, and its body."""
    body = draw(BODIES)
    if draw(st.booleans()):
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body), body
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=4)))
    parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n", body


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


async def answered(parts: Sequence[bytes]) -> bytes | Exception:
    """What comes of ``parts``, after which the other side ends the connection."""
    buffer = memoryview(bytearray(READ))
    connection, wire = Connection(buffer, LARGEST), Wire()
    connection.connection_made(wire)
    asked = asyncio.create_task(connection.ask(b"GET"))
    await asyncio.sleep(0)
    for part in parts:
        if wire.over:
            break
        connection.get_buffer(-1)[: len(part)] = part
        connection.buffer_updated(len(part))
    connection.connection_lost(None)
    try:
        return await asked
    except Exception as error:
        return error


@given(sound(), st.lists(st.integers(0, 1 << 16), max_size=12))
def test_a_sound_answer_is_read_in_any_pieces(answer: tuple[bytes, bytes], cuts: list[int]) -> None:
    whole, body = answer
    assert asyncio.run(answered(pieces(whole, cuts))) == body


@given(st.lists(HEADS | BODIES, max_size=10).map(b"".join), st.lists(st.integers(0, 1 << 16), max_size=6))
def test_any_bytes_are_an_answer_or_an_error(data: bytes, cuts: list[int]) -> None:
    found = asyncio.run(answered(pieces(data[: READ - 1], cuts)))
    if isinstance(found, Exception):
        assert MARK.decode() not in str(found)
    else:
        assert len(found) <= LARGEST

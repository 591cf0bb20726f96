"""A connection to a tritonserver that breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from enginewright_builder.errors import UserError
from enginewright_builder.triton.client import Address, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def breaking(times: int) -> AsyncIterator[Server]:
    """A server that closes so many connections to its metrics before it answers one."""
    left = [times]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        if b"/metrics" not in asked or left[0] == 0:
            body = b'{"version": "1"}'
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        else:
            left[0] -= 1
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        address = "{}:{}".format(*listening.sockets[0].getsockname())
        async with Server(Address(http=address, grpc="", metrics=address)) as server:
            yield server


async def test_a_question_is_asked_once_more() -> None:
    async with breaking(1) as server:
        assert "version" in await server.metrics()


async def test_a_server_that_does_not_answer_is_named() -> None:
    async with breaking(2) as server:
        with pytest.raises(UserError, match=r"tritonserver does not answer http://.*/metrics: ") as caught:
            await server.metrics()
        assert caught.value.reason == "ServerLoadFailed"

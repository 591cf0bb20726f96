"""GETs to pods over connections that are kept: the scraper sends a thousand a second.

httptools reads the answers (llhttp, as uvicorn does). A session of aiohttp makes a dozen objects for each request,
which cost three times as much. What a pod answers costs what is known before: its bytes, the reads that they come in
and its chunks are bounded. The client follows no redirect, unpacks nothing and keeps no cookie, and closes a connection
that did anything but answer its request.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpResponseParser

from enginewright.clients.direct import FEWEST_READS, FRAME, READ, SEGMENT
from enginewright.clients.errors import TransientError
from enginewright.clients.pods import TooLargeError, answered, refusal, too_many_chunks

# Seconds after which a client closes a connection that it did not use. They are more than any period of the scaler.
KEPT: Final = 30.0
# How many URLs to keep the requests of: the scaler asks each replica once a second.
REMEMBERED: Final = 4096


class PageClient:
    """``deadline`` is seconds that an answer may take, ``largest`` the bytes that it may have. There are as many
    connections as there are requests at one moment."""

    def __init__(self, *, deadline: float, largest: int) -> None:
        self._deadline = deadline
        self._largest = largest
        self._buffer = memoryview(bytearray(READ))
        self._kept: dict[str, list[Connection]] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connections in self._kept.values():
            for connection in connections:
                connection.close()
        self._kept.clear()

    async def _page(self, url: str, *, wait: float = 0.0) -> bytes:
        """The whole answer to a GET of ``url``, which has an IP address and a port, and may take ``wait`` seconds
        beyond the deadline. Raises :class:`TransientError` without one."""
        call = f"GET {url}"
        async with answered(self._deadline + wait, call):
            try:
                return await self._ask(url)
            except RefusalError as error:
                raise TransientError(refusal(error.status), call=call, status=error.status) from None
            except LargerError as error:
                raise TooLargeError(f"the answer has more than {self._largest} bytes, or too many pieces",
                                    call=call) from error

    async def _ask(self, url: str) -> bytes:
        place = _place(url)
        while kept := self._kept.get(place.at):
            connection = kept.pop()
            try:
                return await self._over(connection, place)
            except EndedError:
                # The other side had ended it, so that it has not been asked.
                continue
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self._buffer, self._largest), place.host, place.port)
        return await self._over(connection, place)

    async def _over(self, connection: Connection, place: _Place) -> bytes:
        page = await connection.ask(place.request)
        if connection.open:
            self._kept.setdefault(place.at, []).append(connection)
            if self._sweeping is None:
                self._sweeping = asyncio.get_running_loop().call_later(KEPT, self._sweep)
        return page

    def _sweep(self) -> None:
        """Closes connections that were not used since the sweep before: most of these pods are gone."""
        self._sweeping = None
        for at, connections in list(self._kept.items()):
            for connection in connections:
                if not connection.used:
                    connection.close()
                connection.used = False
            self._kept[at] = [one for one in connections if one.open]
            if not self._kept[at]:
                del self._kept[at]
        if self._kept:
            self._sweeping = asyncio.get_running_loop().call_later(KEPT, self._sweep)


class _Place(NamedTuple):
    """Where the pod of a URL is asked, and what for."""

    at: str
    host: str
    port: int
    request: bytes


@lru_cache(REMEMBERED)
def _place(url: str) -> _Place:
    """Raises :class:`ValueError`."""
    parts = urlsplit(url)
    if parts.hostname is None or parts.port is None:
        raise ValueError(f"{url} is not the URL of a pod")
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    request = f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept-Encoding: identity\r\n\r\n"
    return _Place(parts.netloc, parts.hostname, parts.port, request.encode("ascii"))


class RefusalError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class LargerError(Exception):
    """Than an honest answer."""


class EndedError(ConnectionError):
    """The other side ended the connection, and has answered nothing on it."""


class Connection(asyncio.BufferedProtocol):
    """To one pod, over which one request is under way at a time. All connections of a loop share ``buffer``: what was
    read is parsed before anything else is read. ``used`` says whether something was asked since it was last unset."""

    def __init__(self, buffer: memoryview, largest: int) -> None:
        self._buffer = buffer
        self._largest = largest
        self._most_bytes = largest + largest // 8 + FRAME
        self._most_reads = FEWEST_READS + largest // SEGMENT
        self._parser = HttpResponseParser(self)
        self._answer: asyncio.Future[bytes] | None = None
        self._begin()
        self.used = False
        self.open = False

    def _begin(self) -> None:
        self._body = bytearray()
        self._bytes = self._reads = self._chunks = 0
        self._sized = False

    async def ask(self, request: bytes) -> bytes:
        """The body of the answer, whose status is 200. Raises :class:`RefusalError` for another one,
        :class:`LargerError`, :class:`EndedError` and other kinds of :class:`OSError`, and :class:`ValueError` for what
        is no sound HTTP: then the connection is over, and where this is cancelled."""
        if not self.open:
            raise EndedError("the connection has ended")
        self._begin()
        self.used = True
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._transport.write(request)
        try:
            return await answer
        finally:
            if self._answer is not None:
                self.close()

    def close(self) -> None:
        self.open, self._answer = False, None
        self._transport.abort()

    def _fail(self, error: BaseException) -> None:
        """The call that waits gets ``error``."""
        answer = self._answer
        self.close()
        if answer is not None and not answer.done():
            answer.set_exception(error)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.open = transport, True

    def connection_lost(self, error: Exception | None) -> None:
        within = error or ConnectionResetError("the connection ended within the answer")
        self._fail(within if self._bytes else EndedError("the connection ended before the answer"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        self._bytes += size
        self._reads += 1
        try:
            self._parser.feed_data(self._buffer[:size])
        except HttpParserCallbackError as error:
            self._fail(error.__context__ or error)
        except (HttpParserError, HttpParserUpgrade):
            # Its text may quote the answer.
            self._fail(ValueError("no HTTP"))
        if self._bytes > self._most_bytes or self._reads > self._most_reads:
            self._fail(LargerError())

    # What follows is called by the parser, which ends with whatever they raise.

    def on_message_begin(self) -> None:
        if self._answer is None:
            raise ValueError("an answer to no request")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-encoding" and value != b"identity":
            raise LargerError
        self._sized |= name in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        if (status := self._parser.get_status_code()) != 200:
            raise RefusalError(status)
        if not self._sized:
            # It would end with the connection, and may have been cut anywhere.
            raise ValueError("an answer without its length")

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if too_many_chunks(self._chunks, len(self._body)):
            raise LargerError

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > self._largest:
            raise LargerError

    def on_message_complete(self) -> None:
        answer, self._answer = self._answer, None
        if not self._parser.should_keep_alive():
            self.close()
        if answer is not None and not answer.done():
            answer.set_result(bytes(self._body))

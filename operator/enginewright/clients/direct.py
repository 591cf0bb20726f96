"""Sessions for all that the operator and the activator ask: no request goes anywhere but where it was sent.

A replica runs an image of the user's choice, and users write the address of Prometheus. A redirect would make the
operator send a request of that answerer's choice, from the operator's place in the network. A cookie would be sent to
other pods, and packed bytes may be of any size unpacked. ``tests/unit/project/test_sessions.py`` checks that no other
file makes a session.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any, Final, NoReturn

import aiohttp
from aiohttp.client import _RequestContextManager
from yarl import URL

# Bytes of one read. The loop serves everything else between two reads.
READ: Final = 16 << 10
# Bytes beside the body: status line, headers, sizes of chunks.
FRAME: Final = 32 << 10
# A read brings a segment of the network (about 1,400 bytes) at least, except at the end of what the other side wrote.
SEGMENT: Final = 1 << 10
FEWEST_READS: Final = 256
# Status lines before the answer's own are interim answers (100 to 199). No server that the operator asks sends any.
STATUS_LINE: Final = b"HTTP/1."
STATUS_LINES: Final = 8


class DirectSession:
    """Keeps connections, but no cookies. By default it ignores the environment's proxies, and unpacks nothing."""

    def __init__(self, connector: aiohttp.TCPConnector, *, auto_decompress: bool = False, trust_env: bool = False,
                 **options: Any) -> None:
        self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(),
                                              auto_decompress=auto_decompress, trust_env=trust_env, **options)

    def request(self, method: str, url: str | URL, **options: Any) -> _RequestContextManager:
        """As aiohttp's. ``allow_redirects`` cannot be set here: Python refuses an argument that is given twice."""
        return self._session.request(method, url, allow_redirects=False, **options)

    async def close(self) -> None:
        await self._session.close()


def metered(largest: int, connections: int = 0) -> aiohttp.TCPConnector:
    """Connections, ``connections`` at most (0: no limit), that end once an answer with a body of ``largest`` bytes
    would be over: by bytes, by reads, and by status lines. Parsing costs time per read, per chunk and per status line,
    and the other side chooses how many there are."""
    return aiohttp.TCPConnector(
        limit=connections, socket_factory=lambda info: MeteredSocket(info[0], info[1], info[2], largest=largest))


class MeteredSocket(socket.socket):
    """Counts what comes since the last byte was sent: HTTP/1.1 without pipelining has one answer to each request."""

    def __init__(self, family: int, kind: int, protocol: int, *, largest: int) -> None:
        super().__init__(family, kind, protocol)
        self.setblocking(False)
        self._most_bytes = largest + largest // 8 + FRAME
        self._most_reads = FEWEST_READS + largest // SEGMENT
        self._begin()

    def _begin(self) -> None:
        self._bytes = self._reads = self._status_lines = 0

    def send(self, data: Any, flags: int = 0) -> int:
        self._begin()
        return super().send(data, flags)

    def sendmsg(self, buffers: Iterable[Any], *more: Any) -> int:
        self._begin()
        return super().sendmsg(buffers, *more)

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Raises :class:`ConnectionError`, after which asyncio closes the connection."""
        data = super().recv(min(size, READ), flags)
        self._bytes += len(data)
        self._reads += 1
        self._status_lines += data.count(STATUS_LINE)
        if self._bytes > self._most_bytes:
            _end(f"more than {self._most_bytes} bytes")
        if self._reads > self._most_reads:
            _end(f"more than {self._most_reads} pieces")
        if self._status_lines > STATUS_LINES:
            _end(f"more than {STATUS_LINES} status lines")
        return data


def _end(what: str) -> NoReturn:
    raise ConnectionAbortedError(f"the answer has {what}")

"""Pages that are read again and again, each over a connection that is kept.

To make a request and to read its answer takes aiohttp a third of all that a reading of a queue costs: it is made for
redirects, cookies, proxies and packed answers, none of which may come here. So what servers of metrics answer, a status
and a body of a stated length, is read here, and any other answer is left to aiohttp: :class:`UnusualError`.
"""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Final

from enginewright.clients.direct import MeteredSocket
from enginewright.clients.errors import TransientError
from enginewright.clients.pods import TooLargeError, refusal

# Seconds after which a connection that no request uses is closed.
IDLE: Final = 15.0
HEAD_BYTES: Final = 8 << 10
_HEAD: Final = re.compile(rb"HTTP/1\.1 ([0-9]{3})[^\r\n]*((?:\r\n[^\r\n:]+:[^\r\n]*)*)\r\n\r\n")
_FIELD: Final = re.compile(rb"\r\n([^\r\n:]+):[ \t]*([^\r\n]*)")
# Fields that say that the body is not what its length says, or that something comes after it.
_OTHERWISE: Final = frozenset({b"transfer-encoding", b"content-encoding", b"upgrade", b"trailer"})
_LENGTH: Final = re.compile(rb"([0-9]{1,10})[ \t]*")


class UnusualError(Exception):
    """An answer that is not read here, however sound it is."""


class Answer:
    """One, as it comes in. ``most`` is bytes of the body; ``call`` is what errors name."""

    def __init__(self, most: int, call: str) -> None:
        self._most, self._call = most, call
        self._data = bytearray()
        self._begin = self._end = 0
        self._last = False
        # Whether another one may follow.
        self.keeps = False

    def __len__(self) -> int:
        """Bytes that have come."""
        return len(self._data)

    def take(self, data: bytes) -> bytes | None:
        """The body, once all of it has come. Raises :class:`UnusualError` and :class:`TransientError`."""
        self._data += data
        if not self._end:
            self._read_head()
        if not self._end or len(self._data) < self._end:
            return None
        # What comes after it belongs to no request.
        self.keeps = not self._last and len(self._data) == self._end
        return bytes(self._data[self._begin:self._end])

    def _read_head(self) -> None:
        head = _HEAD.match(self._data)
        if head is None:
            if len(self._data) > HEAD_BYTES or b"\r\n\r\n" in self._data:
                raise UnusualError
            return
        if (status := int(head[1])) != 200:
            raise TransientError(refusal(status), call=self._call, status=status)
        fields = [(name.lower(), value) for name, value in _FIELD.findall(bytes(head[2]))]
        lengths = [_LENGTH.fullmatch(value) for name, value in fields if name == b"content-length"]
        if len(lengths) != 1 or lengths[0] is None or any(name in _OTHERWISE for name, _ in fields):
            raise UnusualError
        if (length := int(lengths[0][1])) > self._most:
            raise TooLargeError(f"the answer has more than {self._most} bytes", call=self._call)
        self._last = any(name == b"connection" and b"close" in value.lower() for name, value in fields)
        self._begin, self._end = head.end(), head.end() + length


class _Connection(asyncio.Protocol):
    """Of one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer = Answer(0, "")
        self._body: asyncio.Future[bytes] | None = None
        self.used = 0.0

    @property
    def usable(self) -> bool:
        """Whether another request may follow the last one."""
        return self._transport is not None and self._answer.keeps

    @property
    def silent(self) -> bool:
        """Whether nothing has come since the last request."""
        return not self._answer

    async def ask(self, request: bytes, answer: Answer) -> bytes:
        """The body of the ``answer``. Raises what :meth:`Answer.take` does, and :class:`OSError`."""
        self._answer, self._body = answer, asyncio.get_running_loop().create_future()
        if self._transport is None:
            raise ConnectionResetError("the server has closed the connection")
        self._transport.write(request)
        try:
            return await self._body
        finally:
            self._body = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._body is None or self._body.done():
            self.close()
            return
        try:
            body = self._answer.take(data)
        except (UnusualError, TransientError) as error:
            self._body.set_exception(error)
            self.close()
        else:
            if body is not None:
                self._body.set_result(body)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._body is not None and not self._body.done():
            lost = exc if isinstance(exc, OSError) else ConnectionResetError("the server has closed the connection")
            self._body.set_exception(lost)


class KeptPages:
    """``largest`` is bytes of a body."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._kept: dict[tuple[str, int], _Connection] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    async def get(self, address: str, port: int, path: str, call: str) -> bytes:
        """The body of the answer to a GET. ``address`` is an IP address, ``path`` as it is sent, ``call`` what errors
        name. Raises :class:`UnusualError`, :class:`TransientError` and :class:`OSError`."""
        host = f"[{address}]" if ":" in address else address
        request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept-Encoding: identity\r\n\r\n".encode("ascii")
        place = address, port
        kept = self._kept.pop(place, None)
        if kept is not None and kept.usable:
            try:
                return await self._ask(kept, place, request, call)
            except OSError:
                # The server may have closed it before the request came there.
                if not kept.silent:
                    raise
        return await self._ask(await self._connected(address, port), place, request, call)

    def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in self._kept.values():
            connection.close()
        self._kept.clear()

    async def _ask(self, connection: _Connection, place: tuple[str, int], request: bytes, call: str) -> bytes:
        try:
            return await connection.ask(request, Answer(self._largest, call))
        finally:
            self._keep(place, connection)

    def _keep(self, place: tuple[str, int], connection: _Connection) -> None:
        if not connection.usable or place in self._kept:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        connection.used = loop.time()
        self._kept[place] = connection
        if self._sweeping is None:
            self._sweeping = loop.call_later(IDLE, self._sweep)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        for place, connection in list(self._kept.items()):
            if not connection.usable or loop.time() - connection.used >= IDLE:
                del self._kept[place]
                connection.close()
        self._sweeping = loop.call_later(IDLE, self._sweep) if self._kept else None

    async def _connected(self, address: str, port: int) -> _Connection:
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        made = MeteredSocket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, largest=self._largest)
        try:
            await loop.sock_connect(made, (address, port))
            _, connection = await loop.create_connection(_Connection, sock=made)
        except BaseException:
            made.close()
            raise
        return connection

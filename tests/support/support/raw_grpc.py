"""A hostile gRPC client: HTTP/2 by hand, which sends what the server's windows allow and holds nothing itself."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from enginewright_builder.triton.ports import HOST

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW_SIZE: Final = 4
FRAME: Final = 16384
ZEROS: Final = bytes(FRAME)


def _literal(name: str, value: str) -> bytes:
    return b"\x00" + b"".join(bytes((len(text),)) + text.encode() for text in (name, value))


def _head(path: str) -> bytes:
    """HPACK without compression: of the static table only POST and http."""
    named = {":path": path, ":authority": HOST, "content-type": "application/grpc", "te": "trailers"}
    return b"\x83\x86" + b"".join(_literal(*pair) for pair in named.items())


@dataclass
class RawCalls:
    """``calls`` unary calls on one connection, each a message of ``size`` zeros, of which ``withheld`` are not sent."""

    path: str
    calls: int
    size: int
    withheld: int = 0
    sent: dict[int, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    _windows: dict[int, int] = field(default_factory=dict)
    _initial: int = 65535

    @property
    def whole(self) -> set[int]:
        """The calls of which all was sent."""
        return {call for call, sent in self.sent.items() if sent >= self.size + 5 - self.withheld}

    @contextlib.asynccontextmanager
    async def open(self, port: int) -> AsyncIterator[RawCalls]:
        reader, writer = await asyncio.open_connection(HOST, port)
        self._writer, self._windows = writer, {0: 65535}
        self._changed = asyncio.Event()
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self._write(SETTINGS, 0, 0)
        for number in range(self.calls):
            self._write(HEADERS, END_HEADERS, 2 * number + 1, _head(self.path))
            self.sent[2 * number + 1], self._windows[2 * number + 1] = 0, self._initial
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._listen(reader)), group.create_task(self._push())]
            try:
                yield self
            finally:
                for task in tasks:
                    task.cancel()
                writer.close()

    def _write(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        self._writer.write(struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload)

    async def _push(self) -> None:
        """Sends whatever the windows allow, to all calls in turn."""
        while True:
            self._changed.clear()
            moved = [stream for stream in self.sent if self._some(stream)]
            if not moved:
                await self._changed.wait()
            await self._writer.drain()

    def _some(self, stream: int) -> bool:
        sent, last = self.sent[stream], self.size + 5 - self.withheld
        size = min(FRAME, last - sent, self._windows[0], self._windows[stream])
        if size <= 0 or stream in self.ended:
            return False
        payload = ZEROS[:size] if sent else (b"\x00" + struct.pack(">I", self.size) + ZEROS)[:size]
        whole = sent + size == self.size + 5
        self._write(DATA, END_STREAM if whole else 0, stream, payload)
        self.sent[stream] += size
        self._windows[stream] -= size
        self._windows[0] -= size
        return True

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while True:
            head = await reader.readexactly(9)
            kind, flags, stream = struct.unpack(">BBI", head[3:])
            self._take(kind, flags, stream, await reader.readexactly(int.from_bytes(head[:3])))
            self._changed.set()

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == WINDOW_UPDATE:
            self._windows[stream] += int.from_bytes(payload)
        elif kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at : at + 6])
                if name == INITIAL_WINDOW_SIZE:
                    for known in self.sent:
                        self._windows[known] += value - self._initial
                    self._initial = value
            self._write(SETTINGS, ACK, 0)
        elif kind == PING and not flags & ACK:
            self._write(PING, ACK, 0, payload)
        elif kind == RST_STREAM or (kind in (HEADERS, DATA) and flags & END_STREAM):
            self.ended.add(stream)

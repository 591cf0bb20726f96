"""HTTP servers that stand where replicas' /metrics would be.

The hostile ones run as a program of their own, so that what they cost is not counted as anybody else's. A line on its
standard input is the size of their pages from then on; it answers with what it has served so far, as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from attack.cast import HOSTILE, TRAP, Cast
from enginewright.core.labels import METRICS_PORT

PENDING: Final = 'nv_inference_pending_request_count{model="m",version="1"} %d\n'
Answer = Callable[[str], bytes | None]


def ok(page: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(page) + page


def filled(size: int) -> bytes:
    """A page of ``size`` bytes, all of it lines that the operator wants."""
    lines = bytearray()
    for number in range(size // 60 + 1):
        lines += b'nv_inference_pending_request_count{model="m%d",version="1"} 0\n' % number
    return bytes(lines[: lines.rfind(b"\n", 0, size) + 1])


@contextlib.asynccontextmanager
async def serving(addresses: Sequence[str], answer: Answer) -> AsyncIterator[None]:
    """``answer`` says what the replica at an address sends back, None for nothing at all."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                sent = answer(writer.get_extra_info("sockname")[0])
                if sent is None:
                    await reader.read()
                    break
                writer.write(sent)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, list(addresses), METRICS_PORT, backlog=1024) if addresses else None
    try:
        yield
    finally:
        if server:
            server.close()


class Honest:
    """``queued`` maps addresses to how many requests wait there."""

    def __init__(self) -> None:
        self.queued: dict[str, int] = {}

    def answer(self, address: str) -> bytes:
        return ok((PENDING % self.queued.get(address, 0)).encode())


class Hostile:
    def __init__(self, cast: Cast) -> None:
        self.count: Counter[str] = Counter()
        self._redirect = frozenset(cast.addresses("redirect"))
        self._silent = frozenset(cast.addresses("silent"))
        self.size(0)

    def size(self, size: int) -> None:
        self._page = ok(filled(size) if size else (PENDING % 0).encode())
        self._attacks = size > 0

    def answer(self, address: str) -> bytes | None:
        if address == TRAP:
            self.count["redirects_followed"] += 1
        elif address in self._silent and self._attacks:
            self.count["unanswered"] += 1
            return None
        elif address in self._redirect and self._attacks:
            self.count["redirects"] += 1
            return (f"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{TRAP}:{METRICS_PORT}/secret\r\n"
                    f"Content-Length: 0\r\n\r\n").encode()
        else:
            self.count["pages"] += self._attacks
            return self._page
        return ok((PENDING % 0).encode())


async def main(cast: Cast) -> None:
    hostile = Hostile(cast)
    addresses = [address for kind in HOSTILE for address in cast.addresses(kind)]
    async with serving([*addresses, TRAP], hostile.answer):
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            hostile.size(int(line))
            print(json.dumps(hostile.count), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Cast(*map(int, sys.argv[1:]))))

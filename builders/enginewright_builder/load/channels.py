"""Several gRPC connections to one address, each renewed from time to time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

METHOD = "/inference.GRPCInferenceService/ModelInfer"
# gRPC's own retries stay as every client has them: without a policy, only of requests that no server has seen, as when
# a connection is renewed while they are on their way. Other retries are ours to make and to count.
OPTIONS = (
    # Channels of one process otherwise share one connection to one address, and a Service balances connections.
    ("grpc.use_local_subchannel_pool", 1),
    # What fetches sources may go by a proxy; what measures a server beside it must not.
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
)


@dataclass(eq=False)
class _Connection:
    channel: grpc.aio.Channel
    call: grpc.aio.UnaryUnaryMultiCallable
    born: float
    in_flight: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)


class Channels:
    """``count`` connections used in turn. With ``reconnect_seconds`` each is replaced when it is that old: a new
    connection is made and ready first, then the old one ends its calls in flight and closes, so that no request is lost
    and new replicas behind a Service get their share."""

    def __init__(self, url: str, *, count: int = 4, reconnect_seconds: float = 0.0,
                 connect_seconds: float = 10.0) -> None:
        self.url, self.count = url, count
        self.reconnect_seconds, self.connect_seconds = reconnect_seconds, connect_seconds
        self.reconnects = 0
        self._connections: list[_Connection] = []
        self._turn = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Raises ``ConnectionError`` when the server cannot be reached in time."""
        try:
            for _ in range(self.count):
                self._connections.append(await self._connect())
        except BaseException:
            await self._close_all()
            raise
        if self.reconnect_seconds > 0:
            self._spawn(self._renew())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._close_all()

    async def call(self, payload: bytes, timeout: float) -> bytes:  # noqa: ASYNC109 - gRPC enforces it itself
        """One ModelInfer. Raises ``grpc.aio.AioRpcError``."""
        with self.held() as call:
            return await call(payload, timeout)

    @contextlib.contextmanager
    def held(self) -> Iterator[Callable[[bytes, float], Awaitable[bytes]]]:
        """:meth:`call` on one connection, which is closed only once it is given back: a Service leads each connection
        to one replica, and a sequence of requests to where it began."""
        connection = self._connections[next(self._turn) % len(self._connections)]

        async def call(payload: bytes, timeout: float) -> bytes:  # noqa: ASYNC109 - gRPC enforces it itself
            answer: bytes = await connection.call(payload, timeout=timeout)
            return answer

        connection.in_flight += 1
        try:
            yield call
        finally:
            connection.in_flight -= 1
            if not connection.in_flight:
                connection.idle.set()

    async def _connect(self) -> _Connection:
        channel = grpc.aio.insecure_channel(self.url, options=OPTIONS)
        try:
            async with asyncio.timeout(self.connect_seconds):
                await channel.channel_ready()
        except TimeoutError:
            await channel.close()
            raise ConnectionError(f"{self.url} does not answer within {self.connect_seconds:.0f} s") from None
        # No serialisers: bytes in, bytes out, so that the generator stays light beside the server it measures.
        return _Connection(channel, channel.unary_unary(METHOD), time.monotonic())

    async def _renew(self) -> None:
        """Replaces one connection at a time, evenly spread, so that load never moves all at once."""
        position = 0
        while True:
            await asyncio.sleep(self.reconnect_seconds / self.count)
            # A replica that is starting or leaving: the old connection stays in use until a new one stands.
            with contextlib.suppress(ConnectionError):
                fresh = await self._connect()
                old, self._connections[position] = self._connections[position], fresh
                self.reconnects += 1
                self._spawn(self._retire(old))
                position = (position + 1) % self.count

    async def _retire(self, connection: _Connection) -> None:
        while connection.in_flight:
            connection.idle.clear()
            await connection.idle.wait()
        await connection.channel.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close_all(self) -> None:
        for connection in self._connections:
            await connection.channel.close()
        self._connections.clear()

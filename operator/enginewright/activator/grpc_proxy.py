"""The V2 protocol by gRPC: every call is passed on as a stream of bytes each way, which a unary call is one of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import grpc
import grpc.aio

from enginewright.activator.gate import Gate, LateError
from enginewright.activator.pace import SlowError, due, in_time
from enginewright.activator.room import FullError, Place, Room
from enginewright.activator.tally import Tally

# Answered here: a health check starts no replica. Each answer is a message whose first field, a
# boolean or an enumeration, is 1: live, ready, SERVING.
HEALTH: Final = frozenset({
    "/inference.GRPCInferenceService/ServerLive", "/inference.GRPCInferenceService/ServerReady",
    "/grpc.health.v1.Health/Check",
})
YES: Final = b"\x08\x01"
CONNECT_SECONDS: Final = 2.0
# Clients keep connections for good. After so long the activator asks them to make a new one (GOAWAY; calls under way go
# on), which the Service leads to the replicas by then. As Triton's own connections, see core/config.py.
CONNECTION_AGE_MS: Final = 3000
# gRPC takes a message into memory as soon as it is asked for one, and tells its size only then. So a message is at most
# so large, and few are asked for at a time: first messages, and later ones of streams, which may be silent for long. Of
# the others each has at most the window in memory: the probe, which would let that grow, is off.
LARGEST: Final = 16 << 20
READERS: Final = 4
WINDOW: Final = 16 << 10
# Metadata that gRPC writes itself.
RESERVED: Final = ("grpc-", ":")
OWN: Final = frozenset({"user-agent", "content-type", "te", "host"})
Metadata = Iterable[tuple[str, str | bytes]]

CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0), ("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 500),
)


def server_options(room: Room) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", min(room.size, LARGEST)), ("grpc.max_send_message_length", -1),
        ("grpc.http2.lookahead_bytes", WINDOW), ("grpc.http2.bdp_probe", 0),
        ("grpc.max_connection_age_ms", CONNECTION_AGE_MS), ("grpc.so_reuseport", 0),
        ("grpc.http2.max_ping_strikes", 0),
    ]


class GrpcProxy(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc tells no types
    """``backend`` is ``host:port`` of the replicas; a call waits at most ``hold`` seconds."""

    def __init__(self, backend: str, gate: Gate, room: Room, tally: Tally, hold: float) -> None:
        self._gate = gate
        self._room = room
        self._tally = tally
        self._hold = hold
        self._first = asyncio.Semaphore(READERS)
        self._more = asyncio.Semaphore(READERS)
        self._channel = grpc.aio.insecure_channel(backend, options=CHANNEL_OPTIONS)

    async def close(self) -> None:
        await self._channel.close()

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler:
        method = handler_call_details.method
        take = self._answer if method in HEALTH else self._take

        async def handle(_: Any, context: grpc.aio.ServicerContext) -> None:
            await take(method, context)

        return grpc.stream_stream_rpc_method_handler(handle)

    async def _answer(self, _: str, context: grpc.aio.ServicerContext) -> None:
        await context.write(YES)

    async def _take(self, method: str, context: grpc.aio.ServicerContext) -> None:
        deadline = asyncio.get_running_loop().time() + self._hold
        try:
            with self._room.enter() as place:
                call = _Call(context, place, self._hold)
                await call.begin(self._first, deadline)
                await self._connected(deadline)
                await call.run(self._channel, method, self._more)
        except FullError as error:
            self._tally.ended("grpc", "full")
            code = grpc.StatusCode.RESOURCE_EXHAUSTED if error.never else grpc.StatusCode.UNAVAILABLE
            await context.abort(code, f"enginewright activator: no replica is ready, and {error}")
        except SlowError:
            self._tally.ended("grpc", "slow")
            said = "enginewright activator: the first message came too slowly; open the call when a message is ready"
            await context.abort(grpc.StatusCode.UNAVAILABLE, said)
        except LateError:
            self._tally.ended("grpc", "late")
            said = f"enginewright activator: no replica was ready within {self._hold:g} s"
            await context.abort(grpc.StatusCode.UNAVAILABLE, said)
        except asyncio.CancelledError:
            self._tally.ended("grpc", "gone")
            raise
        except grpc.aio.AbortError:
            self._tally.ended("grpc", "failed")
            raise
        else:
            self._tally.ended("grpc", "forwarded")

    async def _connected(self, deadline: float) -> None:
        """Returns when a replica is ready and reached. Raises :class:`LateError`."""
        while True:
            await self._gate.passed(deadline)
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self._channel.channel_ready()
                return
            except TimeoutError:
                self._gate.shut()


class _Call:
    """One call, passed on once. Each side is read as fast as the other one takes it."""

    def __init__(self, context: grpc.aio.ServicerContext, place: Place, patience: float) -> None:
        self._context = context
        self._place = place
        self._patience = patience
        # Kept here alone: a frame that names it as well would keep what is charged no more.
        self._message: Any = None
        self._call: Any = None

    async def begin(self, readers: asyncio.Semaphore, deadline: float) -> None:
        """Takes the first message. Raises :class:`FullError`, :class:`LateError` and :class:`SlowError`."""
        await _acquired(readers, deadline)
        try:
            by = due(asyncio.get_running_loop().time(), 0)
            self._message = await in_time(self._context.read(), by, deadline)
            self._charge()
        finally:
            readers.release()

    async def _next(self, readers: asyncio.Semaphore) -> None:
        """Takes a later message; a stream may be silent for as long as it likes."""
        await _acquired(readers, asyncio.get_running_loop().time() + self._patience)
        try:
            self._message = await self._context.read()
            self._charge()
        finally:
            readers.release()

    def _charge(self) -> None:
        """Raises :class:`FullError`, and lets the message go: the error's traceback may live for long."""
        if self._message is grpc.aio.EOF:
            return
        try:
            self._place.grow(len(self._message))
        except FullError:
            self._message = None
            raise

    async def run(self, channel: grpc.aio.Channel, method: str, readers: asyncio.Semaphore) -> None:
        """Raises :class:`FullError`, and what ends the handler with the replica's status."""
        metadata = _passed_on(self._context.invocation_metadata() or ())
        self._call = channel.stream_stream(method)(metadata=metadata, timeout=self._context.time_remaining())
        sending = asyncio.create_task(self._send(readers))
        try:
            await self._context.send_initial_metadata(_passed_on(await self._call.initial_metadata() or ()))
            while (answer := await self._call.read()) is not grpc.aio.EOF:
                await self._context.write(answer)
            await self._end()
        except grpc.aio.AioRpcError:
            await self._end()
        except asyncio.CancelledError:
            # Reading a call that `_send` gave up raises this one too, although nothing has cancelled the handler.
            if _full(sending) is None:
                raise
        finally:
            sending.cancel()
            self._call.cancel()
            await asyncio.wait({sending})
        if error := _full(sending):
            raise error

    async def _send(self, readers: asyncio.Semaphore) -> None:
        try:
            while self._message is not grpc.aio.EOF:
                await self._call.write(self._message)
                self._place.shrink(len(self._message))
                self._message = None
                await self._next(readers)
            await self._call.done_writing()
        except FullError:
            self._call.cancel()
            raise
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The call has ended; its status says why.
            return

    async def _end(self) -> None:
        """Raises what ends the handler with the replica's status, unless that is OK."""
        trailing = _passed_on(await self._call.trailing_metadata() or ())
        code = await self._call.code()
        if code is not grpc.StatusCode.OK:
            await self._context.abort(code, await self._call.details() or "", trailing)
        self._context.set_trailing_metadata(trailing)


async def _acquired(readers: asyncio.Semaphore, deadline: float) -> None:
    """Returns when this call may ask for a message. Raises :class:`FullError` at ``deadline``."""
    try:
        async with asyncio.timeout_at(deadline):
            await readers.acquire()
    except TimeoutError as error:
        raise FullError(f"{READERS} messages are already being read") from error


def _full(sending: asyncio.Task[None]) -> FullError | None:
    """Why it gave the call up; None where it did not, or goes on."""
    error = sending.exception() if sending.done() and not sending.cancelled() else None
    return error if isinstance(error, FullError) else None


def _passed_on(metadata: Metadata) -> tuple[tuple[str, str | bytes], ...]:
    return tuple((key, value) for key, value in metadata if not key.startswith(RESERVED) and key not in OWN)


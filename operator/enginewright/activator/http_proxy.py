"""The servers' protocols by HTTP, Triton's and OpenAI's: bytes in, bytes out. Each piece of an answer is passed on as
it comes, so streams stay streams; a client that goes away ends its request at the replica.

Each answer ends its connection, so that a client's next request goes where the Service leads by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from enginewright.activator.gate import Gate, LateError
from enginewright.activator.pace import SlowError, due, in_time
from enginewright.activator.room import FullError, Place, Room
from enginewright.activator.tally import Result, Tally
from enginewright.clients.direct import DirectSession
from enginewright.core.servers.triton import TRITON

CONNECT_SECONDS: Final = 2.0
RETRY_AFTER: Final = "5"
# RFC 9110, 7.6.1; of Content-Length the client and the server here take care themselves.
HOP_BY_HOP: Final = frozenset({"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding",
                               "upgrade", "expect"})
NO_AUTO_HEADERS: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
Response = TypeVar("Response", bound=web.StreamResponse)


@dataclass(frozen=True, kw_only=True)
class Health:
    """Paths of the server's own health checks. The activator answers them itself: they start no replica, and kubelets
    ask, too."""

    live: str = TRITON.live_path
    ready: str = TRITON.ready_path


HEALTH: Final = Health()


class NotSentError(Exception):
    """No replica took the connection, so none has seen the request."""


class HttpProxy:
    """``backend`` is the replicas' address; a request waits at most ``hold`` seconds."""

    def __init__(self, backend: URL, gate: Gate, room: Room, tally: Tally, hold: float,
                 health: Health = HEALTH) -> None:
        self._backend = backend
        self._gate = gate
        self._room = room
        self._tally = tally
        self._hold = hold
        self._health = health
        # A connection each: one that is kept may be closed by its replica just as a request is written to it, and
        # it would be unknown whether that was seen.
        self._session = DirectSession(aiohttp.TCPConnector(limit=0, force_close=True),
                                      timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS))

    async def close(self) -> None:
        await self._session.close()

    async def ready(self) -> bool:
        """Whether a replica says that it is."""
        try:
            async with (
                asyncio.timeout(CONNECT_SECONDS),
                self._session.request("GET", self._backend.with_path(self._health.ready)) as response,
            ):
                return response.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method in ("GET", "HEAD") and request.path in (self._health.live, self._health.ready):
            return _closing(web.Response())
        if not request.rel_url.raw_path.startswith("/"):
            return _refusal(400, "the path must begin with a slash")
        deadline = asyncio.get_running_loop().time() + self._hold
        try:
            with self._room.enter() as place:
                body = await _read(request, place, deadline)
                response = await self._deliver(request, body, deadline)
        except FullError as error:
            self._tally.ended("http", "full")
            return _refusal(413 if error.never else 503, f"no replica is ready, and {error}")
        except SlowError:
            self._tally.ended("http", "slow")
            return _refusal(408, "the body came too slowly; send it faster, or in smaller requests")
        except LateError:
            self._tally.ended("http", "late")
            return _refusal(503, f"no replica was ready within {self._hold:g} s")
        except asyncio.CancelledError:
            self._tally.ended("http", "gone")
            raise
        self._tally.ended("http", _result(response))
        return response

    async def _deliver(self, request: web.Request, body: bytearray, deadline: float) -> web.StreamResponse:
        """Once: it is tried again only where no replica has seen it. Raises :class:`LateError`."""
        while True:
            await self._gate.passed(deadline)
            try:
                return await self._forward(request, body)
            except NotSentError:
                self._gate.shut()

    async def _forward(self, request: web.Request, body: bytearray) -> web.StreamResponse:
        """Raises :class:`NotSentError`."""
        passed = CIMultiDict(_end_to_end(request.headers, "content-length"))
        response: web.StreamResponse | None = None
        try:
            async with self._session.request(
                request.method, self._url(request), data=body if body or request.body_exists else None, headers=passed,
                skip_auto_headers=NO_AUTO_HEADERS,
            ) as answer:
                response = web.StreamResponse(status=answer.status, reason=answer.reason,
                                              headers=CIMultiDict(_end_to_end(answer.headers)))
                await _closing(response).prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSentError from error
        except aiohttp.ClientError as error:
            if response is not None:
                # An answer that ends too early must not look whole.
                if request.transport is not None:
                    request.transport.abort()
                return response
            return _refusal(502, f"the replica closed the connection ({type(error).__name__}); it may have "
                                 "computed the request")

    def _url(self, request: web.Request) -> URL:
        """By text: a path that begins with two slashes would name another host if it were joined."""
        return URL(f"{self._backend.origin()}{request.rel_url.raw_path_qs}", encoded=True)


async def _read(request: web.Request, place: Place, deadline: float) -> bytearray:
    """The whole body, charged as it comes: an announced length is the client's word only.

    Raises :class:`FullError`, :class:`SlowError`, and :class:`LateError` where the body does not come in time.
    """
    place.check(request.content_length or 0)
    body, started = bytearray(), asyncio.get_running_loop().time()
    while chunk := await in_time(request.content.readany(), due(started, len(body)), deadline):
        place.grow(len(chunk))
        body += chunk
    return body


def _end_to_end(headers: CIMultiDictProxy[str], *more: str) -> Iterator[tuple[str, str]]:
    named = {name.strip().lower() for value in headers.getall("Connection", ()) for name in value.split(",")}
    dropped = HOP_BY_HOP | named | set(more)
    return ((name, value) for name, value in headers.items() if name.lower() not in dropped)


def _refusal(status: int, said: str) -> web.Response:
    """As Triton words its own errors."""
    headers = {"Retry-After": RETRY_AFTER} if status == 503 else None
    return _closing(web.json_response({"error": f"enginewright activator: {said}"}, status=status, headers=headers))


def _closing(response: Response) -> Response:
    response.force_close()
    return response


def _result(response: web.StreamResponse) -> Result:
    return "failed" if isinstance(response, web.Response) else "forwarded"


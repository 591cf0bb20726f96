"""Finding 6: a replica could make the operator send a request of its choice anywhere the operator reaches, and read
up to 300 characters of the answer in the object's status.

Servers on loopback: one that redirects, and the one that it redirects to, which must not be asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client.configuration import Configuration
from yarl import URL

from enginewright.activator.gate import Gate
from enginewright.activator.http_proxy import HttpProxy
from enginewright.activator.room import Room
from enginewright.activator.tally import Tally
from enginewright.clients.activator import ActivatorClient
from enginewright.clients.errors import ClientError
from enginewright.clients.kube import KubeClient
from enginewright.clients.probe import ProbeClient
from enginewright.clients.prometheus import PrometheusClient
from enginewright.clients.quality import QualityClient
from enginewright.clients.resources import POD
from enginewright.clients.triton import TritonClient
from enginewright.core.probe import ProbeError, Request, read_answer

SECRET = "swordfish-4711"
HERE = "127.0.0.1"
STATUSES = (301, 302, 303, 307, 308)


@dataclass
class Servers:
    """``asked`` are requests that reached the server which the other redirects to."""

    port: int
    status: int = 307
    body: str = SECRET
    asked: list[str] = field(default_factory=list)


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    async def target(request: web.Request) -> web.Response:
        found.asked.append(f"{request.method} {request.path_qs}")
        return web.Response(text=SECRET)

    async def redirect(request: web.Request) -> web.Response:
        headers = {"Location": str(inner.make_url("/admin/delete"))} if 300 <= found.status < 400 else {}
        return web.Response(status=found.status, headers=headers, text=found.body)

    async with TestServer(_app(target)) as inner, TestServer(_app(redirect)) as outer:
        found = Servers(int(outer.port or 0))
        yield found


def _app(handler: Callable[[web.Request], Awaitable[web.Response]]) -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    return app


async def scrape(port: int) -> object:
    async with TritonClient(deadline=60) as client:
        return await client.scrape(HERE, port)


async def report(port: int) -> object:
    async with QualityClient(deadline=60) as client:
        return await client.report(HERE, port)


async def held(port: int) -> object:
    async with ActivatorClient(deadline=60) as client:
        return await client.held(HERE, port=port)


async def metadata(port: int) -> object:
    async with ProbeClient(deadline=60) as client:
        return await client.metadata(HERE, "net", port)


async def infer(port: int) -> object:
    async with ProbeClient(deadline=60) as client:
        return await client.infer(HERE, "net", Request(b"{}", 2), port)


async def pending(port: int) -> object:
    async with PrometheusClient(deadline=60) as client:
        return await client.pending(f"http://{HERE}:{port}", "team", "net")


async def kubernetes(port: int) -> object:
    configuration = Configuration(host=f"http://{HERE}:{port}", client_session_kwargs={"trust_env": False})
    async with KubeClient(configuration) as client:
        return await client.get(POD, "team", "net-0")


CALLS = (scrape, report, held, metadata, infer, pending, kubernetes)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("status", STATUSES)
async def test_no_redirect_is_followed_and_the_error_names_its_status(
    call: Callable[[int], Awaitable[object]], status: int, servers: Servers
) -> None:
    servers.status = status
    with pytest.raises((ClientError, ProbeError), match=str(status)):
        await call(servers.port)
    assert servers.asked == []


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("status", [200, 307, 400, 403, 404, 500, 503])
async def test_no_message_holds_what_was_answered(
    call: Callable[[int], Awaitable[object]], status: int, servers: Servers
) -> None:
    """Messages end in status and in events."""
    servers.status = status
    with pytest.raises((ClientError, ProbeError)) as caught:
        await call(servers.port)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("body", [
    SECRET.encode(), b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": ["%s"]}]}' % SECRET.encode(),
    b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": {"%s": 1}, "parameters": "%s"}]}'
    % (SECRET.encode(), SECRET.encode()),
    b'{"outputs": {"%s": 1}}' % SECRET.encode(),
])
def test_nor_does_that_of_an_answer_to_a_probe(body: bytes) -> None:
    with pytest.raises(ProbeError) as caught:
        read_answer(body, None)
    assert SECRET not in str(caught.value)


async def test_an_answer_that_is_no_http_is_not_quoted() -> None:
    async def serve(reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        out.write(SECRET.encode() + b" and no status line\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await out.drain()
        out.close()

    server = await asyncio.start_server(serve, HERE, 0)
    port = int(server.sockets[0].getsockname()[1])
    try:
        for call in CALLS[:-1]:
            with pytest.raises((ClientError, ProbeError)) as caught:
                await call(port)
            assert SECRET not in str(caught.value)
    finally:
        server.close()


@pytest.mark.parametrize("status", STATUSES)
async def test_the_activator_takes_no_redirect_for_a_ready_replica(status: int, servers: Servers) -> None:
    servers.status = status
    async def never() -> bool:
        return False

    gate, room = Gate(never), Room(1, 1)
    proxy = HttpProxy(URL(f"http://{HERE}:{servers.port}"), gate, room, Tally(gate, room), 1.0)
    try:
        assert not await proxy.ready()
    finally:
        await proxy.close()
    assert servers.asked == []


@pytest.mark.parametrize("call", [metadata, infer])
async def test_cookies_are_not_kept(call: Callable[[int], Awaitable[object]]) -> None:
    """Those of one replica must not be sent to another one."""
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Cookie", ""))
        return web.Response(status=500, headers={"Set-Cookie": "a=b; Path=/"})

    async with TestServer(_app(answer)) as server:
        for _ in range(2):
            with pytest.raises((ClientError, ProbeError)):
                await call(int(server.port or 0))
    assert seen == ["", ""]

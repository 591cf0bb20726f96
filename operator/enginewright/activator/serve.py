"""Puts the activator together and runs it until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import grpc.aio
import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST
from yarl import URL

from enginewright.activator.gate import Gate
from enginewright.activator.grpc_proxy import GrpcProxy, server_options
from enginewright.activator.http_proxy import Health, HttpProxy
from enginewright.activator.room import Room
from enginewright.activator.tally import Tally
from enginewright.core.labels import GRPC_PORT, HTTP_PORT, METRICS_PORT
from enginewright.core.servers.triton import TRITON

# A connection is closed on which no whole head of a request came for so long.
HEAD_SECONDS: Final = 10.0
# A long poll may take as long; see clients/activator.py.
LONGEST_WAIT: Final = 30.0
log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options:
    """``backend`` is the host of the replicas, ``backend_http`` and ``backend_grpc`` their ports; of our own ports 0
    picks one, and ``host`` None is every address. At most ``requests`` requests of ``size`` bytes altogether are held,
    each for ``hold`` seconds. What is being passed on as it ends has ``leave`` seconds, None for as many as ``hold``. A
    replica is ready when a GET of ``ready_path`` gives 200; of our own, it and ``live_path`` do."""

    backend: str
    backend_http: int = HTTP_PORT
    backend_grpc: int = GRPC_PORT
    host: str | None = None
    http_port: int = HTTP_PORT
    grpc_port: int = GRPC_PORT
    metrics_port: int = METRICS_PORT
    requests: int = 1000
    size: int = 128 << 20
    hold: float = 120.0
    leave: float | None = None
    live_path: str = TRITON.live_path
    ready_path: str = TRITON.ready_path


@dataclass(frozen=True, kw_only=True)
class Running:
    http_port: int
    grpc_port: int
    metrics_port: int
    gate: Gate
    room: Room
    tally: Tally


@contextlib.asynccontextmanager
async def activator(options: Options) -> AsyncIterator[Running]:
    """Serves for the length of the block. At its end nothing new is taken, and what is held or answered still has its
    time."""
    leave = options.hold if options.leave is None else options.leave
    room = Room(options.requests, options.size)
    gate = Gate(lambda: proxy.ready())
    tally = Tally(gate, room)
    backend = URL.build(scheme="http", host=options.backend, port=options.backend_http)
    proxy = HttpProxy(backend, gate, room, tally, options.hold,
                      Health(live=options.live_path, ready=options.ready_path))
    calls = GrpcProxy(f"{options.backend}:{options.backend_grpc}", gate, room, tally, options.hold)
    server = grpc.aio.server(options=server_options(room))
    server.add_generic_rpc_handlers((calls,))
    requests, pages = _runner(_everything(proxy), leave), _runner(_metrics(gate, tally), 0.0)
    try:
        grpc_port = server.add_insecure_port(f"{options.host or '[::]'}:{options.grpc_port}")
        await server.start()
        yield Running(
            http_port=await _listen(requests, options.host, options.http_port), grpc_port=grpc_port,
            metrics_port=await _listen(pages, options.host, options.metrics_port), gate=gate, room=room, tally=tally,
        )
    finally:
        log.info("draining", pending=gate.pending)
        await asyncio.gather(server.stop(leave), requests.cleanup())
        await pages.cleanup()
        await gate.close()
        await calls.close()
        await proxy.close()


async def run(options: Options, stop: asyncio.Event) -> None:
    async with activator(options) as running:
        log.info("activator runs", http=running.http_port, grpc=running.grpc_port, metrics=running.metrics_port,
                 backend=options.backend)
        await stop.wait()


def _runner(app: web.Application, patience: float) -> web.AppRunner:
    """A client that has gone leaves its place; bodies are passed on as they came."""
    return web.AppRunner(app, access_log=None, handle_signals=False, handler_cancellation=True, auto_decompress=False,
                         keepalive_timeout=HEAD_SECONDS, shutdown_timeout=patience)


async def _listen(runner: web.AppRunner, host: str | None, port: int) -> int:
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return int(runner.addresses[0][1])


def _everything(proxy: HttpProxy) -> web.Application:
    app = web.Application(client_max_size=0)
    app.router.add_route("*", "/{path:.*}", proxy.handle)
    return app


def _metrics(gate: Gate, tally: Tally) -> web.Application:
    """``?wait=SECONDS`` answers as soon as a request waits, then at the latest."""

    async def page(request: web.Request) -> web.Response:
        try:
            wait = min(LONGEST_WAIT, float(request.query.get("wait", 0)))
        except ValueError:
            raise web.HTTPBadRequest(text="wait: write seconds, such as 1\n") from None
        if wait > 0:
            await gate.somebody_waits(wait)
        return web.Response(body=tally.page(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/metrics", page)
    return app

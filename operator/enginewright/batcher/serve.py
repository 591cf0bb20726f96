"""Puts the batcher together and runs it until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from enginewright.batcher.follower import Follower, Told
from enginewright.batcher.tally import Tally
from enginewright.clients.model_control import ModelControl
from enginewright.clients.triton import TritonClient
from enginewright.core.batching import SafeSet
from enginewright.core.labels import BATCHING_PORT, HTTP_PORT, METRICS_PORT

# Seconds from look to look.
PERIOD: Final = 1.0
# A load may take so many times what the build measured, and so many seconds more, as a start may.
PATIENCE, MARGIN = 5.0, 60.0
log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options:
    """``key`` opens the server's model control. Of our own port 0 picks one, and ``host`` None is every address."""

    model: str
    safe: SafeSet
    key: str
    host: str | None = None
    port: int = BATCHING_PORT
    http_port: int = HTTP_PORT
    metrics_port: int = METRICS_PORT


async def run(options: Options, stop: asyncio.Event) -> None:
    tally, deadline = Tally(), MARGIN + PATIENCE * options.safe.load_seconds
    async with ModelControl(options.key, deadline=deadline) as control, TritonClient() as metrics:
        follower = Follower(options.model, options.safe, control, metrics, tally, time.monotonic,
                            http_port=options.http_port, metrics_port=options.metrics_port)
        async with served(follower.told, tally, options.host, options.port) as port:
            log.info("batcher runs", port=port, model=options.model, default=str(options.safe.default))
            looking = asyncio.create_task(keep_looking(follower))
            await stop.wait()
            looking.cancel()  # a load that is under way goes on in the server; nothing waits for it
            await asyncio.wait({looking})


async def keep_looking(follower: Follower, period: float = PERIOD) -> None:
    """Until it is cancelled. A defect of ours must not take the replica along: it starts again from the default."""
    while True:
        began = time.monotonic()
        try:
            await follower.look()
        except Exception:
            log.exception("a look failed")
            follower.begin_anew()
        await asyncio.sleep(max(0.0, began + period - time.monotonic()))


@contextlib.asynccontextmanager
async def served(told: Callable[[], Told], tally: Tally, host: str | None, port: int) -> AsyncIterator[int]:
    """``/metrics``, and the same as JSON with the reason in words; gives the port."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=tally.page(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def batching(_: web.Request) -> web.Response:
        return web.json_response(asdict(told()))

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/batching", batching)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()

"""``/metrics``, ``/healthz`` and ``/readyz``."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

from enginewright.reconcile.health import Health

IPV4: Final = "0.0.0.0"  # noqa: S104 - a pod's port is for others to read


def metrics_app(registry: CollectorRegistry) -> web.Application:
    app = web.Application()
    app.router.add_get("/metrics", make_aiohttp_handler(registry))
    return app


def health_app(health: Health) -> web.Application:
    app = web.Application()
    app.router.add_get("/healthz", _probe(health.problems))
    app.router.add_get("/readyz", _probe(health.unready))
    return app


def _probe(check: Callable[[], list[str]]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """200 and ``ok``, or 503 and what is wrong, one thing a line."""

    async def answer(_: web.Request) -> web.Response:
        problems = check()
        return web.Response(status=503 if problems else 200, text="\n".join(problems or ["ok"]) + "\n")

    return answer


@contextlib.asynccontextmanager
async def serving(app: web.Application, port: int, host: str | None = None) -> AsyncIterator[int]:
    """Serves on ``port`` for the length of the block; gives the port. 0 picks one, of IPv4 alone where no ``host`` is
    given: each family would get another."""
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host or (None if port else IPV4), port)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()

"""A proxy before the apiserver that misbehaves on request: plain HTTP on loopback, the tests' credentials behind it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import aiohttp
from aiohttp import web
from kubernetes.aio.client.rest import RESTClientObject

from enginewright.clients.credentials import load_configuration

Fault = Literal["pass", "throttle", "conflict", "break", "hang", "hold", "lose-answer"]
WRITES = ("POST", "PUT", "PATCH", "DELETE")
_HOP = {"transfer-encoding", "content-encoding", "content-length", "connection"}


@dataclass
class FaultyProxy:
    """``choose`` says what happens to each request; ``alter`` what arrives of a line of a watch, given its event type;
    nothing when that is empty. ``faults`` counts the requests that did not pass, ``watches`` the streams so far.
    Requests that are to ``hold`` are ``held`` until they are ``released``, and ``late`` has their statuses; ``wrote``
    has the paths of the other writes that arrived."""

    choose: Callable[[web.Request], Fault] = lambda _: "pass"
    alter: Callable[[str, bytes], bytes] = lambda _, line: line
    faults: int = 0
    watches: int = 0
    held: list[str] = field(default_factory=list)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    late: list[int] = field(default_factory=list)
    wrote: list[str] = field(default_factory=list)
    _host: str = ""

    @contextlib.asynccontextmanager
    async def running(self, kubeconfig: Path, folder: Path) -> AsyncIterator[Path]:
        """Gives a kubeconfig that leads through the proxy."""
        configuration = await load_configuration(str(kubeconfig))
        self._host = configuration.host
        tls = RESTClientObject(configuration).ssl_context
        connector = aiohttp.TCPConnector(ssl=tls, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=True) as session:
            app = web.Application(client_max_size=16 << 20)

            async def handle(request: web.Request) -> web.StreamResponse:
                return await self._handle(request, session)

            app.router.add_route("*", "/{tail:.*}", handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                through = folder / "faulty.kubeconfig"
                through.write_text(json.dumps(_kubeconfig(f"http://127.0.0.1:{runner.addresses[0][1]}")))
                yield through
            finally:
                await runner.cleanup()

    async def _handle(self, request: web.Request, session: aiohttp.ClientSession) -> web.StreamResponse:
        fault = self.choose(request)
        self.faults += fault != "pass"
        match fault:
            case "throttle":
                return _status(429, "TooManyRequests", {"Retry-After": "1"})
            case "conflict":
                return _status(409, "Conflict", {})
            case "break":
                return _status(500, "InternalError", {})
            case "hang":
                await asyncio.sleep(3600)
            case "hold":
                self.held.append(f"{request.method} {request.path}")
                late = self.late
                await self.released.wait()
                answer = await self._forward(request, session)
                late.append(answer.status)
                return answer
        answer = await self._forward(request, session)
        if is_write(request):
            self.wrote.append(request.path)
        if fault == "lose-answer" and request.transport is not None:
            request.transport.abort()
        return answer

    async def _forward(self, request: web.Request, session: aiohttp.ClientSession) -> web.StreamResponse:
        headers = {key: value for key, value in request.headers.items() if key.lower() not in (*_HOP, "host")}
        timeout = aiohttp.ClientTimeout(total=None, connect=10)
        async with session.request(
            request.method, self._host + request.path_qs, headers=headers, data=await request.read() or None,
            timeout=timeout,
        ) as answer:
            kept = {key: value for key, value in answer.headers.items() if key.lower() not in _HOP}
            if request.query.get("watch") not in ("true", "1"):
                return web.Response(status=answer.status, headers=kept, body=await answer.read())
            stream = web.StreamResponse(status=answer.status, headers=kept)
            await stream.prepare(request)
            self.watches += 1
            async for line in answer.content:
                await stream.write(self.alter(str(json.loads(line)["type"]), line))
            return stream


def is_write(request: web.Request) -> bool:
    return request.method in WRITES


def is_read(request: web.Request) -> bool:
    """But no watch."""
    return request.method == "GET" and "watch" not in request.query


BROKEN = {"kind": "Status", "code": 500, "reason": "InternalError"}
STREAM_ERROR = json.dumps({"type": "ERROR", "object": BROKEN}).encode()


def _status(code: int, reason: str, headers: dict[str, str]) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": "injected",
            "code": code}
    return web.json_response(body, status=code, headers=headers)


def _kubeconfig(server: str) -> dict[str, object]:
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "faulty",
        "clusters": [{"name": "faulty", "cluster": {"server": server}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "faulty", "context": {"cluster": "faulty", "user": "nobody"}}],
    }

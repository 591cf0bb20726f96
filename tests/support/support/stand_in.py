"""A stand-in for a replica, and clients: real HTTP and gRPC on loopback, without Triton."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from aiohttp import web

from enginewright_builder.triton.ports import HOST, free_ports

INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


def free_port() -> int:
    """Nobody listens there now: a replica comes and goes on it."""
    return free_ports(1)[0]


@dataclass
class StandIn:
    """Answers each request with what came, after ``go`` is set. ``seen`` counts bodies, whichever way they came."""

    http_port: int = field(default_factory=free_port)
    grpc_port: int = field(default_factory=free_port)
    ready: bool = True
    status: int = 200
    code: grpc.StatusCode = grpc.StatusCode.OK
    seen: Counter[bytes] = field(default_factory=Counter)
    requests: list[web.Request] = field(default_factory=list)
    metadata: list[dict[str, Any]] = field(default_factory=list)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.go.set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[StandIn]:
        """Both protocols; at the end what is under way is finished."""
        app = web.Application()
        app.router.add_get("/v2/health/ready", self._health)
        app.router.add_route("*", "/{path:.*}", self._http)
        runner = web.AppRunner(app, access_log=None, auto_decompress=False)
        await runner.setup()
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((_Echo(self),))
        assert server.add_insecure_port(f"{HOST}:{self.grpc_port}") == self.grpc_port
        await server.start()
        await web.TCPSite(runner, HOST, self.http_port, reuse_address=True).start()
        try:
            yield self
        finally:
            await asyncio.gather(runner.cleanup(), server.stop(5.0))

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.ready else 400)

    async def _http(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.seen[body] += 1
        self.requests.append(request)
        self.arrived.set()
        await self.go.wait()
        return web.Response(status=self.status, body=body, headers={"X-Answer": "yes"})

    async def echo(self, context: grpc.aio.ServicerContext) -> None:
        self.metadata.append(dict(context.invocation_metadata() or ()))
        while (message := await context.read()) is not grpc.aio.EOF:
            self.seen[message] += 1
            self.arrived.set()
            await self.go.wait()
            if self.code is grpc.StatusCode.OK:
                await context.write(message)
        context.set_trailing_metadata((("x-answer", "yes"),))
        if self.code is not grpc.StatusCode.OK:
            await context.abort(self.code, "as asked", (("x-why", "test"),))


class _Echo(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc tells no types
    def __init__(self, replica: StandIn) -> None:
        self._replica = replica

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler:
        async def handle(_: Any, context: grpc.aio.ServicerContext) -> None:
            await self._replica.echo(context)

        return grpc.stream_stream_rpc_method_handler(handle)

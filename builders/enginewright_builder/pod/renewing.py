"""What stands around a replica's vLLM: each answer ends its connection, and clients reach OpenAI's API alone.

A Service leads connections to replicas, not requests. A client that keeps its connection keeps its replica: also one
that is about to end, which refuses what comes on that connection once it has been asked to. As the activator's answers
do (http_proxy.py of the operator), so each answer ends its connection here, and the next request goes where the Service
leads by then.

vLLM has other paths on the same port, with which any client of the Service could abort the requests of another or
change how the server runs. They answer 404.

Standard library only, and nothing of this package: the serving pod's first init container copies this file, and vLLM
imports it, as ``--middleware=renewing.Renewing`` has it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

CLOSE = (b"connection", b"close")
API = "/v1/"
# What probes, the operator and clients read beside the API.
PATHS = frozenset(("/health", "/ping", "/metrics", "/version", "/tokenize", "/detokenize"))
_NOT_HERE = (b'{"error": {"message": "this server has no such path for clients: send requests to /v1/", '
             b'"type": "NotFoundError", "code": 404}}')


class Renewing:
    """ASGI around ``app``."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if not _reached(scope):
            await _refuse(scope, send)
            return

        async def ending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), CLOSE]}
            await send(message)

        await self._app(scope, receive, ending)


def _reached(scope: Message) -> bool:
    """A server's start and end have no path."""
    path = scope.get("path", API)
    return path.startswith(API) or path in PATHS


async def _refuse(scope: Message, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    await send({"type": "http.response.start", "status": 404,
                "headers": [(b"content-type", b"application/json"), CLOSE]})
    await send({"type": "http.response.body", "body": _NOT_HERE})

"""What a replica's vLLM adds to its answers: each ends its connection.

A Service leads connections to replicas, not requests. A client that keeps its connection keeps its replica: also one
that is about to end, which refuses what comes on that connection once it has been asked to. As the activator's answers
do (http_proxy.py of the operator), so each answer ends its connection here, and the next request goes where the Service
leads by then.

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


class Renewing:
    """ASGI around ``app``."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        async def ending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), CLOSE]}
            await send(message)

        await self._app(scope, receive, ending)

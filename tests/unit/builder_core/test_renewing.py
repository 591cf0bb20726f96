"""Each answer of a replica's vLLM ends its connection, whatever the answer is."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from enginewright_builder.pod.renewing import App, Message, Receive, Renewing, Send


def answers(*headers: tuple[bytes, bytes], parts: int = 1) -> App:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(headers)})
        for left in reversed(range(parts)):
            await send({"type": "http.response.body", "body": b"a", "more_body": left > 0})

    return app


def without_headers() -> App:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    return app


@pytest.mark.parametrize(("app", "said"), [
    (lambda: answers((b"x-request-id", b"7")), "a"), (lambda: answers(parts=3), "aaa"), (without_headers, "")])
async def test_an_answer_ends_its_connection_and_is_else_as_it_was(app: Callable[[], App], said: str) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(Renewing(app())), base_url="http://replica") as client:
        answer = await client.get("/")
    assert answer.headers["connection"] == "close"
    assert answer.text == said
    assert answer.headers.get("x-request-id") in ("7", None)


async def test_what_is_no_answer_passes_as_it_is() -> None:
    """As a server's start and end, which go through the same call."""
    seen: list[Message] = []

    async def starts(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "lifespan.startup.complete"})

    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        seen.append(message)

    await Renewing(starts)({"type": "lifespan"}, receive, send)
    assert seen == [{"type": "lifespan.startup.complete"}]

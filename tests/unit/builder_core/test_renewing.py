"""Each answer of a replica's vLLM ends its connection, and clients reach the paths of OpenAI's API alone."""

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
        answer = await client.get("/v1/models")
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


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/health", "/ping", "/metrics", "/version", "/tokenize",
                                  "/detokenize"])
async def test_clients_probes_and_the_operator_reach_what_they_ask(path: str) -> None:
    transport = httpx.ASGITransport(Renewing(answers()))
    async with httpx.AsyncClient(transport=transport, base_url="http://replica") as client:
        assert (await client.post(path)).status_code == 200


@pytest.mark.parametrize("path", ["/", "/inference/v1/abort_requests", "/scale_elastic_ep", "/pause", "/v1", "/v1x",
                                  "/health/", "/metrics/x", "//v1/models"])
async def test_no_client_reaches_what_else_the_server_has(path: str) -> None:
    reached: list[str] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        reached.append(scope["path"])
        await answers()(scope, receive, send)

    status: list[Message] = []

    async def send(message: Message) -> None:
        status.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    await Renewing(app)({"type": "http", "path": path}, receive, send)
    assert (reached, status[0]["status"], status[0]["headers"][-1]) == ([], 404, (b"connection", b"close"))
    assert b"send requests to /v1/" in status[1]["body"]


async def test_no_client_opens_a_websocket_elsewhere() -> None:
    seen: list[Message] = []

    async def send(message: Message) -> None:
        seen.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    await Renewing(answers())({"type": "websocket", "path": "/other"}, receive, send)
    assert seen == [{"type": "websocket.close", "code": 1008}]

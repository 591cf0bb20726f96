"""A fake of a server of language models with OpenAI's API: it streams tokens that a function chooses, and fails where a
test has it fail. What vLLM itself does is tested in tests/integration/builder_vllm."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

# By the tokens so far: log-probabilities of the next one.
Model = Callable[[Sequence[int]], dict[int, float]]


@dataclass(kw_only=True)
class FakeOpenAI:
    """``model`` chooses tokens, which are written as ``<N>``. ``trouble`` is what streams end in: ``cut`` (the
    connection ends), ``event`` (an error event under status 200), ``refused`` (status 503) or nothing. ``gate`` holds
    streams after their first token until it is set; ``full`` is set once ``expects`` are open, of which ``most`` is the
    largest number so far. ``gone`` is set once a client has left its stream before the end. Texts are
    read as their letters' numbers and ``reads`` more, and messages with ``template`` before them. Events have
    ``at_once`` tokens, as those of a server that speculates. Whatever is asked, the answer is ``other`` where that is
    given. Where ``crowded`` is given, it chooses for completions of a salt that begins with ``many``, which wait until
    ``crowd`` of them are open: as of a server that errs in large batches."""

    model: Model
    trouble: str = ""
    reads: int = 0
    template: str = ""
    at_once: int = 1
    other: bytes | None = None
    crowd: int = 0
    crowded: Model | None = None
    waiting: int = 0
    together: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event | None = None
    url: str = ""
    seen: list[dict[str, Any]] = field(default_factory=list)
    expects: int = 0
    full: asyncio.Event = field(default_factory=asyncio.Event)
    most: int = 0
    open: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def tokens(self, body: dict[str, Any]) -> list[int]:
        prompt = body.get("prompt", body.get("messages"))
        if isinstance(prompt, str):
            return [ord(letter) + self.reads for letter in prompt]
        if prompt and isinstance(prompt[0], dict):
            text = self.template + "".join(one["content"] for one in prompt)
            return [ord(letter) + self.reads for letter in text]
        return list(prompt or ())

    def chosen(self, body: dict[str, Any], model: Model | None = None) -> list[tuple[int, dict[int, float]]]:
        tokens, found = self.tokens(body), []
        for _ in range(body["max_tokens"]):
            top = (model or self.model)(tokens)
            token = max(top, key=lambda one: top[one])
            found.append((token, top))
            tokens.append(token)
        return found

    @web.middleware
    async def answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        return await handler(request) if self.other is None else web.Response(body=self.other)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.seen.append(body)
        if self.trouble == "refused":
            return web.json_response({"error": {"type": "Unavailable", "message": "it is stopping"}}, status=503)
        chosen = self.chosen(body, await self._in_crowd(body))
        if not body.get("stream") and body.get("return_token_ids"):
            return web.json_response({"choices": [{"finish_reason": "length",
                                                   "token_ids": [token for token, _ in chosen]}]})
        if not body.get("stream"):
            return web.json_response({"choices": [{"finish_reason": "length", "logprobs": {
                "tokens": [f"token_id:{token}" for token, _ in chosen],
                "top_logprobs": [{f"token_id:{name}": value for name, value in top.items()} for _, top in chosen]}}]})
        self.open += 1
        self.most = max(self.most, self.open)
        if self.open == self.expects:
            self.full.set()
        try:
            return await self._stream(request, body, [token for token, _ in chosen])
        except asyncio.CancelledError:
            self.gone.set()
            raise
        finally:
            self.open -= 1

    async def _in_crowd(self, body: dict[str, Any]) -> Model | None:
        if self.crowded is None or not body.get("cache_salt", "").startswith("many"):
            return None
        self.waiting += 1
        if self.waiting >= self.crowd:
            self.together.set()
        await self.together.wait()
        return self.crowded

    async def _stream(self, request: web.Request, body: dict[str, Any], tokens: Sequence[int]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        chat = "messages" in body
        if chat:
            await _send(response, {"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        parts = [tokens[place:place + self.at_once] for place in range(0, len(tokens), self.at_once)]
        for number, part in enumerate(parts):
            if number and self.gate is not None:
                await self.gate.wait()
            if number and self.trouble == "event":
                await _send(response, {"error": {"type": "InternalServerError", "message": "the engine is gone"}})
                return response
            if number and self.trouble == "cut":
                assert request.transport is not None
                request.transport.abort()
                return response
            text = "".join(f"<{token}>" for token in part)
            said = {"delta": {"content": text}} if chat else {"text": text}
            named = {"token_ids": list(part)} if body.get("return_token_ids") else {}
            finish = "length" if number == len(parts) - 1 else None
            await _send(response, {"choices": [{**said, **named, "finish_reason": finish}]})
        if body.get("stream_options", {}).get("include_usage"):
            await _send(response, {"choices": [], "usage": {"prompt_tokens": len(self.tokens(body)),
                                                            "completion_tokens": len(tokens)}})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def tokenize(self, request: web.Request) -> web.Response:
        return web.json_response({"tokens": self.tokens(await request.json())})

    async def detokenize(self, request: web.Request) -> web.Response:
        return web.json_response({"prompt": "".join(f"<{token}>" for token in (await request.json())["tokens"])})


async def _well(request: web.Request) -> web.Response:
    return web.Response()


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(f"data: {json.dumps(event)}\n\n".encode())


@asynccontextmanager
async def fake_openai(model: Model, port: int = 0, **settings: Any) -> AsyncIterator[FakeOpenAI]:
    fake = FakeOpenAI(model=model, **settings)
    app = web.Application(middlewares=[fake.answered])
    app.router.add_post("/v1/completions", fake.complete)
    app.router.add_post("/v1/chat/completions", fake.complete)
    app.router.add_get("/health", _well)
    app.router.add_post("/tokenize", fake.tokenize)
    app.router.add_post("/detokenize", fake.detokenize)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True)
    await site.start()
    host, port = runner.addresses[0][:2]
    fake.url = f"http://{host}:{port}"
    try:
        yield fake
    finally:
        await runner.cleanup()

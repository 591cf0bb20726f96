"""A client of a server that speaks OpenAI's API, with a clock at every event. httpx alone: what is measured is when a
token arrives, and each library between the socket and the clock would be measured with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.foreign_json import parsed
from enginewright_builder.generate.answer import Answer, Reader, Step, server_error, steps
from enginewright_builder.generate.server import LOGPROBS, SERVED_NAME

CONNECT_SECONDS = 10.0
Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request. ``prompt`` is a text or its tokens, or messages where ``chat``. ``exact``: as many tokens as
    ``max_tokens``, whatever the model says of an end. Prompts of different ``salt`` share nothing of the prefix cache.
    Both are vLLM's own options, and so is that the server names tokens: what comes in one event may be several, as
    where it speculates, and some are no text."""

    prompt: str | tuple[int, ...] | tuple[Mapping[str, str], ...]
    max_tokens: int
    chat: bool = False
    exact: bool = False
    salt: str = ""

    def body(self, model: str) -> dict[str, Any]:
        prompt = self.prompt if isinstance(self.prompt, str) else list(self.prompt)
        return {"model": model, "messages" if self.chat else "prompt": prompt, "max_tokens": self.max_tokens,
                "temperature": 0.0, "stream": True, "stream_options": {"include_usage": True},
                "return_token_ids": True, **({"ignore_eos": True} if self.exact else {}),
                **({"cache_salt": self.salt} if self.salt else {})}


class Client:
    """An async context manager. ``limit_seconds`` is for a whole answer; at most ``connections`` are open.
    ``keep_connections``: a Service picks a replica for each connection, not for each request."""

    def __init__(self, url: str, *, model: str = SERVED_NAME, limit_seconds: float = 300.0,
                 connections: int = 1024, keep_connections: bool = True) -> None:
        self.url, self.model, self.limit_seconds = url, model, limit_seconds
        self._http = httpx.AsyncClient(
            base_url=url, trust_env=False, timeout=httpx.Timeout(limit_seconds, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=connections,
                                max_keepalive_connections=connections if keep_connections else 0))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self._http.aclose()

    async def stream(self, ask: Ask, due: float | None = None) -> Answer:
        """Never raises for what the server or the network does: that is the answer's ``error``."""
        reader = Reader(due=time.monotonic() if due is None else due, expected=ask.max_tokens if ask.exact else 0)
        path = "/v1/chat/completions" if ask.chat else "/v1/completions"
        try:
            async with self._http.stream("POST", path, json=ask.body(self.model)) as response:
                if response.is_error:
                    reader.error = f"HTTP {response.status_code}: {_problem(await response.aread())}"
                else:
                    async for line in response.aiter_lines():
                        reader.line(line, time.monotonic())
        except httpx.HTTPError as error:
            reader.error = reader.error or type(error).__name__
        return reader.answer(time.monotonic())

    async def decode(self, prompt: Sequence[int], max_tokens: int, *, past_end: bool = False,
                     salt: str = "") -> list[Step]:
        """The most likely continuation with its log-probabilities; at least one step. ``past_end``: also behind the
        token that ends a text. Prompts of different ``salt`` share nothing of the prefix cache. Raises
        :class:`UserError` ``ServerRefused`` and :class:`TransientError` ``ServerUnavailable``."""
        body = {"model": self.model, "prompt": list(prompt), "max_tokens": max_tokens, "temperature": 0.0,
                "logprobs": LOGPROBS, "return_tokens_as_token_ids": True, "ignore_eos": past_end,
                **({"cache_salt": salt} if salt else {})}
        found = await self._read("/v1/completions", body, lambda answer: steps(answer["choices"][0]["logprobs"]))
        if not found:
            raise self._refused("/v1/completions", "it answered without a token")
        return found

    async def choose(self, prompt: Sequence[int], max_tokens: int, salt: str) -> list[Step]:
        """As :meth:`decode` past the end of texts, without log-probabilities, which a server that computes nonsense
        cannot write. Prompts of different ``salt`` share nothing of the prefix cache. Raises as :meth:`decode` does."""
        body = {"model": self.model, "prompt": list(prompt), "max_tokens": max_tokens, "temperature": 0.0,
                "return_token_ids": True, "ignore_eos": True, "cache_salt": salt}
        found = await self._read("/v1/completions", body, lambda answer: _numbers(answer["choices"][0]["token_ids"]))
        if not found:
            raise self._refused("/v1/completions", "it answered without tokens")
        return [Step(token=token, top={}) for token in found]

    async def metrics(self) -> str:
        """The server's Prometheus page. Raises :class:`TransientError` ``ServerUnavailable``."""
        try:
            return (await self._http.get("/metrics")).raise_for_status().text
        except httpx.HTTPError as error:
            raise self._silent("/metrics", error) from error

    async def tokens(self, prompt: str | Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """Of a text, or of messages in the model's own template. Raises as :meth:`decode` does."""
        what = {"prompt": prompt} if isinstance(prompt, str) else {"messages": list(prompt),
                                                                   "add_generation_prompt": True}
        return await self._read("/tokenize", {"model": self.model, **what}, lambda answer: _numbers(answer["tokens"]))

    async def text(self, tokens: Sequence[int]) -> str:
        """Of these tokens. Raises as :meth:`decode` does."""
        return await self._read("/detokenize", {"model": self.model, "tokens": list(tokens)},
                                lambda answer: str(answer["prompt"]))

    async def _read(self, path: str, body: Mapping[str, Any], read: Callable[[Any], Found]) -> Found:
        """What ``read`` finds in the answer, which is a stranger's: whatever it stumbles over was refused."""
        content = await self._post(path, body)
        try:
            return read(parsed(content))
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            raise self._refused(path, f"it answered otherwise than vLLM ({type(error).__name__}: "
                                      f"{str(error)[:200]})") from error

    async def _post(self, path: str, body: Mapping[str, Any]) -> bytes:
        try:
            response = await self._http.post(path, json=body)
        except httpx.HTTPError as error:
            raise self._silent(path, error) from error
        if response.is_error:
            raise self._refused(path, f"HTTP {response.status_code}: {_problem(response.content)}")
        return response.content

    def _silent(self, path: str, error: httpx.HTTPError) -> TransientError:
        return TransientError("ServerUnavailable", f"the server at {self.url} does not answer {path}: "
                              f"{type(error).__name__}", remedy="read the server's own log")

    def _refused(self, path: str, problem: str) -> UserError:
        return UserError("ServerRefused", f"the server at {self.url} refused {path}: {problem}", field="spec.engine",
                         value=path, remedy="use a server image with OpenAI's API as vLLM has it")


def _numbers(tokens: Any) -> tuple[int, ...]:
    return tuple(map(int, tokens))


def _problem(content: bytes) -> str:
    try:
        found = parsed(content)
    except ValueError:
        return content[:200].decode(errors="replace")
    return server_error(found.get("error", found) if isinstance(found, dict) else found)

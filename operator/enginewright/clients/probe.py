"""Inference requests of the operator's own, to one replica at a time."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self, TypeVar, TypeVarTuple

from enginewright.clients.direct import DirectSession, metered
from enginewright.clients.pods import answered, body_of, refusal
from enginewright.clients.urls import pod_url
from enginewright.core.labels import HTTP_PORT
from enginewright.core.probe import ProbeError, Request, Tensor, read_answer

# Bytes. What is larger is not compared: that is done number by number.
LARGEST_ANSWER: Final = 1 << 20
# aiohttp's own default.
CONNECTIONS: Final = 100
# Of an answer of a language model.
TOKENS: Final = 4
_LENGTH: Final = re.compile(r"[0-9]{1,9}")
Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class ProbeClient:
    """``deadline`` is seconds for one request."""

    def __init__(self, *, deadline: float = 10.0) -> None:
        self._deadline = deadline
        self._session = DirectSession(metered(LARGEST_ANSWER, CONNECTIONS), headers={"Accept-Encoding": "identity"})
        self._apart = ThreadPoolExecutor(1, thread_name_prefix="probes")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._apart.shutdown(wait=False, cancel_futures=True)
        await self._session.close()

    async def apart(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """``function`` in a thread: the replica chooses how many numbers there are, and one at a time takes its turns
        with the loop that serves all objects."""
        return await asyncio.get_running_loop().run_in_executor(self._apart, functools.partial(function, *arguments))

    async def metadata(self, address: str, model: str, port: int = HTTP_PORT) -> Mapping[str, Any]:
        """Raises :class:`TransientError` when the replica does not answer, :class:`ProbeError` when not with what was
        asked for."""
        body, _ = await self._ask("GET", _url(address, port, model))
        try:
            found = await self.apart(json.loads, body or b"")
        except (ValueError, RecursionError) as error:
            raise ProbeError("its metadata is not JSON") from error
        if not isinstance(found, dict):
            raise ProbeError("its metadata is not a JSON object")
        return found

    async def infer(self, address: str, model: str, request: Request, port: int = HTTP_PORT
                    ) -> dict[str, Tensor] | None:
        """None for an answer of more than :data:`LARGEST_ANSWER`. Raises :class:`TransientError` and
        :class:`ProbeError` as above."""
        headers = {"Inference-Header-Content-Length": str(request.json_bytes),
                   "Content-Type": "application/octet-stream"}
        body, length = await self._ask("POST", _url(address, port, model, "infer"), request.body, headers)
        return None if body is None else await self.apart(read_answer, body, length)

    async def complete(self, address: str, model: str, prompt: str, port: int = HTTP_PORT) -> None:
        """Some tokens of a language model, by OpenAI's API, so many each time: one alone would have no time per token.
        Raises :class:`TransientError` and :class:`ProbeError`."""
        body = json.dumps({"model": model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0,
                           "ignore_eos": True}).encode()
        await self._ask("POST", pod_url(address, port, "v1", "completions"), body, {"Content-Type": "application/json"})

    async def _ask(
        self, method: str, url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[bytes | None, int | None]:
        """The body, None for one of more than :data:`LARGEST_ANSWER`, and how much of it is JSON where it says so."""
        async with (
            answered(self._deadline, f"{method} {url}"),
            self._session.request(method, url, data=data, headers=headers) as response,
        ):
            if response.status != 200:
                raise ProbeError(f"it {refusal(response.status)}")
            body = await body_of(response, LARGEST_ANSWER)
        length = _LENGTH.fullmatch(response.headers.get("Inference-Header-Content-Length", ""))
        return body, int(length[0]) if length else None


def _url(address: str, port: int, model: str, *more: str) -> str:
    return pod_url(address, port, "v2", "models", model, *more)

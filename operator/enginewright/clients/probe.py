"""Inference requests of the operator's own, to one replica at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final, Self

import aiohttp

from enginewright.clients.errors import TransientError
from enginewright.clients.urls import pod_url
from enginewright.core.labels import HTTP_PORT
from enginewright.core.probe import ProbeError, Request, Tensor, read_answer

# Bytes. What is larger is not compared: that is done number by number, in the loop that serves all objects.
LARGEST_ANSWER: Final = 1 << 20


class ProbeClient:
    """``deadline`` is seconds for one request."""

    def __init__(self, *, deadline: float = 10.0) -> None:
        self._deadline = deadline
        self._session = aiohttp.ClientSession(trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._session.close()

    async def metadata(self, address: str, model: str, port: int = HTTP_PORT) -> Mapping[str, Any]:
        """Raises :class:`TransientError` when the replica does not answer, :class:`ProbeError` when not with what was
        asked for."""
        body, _ = await self._ask("GET", _url(address, port, model))
        try:
            found = json.loads(body)
        except ValueError as error:
            raise ProbeError(f"its metadata is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise ProbeError("its metadata is no JSON object")
        return found

    async def infer(self, address: str, model: str, request: Request, port: int = HTTP_PORT
                    ) -> dict[str, Tensor] | None:  # fmt: skip
        """None for an answer of more than :data:`LARGEST_ANSWER`. Raises :class:`TransientError` and
        :class:`ProbeError` as above."""
        headers = {"Inference-Header-Content-Length": str(request.json_bytes),
                   "Content-Type": "application/octet-stream"}  # fmt: skip
        body, length = await self._ask("POST", f"{_url(address, port, model)}/infer", request.body, headers)
        return read_answer(body, length) if len(body) <= LARGEST_ANSWER else None

    async def _ask(
        self, method: str, url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[bytes, int | None]:
        call = f"{method} {url}"
        try:
            async with (
                asyncio.timeout(self._deadline),
                self._session.request(method, url, data=data, headers=headers) as response,
            ):
                body = await response.content.read(LARGEST_ANSWER)
                while not response.content.at_eof() and len(body) <= LARGEST_ANSWER:
                    body += await response.content.read(LARGEST_ANSWER)
                length = response.headers.get("Inference-Header-Content-Length")
                if response.status != 200:
                    said = body[:300].decode("utf-8", "replace")
                    raise ProbeError(f"it answered {response.status}: {said}")
        except TimeoutError as error:
            raise TransientError(f"no answer within {self._deadline:g} s", call=call) from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransientError(f"{type(error).__name__}: {error}", call=call) from error
        return body, int(length) if length and length.isdigit() else None


def _url(address: str, port: int, model: str) -> str:
    return pod_url(address, port, f"/v2/models/{model}")

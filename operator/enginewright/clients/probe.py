"""Inference requests of the operator's own, to one replica at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from enginewright.clients.pods import PodClient, answered, body_of
from enginewright.clients.urls import pod_url
from enginewright.core.labels import HTTP_PORT
from enginewright.core.probe import ProbeError, Request, Tensor, read_answer

# Bytes. What is larger is not compared: that is done number by number, in the loop that serves all objects.
LARGEST_ANSWER: Final = 1 << 20
# aiohttp's own default.
CONNECTIONS: Final = 100


class ProbeClient(PodClient):
    """``deadline`` is seconds for one request."""

    def __init__(self, *, deadline: float = 10.0) -> None:
        super().__init__(deadline=deadline, connections=CONNECTIONS)

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
        async with (
            answered(self._deadline, f"{method} {url}"),
            self._session.request(method, url, data=data, headers=headers) as response,
        ):
            body = await body_of(response, LARGEST_ANSWER)
            length = response.headers.get("Inference-Header-Content-Length")
            if response.status != 200:
                said = body[:300].decode("utf-8", "replace")
                raise ProbeError(f"it answered {response.status}: {said}")
        return body, int(length) if length and length.isdigit() else None


def _url(address: str, port: int, model: str) -> str:
    return pod_url(address, port, f"/v2/models/{model}")

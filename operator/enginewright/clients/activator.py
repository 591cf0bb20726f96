"""How many requests an activator holds, read from its metrics: a long poll, so that the first one is known at once."""

from __future__ import annotations

import asyncio
from typing import Final, Self

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from enginewright.clients.errors import TransientError
from enginewright.clients.signals import NoSignalError
from enginewright.clients.urls import pod_url
from enginewright.core.labels import METRICS_PORT

PENDING: Final = "enginewright_activator_pending"


class ActivatorClient:
    """``deadline`` is seconds that an answer may take beyond those that it was asked to wait for a request."""

    def __init__(self, *, deadline: float = 0.8) -> None:
        self._deadline = deadline
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._session.close()

    async def held(self, address: str, wait: float = 0.0, port: int = METRICS_PORT) -> float:
        """Requests that are held: as soon as there is one, after ``wait`` seconds at the latest. Raises
        :class:`TransientError` without an answer, :class:`NoSignalError` where it does not tell."""
        url = pod_url(address, port, "/metrics")
        try:
            async with (
                asyncio.timeout(wait + self._deadline), self._session.get(url, params={"wait": f"{wait:g}"}) as answer
            ):  # fmt: skip
                if answer.status != 200:
                    raise TransientError(f"answered {answer.status}", call=f"GET {url}", status=answer.status)
                page = await answer.text()
        except TimeoutError as error:
            raise TransientError(f"no answer within {wait + self._deadline:g} s", call=f"GET {url}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransientError(f"{type(error).__name__}: {error}", call=f"GET {url}") from error
        return _pending(page, url)


def _pending(page: str, url: str) -> float:
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                if sample.name == PENDING:
                    return float(sample.value)
    except ValueError as error:
        raise NoSignalError(f"metrics cannot be parsed: {error}", call=f"GET {url}") from error
    raise NoSignalError(f"no {PENDING} in the metrics", call=f"GET {url}")

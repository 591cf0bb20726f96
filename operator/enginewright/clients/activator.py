"""How many requests an activator holds, read from its metrics: a long poll, so that the first one is known at once."""

from __future__ import annotations

from typing import Final

from enginewright.clients.gets import PageClient
from enginewright.clients.page import samples
from enginewright.clients.signals import NoSignalError
from enginewright.clients.urls import pod_url
from enginewright.core.labels import METRICS_PORT

PENDING: Final = "enginewright_activator_pending"
# Bytes. An activator's page has some 4,000.
LARGEST_PAGE: Final = 64 << 10


class ActivatorClient(PageClient):
    """``deadline`` is seconds that an answer may take beyond those that it was asked to wait for a request."""

    def __init__(self, *, deadline: float = 0.8) -> None:
        super().__init__(deadline=deadline, largest=LARGEST_PAGE)

    async def held(self, address: str, wait: float = 0.0, port: int = METRICS_PORT) -> float:
        """Requests that are held: as soon as there is one, after ``wait`` seconds at the latest. Raises
        :class:`TransientError` without an answer, :class:`NoSignalError` where it does not tell."""
        url = pod_url(address, port, "metrics")
        page = await self._page(f"{url}?wait={wait:g}", wait=wait)
        found = next(samples(page, {PENDING}), None)
        if found is None:
            raise NoSignalError(f"no {PENDING} in the metrics", call=f"GET {url}")
        return found.value

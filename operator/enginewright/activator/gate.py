"""Where requests wait until a replica is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

PERIOD: Final = 0.2
# So long a replica that was found ready is believed to be.
FRESH: Final = 1.0


class LateError(Exception):
    """No replica was ready in time."""


class Gate:
    """``ready`` asks whether a replica is; it is called only while a request waits, every :data:`PERIOD` seconds."""

    def __init__(self, ready: Callable[[], Awaitable[bool]]) -> None:
        self._ready = ready
        self._waiting: set[asyncio.Future[None]] = set()
        self._somebody = asyncio.Event()
        self._open_until = 0.0
        self._asking: asyncio.Task[None] | None = None

    @property
    def pending(self) -> int:
        return len(self._waiting)

    async def somebody_waits(self, seconds: float) -> None:
        """Returns as soon as one does, after ``seconds`` at the latest."""
        try:
            async with asyncio.timeout(seconds):
                await self._somebody.wait()
        except TimeoutError:
            return

    def shut(self) -> None:
        """A replica that was found ready is not to be reached."""
        self._open_until = 0.0

    async def passed(self, deadline: float) -> None:
        """Returns when a replica is ready. Raises :class:`LateError` at ``deadline``, on the event loop's clock."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._open_until:
            return
        place: asyncio.Future[None] = loop.create_future()
        self._waiting.add(place)
        self._somebody.set()
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(), name="gate")
        try:
            async with asyncio.timeout_at(deadline):
                await place
        except TimeoutError as error:
            raise LateError from error
        finally:
            self._waiting.discard(place)
            if not self._waiting:
                self._somebody.clear()

    async def _ask(self) -> None:
        while self._waiting:
            if await self._ready():
                self._open_until = asyncio.get_running_loop().time() + FRESH
                for place in self._waiting:
                    if not place.done():
                        place.set_result(None)
                return
            await asyncio.sleep(PERIOD)

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})

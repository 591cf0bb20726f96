"""To wait for a moment, or until something happens that cannot wait for it."""

from __future__ import annotations

import asyncio


class Bell:
    """For one task that waits. An event with a timeout would cost several times as much: each time that its time is
    over it cancels the task, and raises two exceptions."""

    def __init__(self) -> None:
        self._rung = False
        self._waiting: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self._rung = True
        self._wake()

    async def within(self, seconds: float) -> bool:
        """Whether it has been rung, since the last time, before ``seconds`` were over."""
        if not self._rung:
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            timer = loop.call_later(seconds, self._wake)
            try:
                await self._waiting
            finally:
                timer.cancel()
        rung, self._rung = self._rung, False
        return rung

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

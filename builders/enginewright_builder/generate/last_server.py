"""The server that was used last. It runs until another configuration needs the device, or the build has measured all:
what is measured of it next takes no new start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AsyncExitStack, asynccontextmanager

from enginewright_builder.running import Running


class LastServer:
    """``aclose`` ends it; safe to call twice."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._running: tuple[Hashable, Running] | None = None

    @asynccontextmanager
    async def of(self, configuration: Hashable, make: Callable[[], Running]) -> AsyncIterator[Running]:
        """A server of this configuration: the last one where that has the same, else one from ``make``. It ends where
        the block raises: who knows what state it is in. Raises what its start does."""
        if self._running is None or self._running[0] != configuration:
            await self.aclose()
            self._running = configuration, await self._stack.enter_async_context(make())
        try:
            yield self._running[1]
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        self._running = None
        await self._stack.aclose()

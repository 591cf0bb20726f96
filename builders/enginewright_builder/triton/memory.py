"""What a tritonserver takes of memory from its start to the load that it is shipped for: the figures that a pod's
resources are made of.

The kernel's figure for a container, ``memory.peak``, would also count the builder beside the server and every file that
was ever read. So the server's processes are looked at several times a second, and each process's own high-water mark
tells of what passed between two looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from enginewright_builder.contract import MemoryFigures
from enginewright_builder.load import Channels, Progress, Request, closed_loop
from enginewright_builder.triton.client import Server, Usage

LOOK_SECONDS = 0.1
# The load goes on until the peak has not risen by more than this share for so long: arenas grow with each new shape. By
# then as many rounds of the requests in flight have been answered.
RISEN, STEADY_SECONDS, LEAST_SECONDS, ROUNDS = 0.01, 2.0, 3.0, 2
CALL_TIMEOUT = 60.0


@dataclass
class _Most:
    """Of all looks so far; ``since`` is when ``resident`` last rose by more than :data:`RISEN`."""

    resident: int = 0
    held: int = 0
    device: int | None = None
    pinned: int | None = None
    since: float = 0.0
    marked: int = 0

    def note(self, seen: Usage, now: float) -> None:
        if seen.memory.resident > self.marked * (1 + RISEN):
            self.marked, self.since = seen.memory.resident, now
        self.resident, self.held = max(self.resident, seen.memory.resident), max(self.held, seen.memory.held)
        self.device, self.pinned = _larger(self.device, seen.device), _larger(self.pinned, seen.pinned)


class MemoryWatch:
    """Looks at ``server``, which has no model loaded yet, while its block runs; :attr:`figures` at the end of it.
    ``empty`` is what it took when it had loaded nothing ever, where that was before."""

    def __init__(self, server: Server, empty: Usage | None = None) -> None:
        self._server, self._most = server, _Most()
        self._empty, self._begin, self._loaded = empty, Usage(), Usage()
        self._concurrency = 0
        self._cores: float | None = None
        self._looking: asyncio.Task[None] | None = None
        self.figures: MemoryFigures | None = None

    async def __aenter__(self) -> Self:
        self._begin = await self._server.usage()
        self._looking = asyncio.create_task(self._keep_looking())
        return self

    async def loaded(self) -> None:
        """To be called once the model is loaded, warm, and has answered."""
        self._loaded = await self._look()

    async def under_load(self, requests: Sequence[Request], *, concurrency: int, most_seconds: float) -> None:
        """``concurrency`` requests in flight until memory no longer grows, for ``most_seconds`` at most. One that
        nothing answers leaves no figures of a load."""
        before, began = await self._look(), time.monotonic()

        def enough(seen: Progress) -> bool:
            return seen.measured >= ROUNDS * concurrency and self._steady(began)

        async with Channels(self._server.grpc_url, count=min(4, concurrency)) as channels:
            result = await closed_loop(channels, requests, concurrency=concurrency, seconds=most_seconds,
                                       timeout=CALL_TIMEOUT, enough=enough)
        after, seconds = await self._look(), time.monotonic() - began
        if not result.measured:
            return
        self._concurrency = concurrency
        if before.cpu_seconds is not None and after.cpu_seconds is not None:
            self._cores = max(0.0, after.cpu_seconds - before.cpu_seconds) / seconds

    def _steady(self, began: float) -> bool:
        now = time.monotonic()
        return now - began >= LEAST_SECONDS and now - self._most.since >= STEADY_SECONDS

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        if error is None:
            self.figures = self._figures(await self._look())

    def _figures(self, last: Usage) -> MemoryFigures | None:
        most, empty = self._most, self._empty or self._begin
        if not most.resident and most.device is None:
            return None
        # A server that had other models before has the high-water mark of those as well.
        spike = max(0, last.spike - self._begin.spike)
        return MemoryFigures(
            seen=self._server.seen_by, empty_bytes=empty.memory.resident,
            loaded_bytes=self._loaded.memory.resident,
            peak_bytes=max(most.resident, last.memory.resident + spike),
            held_bytes=most.held, concurrency=self._concurrency,
            cores=None if self._cores is None else round(self._cores, 2),
            device_empty_bytes=empty.device, device_loaded_bytes=self._loaded.device,
            device_peak_bytes=most.device, pinned_bytes=most.pinned, pinned_pool_bytes=last.pinned_pool)

    async def _keep_looking(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> Usage:
        seen = await self._server.usage()
        self._most.note(seen, time.monotonic())
        return seen


def _larger(known: int | None, seen: int | None) -> int | None:
    return seen if known is None else known if seen is None else max(known, seen)

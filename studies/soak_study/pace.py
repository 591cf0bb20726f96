"""Deeds at a steady pace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


async def paced(period: float, at_once: int, enough: Callable[[], bool], deed: Callable[[], Awaitable[None]]) -> None:
    """Begins ``deed`` every ``period`` seconds until it is enough, and returns when all have ended. A deed waits while
    ``at_once`` are under way; those that are late then follow without a pause."""
    room, due = asyncio.Semaphore(at_once), time.monotonic()

    async def one() -> None:
        try:
            await deed()
        finally:
            room.release()

    async with asyncio.TaskGroup() as group:
        while not enough():
            await room.acquire()
            group.create_task(one())
            due += period
            await asyncio.sleep(due - time.monotonic())

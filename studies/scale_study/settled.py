"""Waiting, and doing many things at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

MAKERS: Final = 16


async def until(condition: Callable[[], bool], patience: float, what: str) -> None:
    """Raises :class:`RuntimeError`, which names ``what`` was waited for, after ``patience`` seconds."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"after {patience:g} s still waiting: {what}")
        await asyncio.sleep(0.1)


async def at_once(jobs: Sequence[Callable[[], Awaitable[Any]]]) -> None:
    waiting = list(reversed(jobs))

    async def work() -> None:
        while waiting:
            await waiting.pop()()

    async with asyncio.TaskGroup() as group:
        for _ in range(MAKERS):
            group.create_task(work())

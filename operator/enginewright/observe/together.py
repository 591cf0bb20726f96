"""Several reads: at once, or one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def together(*reads: Coroutine[Any, Any, Any]) -> list[Any]:
    """All results; the first failure cancels the other reads, so that none outlives its pass, and is raised alone."""
    if len(reads) <= 1:  # a task would cost as much as some of them
        return [await read for read in reads]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(read) for read in reads]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def in_turn(*reads: Coroutine[Any, Any, Any]) -> list[Any]:
    """As :func:`together`, one read after the other: reads that need not wait are over before any other task runs."""
    try:
        return [await read for read in reads]
    finally:
        for read in reads:
            read.close()

"""Several reads at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def together(*reads: Coroutine[Any, Any, Any]) -> list[Any]:
    """All results; the first failure cancels the other reads, so that none outlives its pass, and is raised alone."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(read) for read in reads]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]

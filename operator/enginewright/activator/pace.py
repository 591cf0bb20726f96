"""How slowly a client may send: one that sends nothing must not keep a place from others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from enginewright.activator.gate import LateError

# A client has so long to begin, and on the whole sends at least so many bytes a second after that.
GRACE: Final = 5.0
RATE: Final = 16 << 10
T = TypeVar("T")


class SlowError(Exception):
    """The client sent too little for too long."""


def due(started: float, received: int) -> float:
    """The moment by which more must come from a client that began at ``started`` and has sent ``received`` bytes."""
    return started + GRACE + received / RATE


async def in_time(read: Awaitable[T], by: float, deadline: float) -> T:
    """What ``read`` returns. Raises :class:`SlowError` at ``by``, or :class:`LateError` at an earlier ``deadline``."""
    try:
        async with asyncio.timeout_at(min(by, deadline)):
            return await read
    except TimeoutError as error:
        raise (LateError if deadline <= by else SlowError) from error

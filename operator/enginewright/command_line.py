"""What the commands that run for long share: kinds of arguments, and an end at a signal."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Final

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


def positive(text: str) -> int:
    """As argparse wants a type: raises ``ValueError`` or its own error."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not 1 or more")
    return value


async def until_signalled(run: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """``run``, with an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run(stop)

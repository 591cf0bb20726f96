"""The event loop that measurements run on."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_on_time(work: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` on a loop that wakes up when it is asked to.

    The usual one sleeps by epoll, in whole milliseconds rounded up: each request of an open loop would be sent half a
    millisecond late on average, and as latency counts from when it was due, would be said to have taken that much
    longer. ``select`` sleeps by the microsecond. It takes file descriptors below 1024 alone: gRPC has its connections
    elsewhere, so this loop holds a handful, which are opened first.
    """
    with asyncio.Runner(loop_factory=_precise_loop) as runner:
        return runner.run(work)


def _precise_loop() -> asyncio.SelectorEventLoop:
    return asyncio.SelectorEventLoop(selectors.SelectSelector())

"""Calls from another thread into an event loop, in the order in which they were made, many at a time: each wake-up of
the loop costs both threads a switch, and a busy cluster has hundreds of events a second."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

# So many calls, then the loop gets to other work.
AT_ONCE: Final = 64


class HandOver:
    """Into ``loop``. Once the loop has ended, calls are dropped."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        # Whether the loop has been woken and has not begun since. Set by the other thread after it has appended, and
        # cleared by the loop before it looks, so that no call is left behind.
        self._woken = False

    def over(self, call: Callable[..., None]) -> Callable[..., None]:
        """``call`` in the loop, for another thread to call."""
        def hand_over(*arguments: Any) -> None:
            self._waiting.append((call, arguments))
            if not self._woken:
                self._woken = True
                self._wake()

        return hand_over

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._take)
        except RuntimeError:  # it has ended
            self._waiting.clear()
            self._woken = False

    def _take(self) -> None:
        """What a call raises goes to the loop's handler, as of any callback; the calls after it follow."""
        self._woken = False
        try:
            for _ in range(min(AT_ONCE, len(self._waiting))):
                call, arguments = self._waiting.popleft()
                call(*arguments)
        finally:
            if self._waiting and not self._woken:
                self._woken = True
                self._loop.call_soon(self._take)

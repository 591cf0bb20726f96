"""The work queue: each key at most once in it and at most once in work, however many events say its name.

Three sets in the manner of Kubernetes' own controllers. A key that is added while it is in work runs once more
afterwards, so nothing that happened during a pass is missed. For the event loop's thread only.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from enginewright.core.backoff import Backoff

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """``chance`` is for tests; delays run on the event loop's clock."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._ready: deque[K] = deque()
        self._dirty: set[K] = set()
        self._working: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._wakeup = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def delayed(self) -> int:
        return len(self._timers)

    def add(self, key: K) -> None:
        """Work on ``key`` as soon as a worker is free; once more when it is in work now."""
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._working:
            self._push(key)

    def add_after(self, key: K, delay: float) -> None:
        """Work on ``key`` in ``delay`` seconds, or at the time that was set before if that is earlier."""
        if delay <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + delay
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(due, self._ring, key)

    def retry(self, key: K, backoff: Backoff, at_least: float = 0.0) -> float:
        """Work on ``key`` again after a delay that grows with its failures in a row; returns the delay. ``at_least`` is
        what the server asked for."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = max(at_least, backoff.jittered(failures, self._chance))
        self.add_after(key, delay)
        return delay

    def succeeded(self, key: K) -> None:
        """The next failure is the first again."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key; the caller works on it and then calls :meth:`done`. Its timer is dropped: the pass looks at
        everything and sets a new one."""
        while not self._ready:
            self._wakeup.clear()
            await self._wakeup.wait()
        key = self._ready.popleft()
        self._dirty.discard(key)
        self._working.add(key)
        self._drop_timer(key)
        return key

    def done(self, key: K) -> None:
        self._working.discard(key)
        if key in self._dirty:
            self._push(key)

    def forget(self, key: K) -> None:
        """The object is gone: no delays, no count of failures."""
        self._drop_timer(key)
        self._failures.pop(key, None)

    def close(self) -> None:
        for key in list(self._timers):
            self._drop_timer(key)

    def _push(self, key: K) -> None:
        self._ready.append(key)
        self._wakeup.set()

    def _ring(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _drop_timer(self, key: K) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

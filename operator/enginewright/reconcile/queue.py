"""The work queue: each key at most once in it and at most once in work, however many events say its name.

Three sets in the manner of Kubernetes' own controllers. A key that is added while it is in work runs once more
afterwards, so nothing that happened during a pass is missed. Keys wait in lanes, by why they were added. Queues that
rise, behind which requests wait, have workers of their own, so that neither a thousand of them nor a thousand rollouts
stop the other: a turn would come only when a worker is free, and a pass that looks at all children takes long. The
other lanes take turns.
For the event loop's thread only.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Hashable
from enum import IntEnum
from typing import Final, Generic, TypeVar

from enginewright.core.backoff import Backoff

K = TypeVar("K", bound=Hashable)


class Lane(IntEnum):
    """Why a key waits. One that was added for several reasons waits in all of their lanes, until the first of them
    comes to it."""

    ASKED = 0  # its spec has not been looked at yet
    NEWS = 1  # something has happened to it, or was to be looked at now
    SCALING = 2  # its queue asks for other replicas
    ROUTINE = 3  # a resync


TURNS: Final = (Lane.ASKED, Lane.NEWS, Lane.ROUTINE)


class WorkQueue(Generic[K]):
    """``chance`` is for tests; delays run on the event loop's clock."""

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._ready: tuple[OrderedDict[K, None], ...] = tuple(OrderedDict() for _ in Lane)
        self._turn = 0
        self._dirty: dict[K, set[Lane]] = {}
        self._working: set[K] = set()
        # Of these the ones that waited for their queues.
        self._hurried: set[K] = set()
        self._timers: dict[K, tuple[asyncio.TimerHandle, Lane]] = {}
        self._failures: dict[K, int] = {}
        self._wakeup, self._rise = asyncio.Event(), asyncio.Event()

    def __len__(self) -> int:
        return len(self._dirty.keys() - self._working)

    def waits(self, key: K) -> bool:
        """For a free worker."""
        return key in self._dirty and key not in self._working

    def waiting(self, lane: Lane) -> int:
        """How many keys wait in ``lane``."""
        return len(self._ready[lane])

    @property
    def rising(self) -> int:
        """How many keys wait, or are in work, because their queues ask for other replicas."""
        return len(self._ready[Lane.SCALING]) + len(self._hurried)

    @property
    def delayed(self) -> int:
        return len(self._timers)

    def add(self, key: K, lane: Lane = Lane.NEWS) -> None:
        """Work on ``key`` as soon as a worker is free; once more when it is in work now."""
        if lane is Lane.SCALING and key in self._hurried:
            # The pass answers that queue. Where it does not, the next reading says so again. One that began for another
            # reason may have looked before the queue rose.
            lane = Lane.NEWS
        lanes = self._dirty.setdefault(key, set())
        if lane not in lanes:
            lanes.add(lane)
            if key not in self._working:
                self._push(key, lane)

    def add_after(self, key: K, delay: float, lane: Lane = Lane.NEWS) -> None:
        """Work on ``key`` in ``delay`` seconds, or at the time that was set before if that is earlier."""
        if delay <= 0:
            self.add(key, lane)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + delay
        if key in self._timers:
            timer, before = self._timers[key]
            if timer.when() <= due:
                return
            timer.cancel()
            lane = min(lane, before)
        self._timers[key] = loop.call_at(due, self._ring, key), lane

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
        """The next key that waits in another lane than that of queues that rise. The caller works on it and then calls
        :meth:`done`. Its timer is dropped: the pass looks at everything and sets a new one."""
        while not any(self._ready[lane] for lane in TURNS):
            self._wakeup.clear()
            await self._wakeup.wait()
        while not self._ready[TURNS[self._turn]]:
            self._turn = (self._turn + 1) % len(TURNS)
        lane = TURNS[self._turn]
        self._turn = (self._turn + 1) % len(TURNS)
        return self._take(lane)

    async def get_rising(self) -> K:
        """As :meth:`get`, the next key whose queue asks for other replicas."""
        while not self._ready[Lane.SCALING]:
            self._rise.clear()
            await self._rise.wait()
        return self._take(Lane.SCALING)

    def _take(self, lane: Lane) -> K:
        key = next(iter(self._ready[lane]))
        lanes = self._dirty.pop(key)
        for one in lanes:
            del self._ready[one][key]
        self._working.add(key)
        if Lane.SCALING in lanes:
            self._hurried.add(key)
        self._drop_timer(key)
        return key

    def done(self, key: K) -> None:
        self._working.discard(key)
        self._hurried.discard(key)
        for lane in self._dirty.get(key, ()):
            self._push(key, lane)

    def forget(self, key: K) -> None:
        """The object is gone: no delays, no count of failures."""
        self._drop_timer(key)
        self._failures.pop(key, None)

    def close(self) -> None:
        for key in list(self._timers):
            self._drop_timer(key)

    def _push(self, key: K, lane: Lane) -> None:
        self._ready[lane][key] = None
        (self._rise if lane is Lane.SCALING else self._wakeup).set()

    def _ring(self, key: K) -> None:
        _, lane = self._timers.pop(key)
        self.add(key, lane)

    def _drop_timer(self, key: K) -> None:
        if key in self._timers:
            self._timers.pop(key)[0].cancel()

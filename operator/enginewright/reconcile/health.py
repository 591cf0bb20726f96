"""Is this process doing its work? Asked by the kubelet, which restarts it when not.

Idle is healthy, and so is an apiserver that is away for a while: a restart would not bring it back. What a restart does
mend is reported as unhealthy: an event loop or a pass that hangs, a watch that ended without anyone noticing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

BEAT: Final = 0.5


@dataclass(frozen=True)
class HealthLimits:
    """Seconds."""

    loop_lag: float = 10.0
    oldest_pass: float = 300.0
    resync_age: float = 3600.0
    watchers_missing: float = 60.0


@dataclass(frozen=True)
class Watching:
    """``expected`` and ``present`` name watched resources; ``alive`` is whether the watching thread runs."""

    alive: bool
    expected: frozenset[str]
    present: frozenset[str]

    @property
    def missing(self) -> Collection[str]:
        return sorted(self.expected - self.present)


class Health:
    """``last_resync`` gives the monotonic time of the last good resync, None before the first."""

    def __init__(
        self, *, watching: Callable[[], Watching], oldest_pass: Callable[[], float],
        last_resync: Callable[[], float | None], limits: HealthLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watching = watching
        self._oldest_pass = oldest_pass
        self._last_resync = last_resync
        self._limits = limits or HealthLimits()
        self._clock = clock
        self._started = self._whole_since = clock()
        self._stands_by = False
        self.lag = 0.0

    @contextlib.contextmanager
    def standing_by(self) -> Iterator[None]:
        """For the length of the block nothing is watched, and that is right: ready to take over is ready."""
        self._stands_by = True
        try:
            yield
        finally:
            self._stands_by = False
            self._started = self._whole_since = self._clock()

    async def beat(self) -> None:
        """Forever: measures how late the event loop is, and whether all watches are there."""
        while True:
            slept = self._clock()
            await asyncio.sleep(BEAT)
            self.tick(self._clock() - slept - BEAT)

    def tick(self, lag: float) -> None:
        """One measurement. The lag decays, so that one late beat is seen by the next probe and then forgotten."""
        self.lag = max(lag, self.lag * 0.8)
        if not self._watching().missing:
            self._whole_since = self._clock()

    def problems(self) -> list[str]:
        """Why the process should be restarted; empty when it should not."""
        if self._stands_by:
            return []
        now, limits, watching = self._clock(), self._limits, self._watching()
        found = []
        if self.lag > limits.loop_lag:
            found.append(f"the event loop is {self.lag:.1f} s late")
        if (oldest := self._oldest_pass()) > limits.oldest_pass:
            found.append(f"a pass has run for {oldest:.0f} s")
        if not watching.alive:
            found.append("the watching thread has ended")
        if watching.missing and now - self._whole_since > limits.watchers_missing:
            found.append(f"no watch on {', '.join(watching.missing)}")
        if now - (self._last_resync() or self._started) > limits.resync_age:
            found.append(f"no full resync for {limits.resync_age:.0f} s")
        return found

    def unready(self) -> list[str]:
        """Why the operator does not do its work yet, or not any more."""
        found = self.problems()
        if self._stands_by:
            return found
        watching = self._watching()
        if watching.missing:
            found.append(f"not watching yet: {', '.join(watching.missing)}")
        if self._last_resync() is None:
            found.append("the first resync is not done")
        return found

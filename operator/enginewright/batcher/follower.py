"""Follows one replica: each look reads what it counted since the last, asks the rule, and loads what that chose.

What goes wrong ends at the default, which is what the build proved: a load that fails, a server that restarts, a
replica that cannot be read. Nothing of it may end the container, as a pod is ready only while all its containers run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

import structlog

from enginewright.batcher.tally import Tally
from enginewright.clients.errors import ClientError
from enginewright.clients.signals import ReplicaMetrics
from enginewright.core.batching import SafeSet, Setting, begin, follow, loaded, refused, restart, server_lost
from enginewright.core.batching.follow import Phase
from enginewright.core.batching.safe import MICROSECONDS
from enginewright.core.labels import HTTP_PORT, METRICS_PORT
from enginewright.core.observed import Spent

# The pod's own network: nothing that is asked or told leaves it.
HOST: Final = "127.0.0.1"
# Seconds between two tries to load what the rule wants, after one that failed.
RETRY: Final = 5.0
# And between two times that the server is asked what it has: a load that came too late to be waited for may yet come.
CHECK: Final = 60.0
log = structlog.get_logger(__name__)


class Scraping(Protocol):
    async def scrape(self, address: str, port: int) -> ReplicaMetrics: ...


class Controlling(Protocol):
    async def apply(self, address: str, model: str, setting: Setting, port: int) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Told:
    """``setting`` is what the replica is known to serve with, None while that is not known; ``trouble`` why not."""

    setting: Setting | None
    default: Setting
    phase: Phase
    why: str
    trouble: str


class Follower:
    """Of the replica on this host that serves ``model``. ``clock`` is monotonic, in seconds."""

    def __init__(self, model: str, safe: SafeSet, control: Controlling, metrics: Scraping, tally: Tally,
                 clock: Callable[[], float], *, http_port: int = HTTP_PORT, metrics_port: int = METRICS_PORT
                 ) -> None:
        self._model, self._safe, self._clock, self._tally = model, safe, clock, tally
        self._control, self._metrics = control, metrics
        self._http_port, self._metrics_port = http_port, metrics_port
        self._state = begin(clock(), safe)
        self._in_force: Setting | None = None
        self._before: tuple[float, Spent] | None = None
        self._blind, self._ask, self._trouble = False, 0.0, ""
        self._failed = False  # the last load did

    def told(self) -> Told:
        return Told(setting=self._in_force, default=self._safe.default, phase=self._state.phase, why=self._state.why,
                    trouble=self._trouble)

    async def look(self) -> None:
        """A client's errors are returned, not raised."""
        spent = await self._spent()
        now = self._clock()
        before, settled = self._state, self._in_force == self._state.setting
        self._state = follow(before, now, spent if settled else None, self._safe)
        if (before.setting, before.phase) != (self._state.setting, self._state.phase):
            log.info("batching", setting=str(self._state.setting), phase=self._state.phase, why=self._state.why)
        if not self._blind and (now >= self._ask or (settled and self._state.setting != before.setting)):
            await self._apply()
        self._tally.show(self._in_force, self._state.phase)

    def begin_anew(self) -> None:
        """From the default, whatever was found out."""
        self._state, self._before = restart(self._state, self._clock(), self._safe), None
        self._forget()

    async def _spent(self) -> Spent | None:
        """Since the look before; None where that is unknown."""
        try:
            seen = await self._metrics.scrape(HOST, self._metrics_port)
        except ClientError as error:
            self._say(str(error))
            # It may come back as another process, with the configuration of its files.
            self._blind = True
            self._forget()
            return None
        now, waited = self._clock(), seen.queued_for / MICROSECONDS
        spent = Spent(0.0, sum(seen.successes.values()), waited, seen.busy / MICROSECONDS - waited, seen.executions)
        known, self._before, self._blind = self._before, (now, spent), False
        if known is None:
            return None
        grown = (spent + Spent(seconds=now - known[0])).since(known[1])
        if grown is None:
            self._lost(now)
        return grown

    def _lost(self, now: float) -> None:
        """Counters that fell are of another process. One that ended while something was tried, or after a load that
        failed, also of the default, may have ended of it."""
        self._forget()
        if self._state.phase == "trial" or self._failed:
            self._failed = False
            self._state = server_lost(self._state, now, "the server ended while it loaded or tried another setting",
                                      self._safe)
        else:
            self._state = restart(self._state, now, self._safe)
        log.warning("the server restarted", closed=self._state.closed > now)

    async def _apply(self) -> None:
        wanted, began = self._state.setting, self._clock()
        try:
            changed = await self._control.apply(HOST, self._model, wanted, self._http_port)
        except ClientError as error:
            now = self._clock()
            self._in_force, self._ask, self._failed = None, now + RETRY, True
            self._say(str(error))
            if self._state.phase == "trial":
                self._tally.failed()
                self._state = refused(self._state, now, f"{wanted} could not be loaded: {error.message}", self._safe)
                log.warning("batching", setting=str(self._state.setting), phase=self._state.phase, why=self._state.why)
            return
        now = self._clock()
        self._in_force, self._ask, self._failed = wanted, now + CHECK, False
        self._say("")
        if changed:
            self._tally.loaded(self._state.phase)
            # As long as it takes here: a busy node is slower than the build's.
            self._safe = replace(self._safe, load_seconds=max(self._safe.load_seconds, now - began))
            self._state = loaded(self._state, now, self._safe)
            log.info("batching is in force", setting=str(wanted), seconds=round(now - began, 3))

    def _forget(self) -> None:
        """The server is asked what it has before anything is concluded."""
        self._in_force, self._ask = None, 0.0

    def _say(self, trouble: str) -> None:
        """Once, not at each look."""
        if trouble and trouble != self._trouble:
            log.info("cannot read the server", error=trouble)
        self._trouble = trouble

"""Keeps what the operator remembers right, whatever its watches have missed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import structlog

from enginewright.clients.errors import ClientError
from enginewright.observe.memory import Memory
from enginewright.reconcile.metrics import Metrics
from enginewright.reconcile.rounds import rounds

# Seconds after the first list. kopf makes a list of its own at about that time, and tells of no deletion between them.
SOON: Final = 30.0
log = structlog.get_logger(__name__)


class Healer:
    """``period`` is seconds between comparisons."""

    def __init__(self, memory: Memory, metrics: Metrics, period: float,
                 chance: Callable[[], float] = random.random) -> None:
        self._memory = memory
        self._metrics = metrics
        self._period = period
        self._chance = chance
        self._wait = min(SOON, period)

    async def run(self) -> None:
        """Forever: at once, soon after, then every period; sooner after a failure. Passes read from the apiserver what
        could not be listed."""
        await rounds(self._compare, self._failed, self._chance)

    async def _compare(self) -> float:
        self._metrics.missed.labels("vanished").inc(await self._memory.heal())
        wait, self._wait = self._wait, self._period
        return wait

    def _failed(self, error: ClientError, wait: float) -> None:
        log.warning("could not compare the memory with the cluster", error=str(error), retry_in=round(wait, 1))

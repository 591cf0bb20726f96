"""Keeps what the operator remembers right, whatever its watches have missed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

import structlog

from enginewright.clients.errors import ClientError
from enginewright.core.backoff import Backoff
from enginewright.observe.memory import Memory
from enginewright.reconcile.metrics import Metrics

RETRY: Final = Backoff(first=1.0, most=30.0)
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

    async def run(self) -> None:
        """Forever: at once, soon after, then every period; sooner after a failure. Passes read from the apiserver what
        could not be listed."""
        failures, delay = 0, min(SOON, self._period)
        while True:
            try:
                vanished = await self._memory.heal()
            except ClientError as error:
                failures += 1
                wait = RETRY.jittered(failures, self._chance)
                log.warning("could not compare the memory with the cluster", error=str(error), retry_in=round(wait, 1))
            else:
                self._metrics.missed.labels("vanished").inc(vanished)
                failures, wait, delay = 0, delay, self._period
            await asyncio.sleep(wait)

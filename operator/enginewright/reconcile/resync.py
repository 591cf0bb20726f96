"""The safety net under the watches: every so often all objects are listed, and run a pass.

A watch may lose events, deletions above all: after a gap kopf lists again and says nothing of what vanished meanwhile.
What has changed is woken by events and by the comparison of memory (:mod:`~enginewright.reconcile.remembering`); that
all objects run a pass guards against defects in both. So where there are many, each resync takes the next part of them.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence, Set
from typing import Any, Final

import structlog

from enginewright.clients.errors import ClientError, RefusedError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import OPTIMISED_MODEL
from enginewright.observe.keys import Key
from enginewright.reconcile.known import Known
from enginewright.reconcile.metrics import Metrics
from enginewright.reconcile.queue import Lane, WorkQueue
from enginewright.reconcile.rounds import rounds

# Of the period, over which a resync spreads its passes, so that a thousand objects are no burst.
SPREAD: Final = 0.25
# Passes a second, on the average, that resyncs ask for: with more objects than so many a second over a period, each of
# them runs one in several periods.
PASSES: Final = 5.0
log = structlog.get_logger(__name__)


class Resync:
    """``namespaces`` empty means all of them; ``period`` is seconds between resyncs."""

    def __init__(
        self, kube: KubeClient, queue: WorkQueue[Key], known: Known, metrics: Metrics, *, namespaces: Sequence[str],
        period: float, chance: Callable[[], float] = random.random,
    ) -> None:
        self._kube = kube
        self._queue = queue
        self._known = known
        self._metrics = metrics
        self._namespaces = tuple(namespaces)
        self._period = period
        self._chance = chance
        self._reached: Key | None = None
        self.last: float | None = None

    async def run(self) -> None:
        """Forever: at once, then every period; sooner after a failure."""
        await rounds(self._round, self._failed, self._chance)

    async def _round(self) -> float:
        await self.once()
        return self._period

    def _failed(self, error: ClientError, wait: float) -> None:
        self._metrics.resyncs.labels("failed").inc()
        log.warning("resync failed", error=str(error), retry_in=round(wait, 1))

    async def once(self) -> None:
        """Raises :class:`~enginewright.clients.errors.ClientError`."""
        found, refused = await self._list()
        first = self.last is None
        # The first time everything is new and nothing has been looked at: no reason to wait, and none to leave one out.
        for key in sorted(found) if first else self._part(found):
            self._queue.add_after(key, 0.0 if first else self._chance() * SPREAD * self._period, Lane.ROUTINE)
        gone = {key for key in self._known.keys() - found if key.namespace not in refused}
        for key in gone:
            self._queue.add(key)
        if not first:
            self._metrics.missed.labels("deleted").inc(len(gone))
            self._metrics.missed.labels("created").inc(len(found - self._known.keys()))
        self.last = time.monotonic()
        self._metrics.resyncs.labels("ok").inc()

    def _part(self, found: Set[Key]) -> list[Key]:
        """The next ones in order after those of the resync before, and all that no pass has seen yet."""
        ordered = sorted(found)
        begin = bisect_right(ordered, self._reached) if self._reached is not None else 0
        turn = (ordered[begin:] + ordered[:begin])[:max(1, round(PASSES * self._period))]
        self._reached = turn[-1] if turn else None
        return sorted({*turn, *(found - self._known.keys())})

    async def _list(self) -> tuple[set[Key], Set[str]]:
        """Of all namespaces, and those that were refused: one that was deleted, with its Role, does not take the others
        along. Raises :class:`~enginewright.clients.errors.ClientError`, a refusal where nothing else came."""
        found: set[Key] = set()
        refused: dict[str, RefusedError] = {}
        for namespace in self._namespaces or ("",):
            try:
                found.update(await self._kube.gather(OPTIMISED_MODEL, namespace or None, _key, metadata=True))
            except RefusedError as error:
                refused[namespace] = error
        if len(refused) == len(self._namespaces or ("",)):
            raise next(iter(refused.values()))
        for namespace, why in refused.items():
            log.warning("cannot serve a namespace; the others go on", namespace=namespace, error=str(why))
        return found, refused.keys()


def _key(item: dict[str, Any]) -> Key:
    return Key(item["metadata"]["namespace"], item["metadata"]["name"])

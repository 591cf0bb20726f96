"""The workers: keys from the queue to passes, and what a failed pass leads to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from enginewright.clients.errors import ClientError, ConflictError, Family, TransientError, family_of
from enginewright.core.backoff import Backoff
from enginewright.observe.keys import Key
from enginewright.reconcile.metrics import Metrics
from enginewright.reconcile.passes import Reconciler
from enginewright.reconcile.queue import WorkQueue

# What time heals is tried again soon; what a person must mend, or we must, is looked at now and then in case they did.
BACKOFF: Final = {
    Family.TRANSIENT: Backoff(first=0.5, most=60.0),
    Family.USER: Backoff(first=5.0, most=300.0),
    Family.BUG: Backoff(first=2.0, most=300.0),
}
# Of queues that rise so many times as many passes run beside the others: each waits for one answer of the apiserver and
# does little else.
RISING: Final = 8
log = structlog.get_logger(__name__)


class Loop:
    """``workers`` passes run at once at most, and beside them :data:`RISING` times as many of queues that rise."""

    def __init__(self, queue: WorkQueue[Key], reconciler: Reconciler, metrics: Metrics, workers: int) -> None:
        self._queue = queue
        self._reconciler = reconciler
        self._metrics = metrics
        self._workers = workers
        self._in_flight: dict[Key, float] = {}
        self._late: set[Key] = set()

    @property
    def backoff(self) -> int:
        """Objects whose last pass failed on what time heals, but for those that are in the queue again."""
        return sum(not self._queue.waits(key) for key in self._late)

    def oldest_pass(self) -> float:
        """Seconds that the longest running pass has taken so far; 0 when idle."""
        return time.monotonic() - min(self._in_flight.values()) if self._in_flight else 0.0

    async def run(self) -> None:
        """Forever, until cancelled; the passes that run are cancelled with it."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(self._queue.get, hurried=False), name=f"worker {number}")
            for number in range(RISING * self._workers):
                group.create_task(self._work(self._queue.get_rising, hurried=True),
                                  name=f"worker {number} of queues that rise")

    async def _work(self, get: Callable[[], Awaitable[Key]], *, hurried: bool) -> None:
        while True:
            key = await get()
            self._in_flight[key] = time.monotonic()
            try:
                await self.step(key, hurried=hurried)
            finally:
                self._metrics.pass_seconds.observe(time.monotonic() - self._in_flight.pop(key))
                self._queue.done(key)

    async def step(self, key: Key, *, hurried: bool = False) -> None:
        """One pass, ``hurried`` where the queue of its object rises, and what its end means for the work queue. Raises
        nothing but cancellation: one object's trouble must not stop the others."""
        try:
            requeue_after = await self._reconciler.reconcile(key, hurried=hurried)
        except (ClientError, TimeoutError) as error:
            self._again(key, family_of(error), error)
        except Exception as error:
            log.exception("a pass failed on a defect; please report it", object=str(key))
            self._again(key, family_of(error), error)
        else:
            self._metrics.passes.labels("ok").inc()
            self._queue.succeeded(key)
            self._late.discard(key)
            if requeue_after is not None:
                self._queue.add_after(key, requeue_after)

    def _again(self, key: Key, family: Family, error: Exception) -> None:
        self._metrics.passes.labels(family.value).inc()
        # What a person must mend is no delay of ours, and a defect has an alarm of its own.
        (self._late.add if family is Family.TRANSIENT else self._late.discard)(key)
        asked = error.retry_after if isinstance(error, TransientError) else None
        delay = self._queue.retry(key, BACKOFF[family], asked or 0.0)
        # Another client wrote meanwhile: that is how the apiserver works, and needs no attention.
        say = log.info if isinstance(error, ConflictError) else log.warning
        say("pass failed", object=str(key), family=family.value, error=str(error) or repr(error),
            retry_in=round(delay, 1))

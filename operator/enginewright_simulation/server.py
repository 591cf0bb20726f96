"""One Triton replica: a queue, a dynamic batcher, and instances that work side by side.

Replicas never touch one another, so each is taken forward on its own from one moment of interest to the next, and an
event costs neither a heap nor an object. The batcher is that of Triton's ``GetDynamicBatch``
(triton-inference-server/core, ``dynamic_batch_scheduler.cc``): with a queue delay, it sends the largest preferred size
that the queue makes, and whatever there is (up to the maximum) once the oldest request has waited so long; without a
delay it sends at once. It looks when an instance is free.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterator

from enginewright.core.signals import Spent
from enginewright_simulation.curve import Service

# Sums of floating-point times are off by less.
ROUNDING = 1e-9


class Ledger:
    """Answers of all replicas: ``latencies`` in seconds, as they were decided; ``late`` the arrival times of those
    above ``slo``. Of a language model latencies are those of first tokens, and requests are late, too, where tokens
    took more than ``tpot`` seconds each after the first."""

    def __init__(self, slo: float, tpot: float = math.inf) -> None:
        self.slo = slo + ROUNDING
        self.tpot = tpot + ROUNDING
        self.latencies = array("d")
        self.late = array("d")


class Replica:
    """``created``, ``ready`` and ``stopped`` (when it gets no more requests) are times in seconds. ``stretch`` draws a
    factor for each service time (for tests against queues in closed form)."""

    __slots__ = ("_executing", "_stretch", "_taken", "created", "free", "ledger", "name", "queue", "ready", "service",
                 "stopped")

    def __init__(self, name: str, service: Service, ledger: Ledger, created: float, ready: float,
                 stretch: Callable[[], float] | None = None) -> None:
        self.name = name
        self.service = service
        self.ledger = ledger
        self.created = created
        self.ready = ready
        self.stopped = ready
        self.queue: deque[float] = deque()
        self.free = [ready] * service.instances
        self._taken = Spent()
        self._executing = [Spent()] * service.instances
        self._stretch = stretch

    def advance(self, until: float) -> None:
        """Starts what can start by ``until``; the queue holds every request that came by then."""
        if not self.queue:
            return
        service = self.service
        if service.max_batch == 1 and service.instances == 1 and service.wake == 0 and self._stretch is None:
            self._advance_serially(until)
        elif service.queue_delay == 0 and not service.preferred:
            self._advance_greedily(until)
        else:
            self._advance_by_preference(until)

    def spent(self, now: float) -> Spent:
        """Triton's counters: of all requests that it has answered since it is there."""
        return (self._taken + Spent(seconds=now)).since(sum(self._at_work(now), Spent())) or Spent()

    def executing(self, now: float) -> int:
        """Requests being computed."""
        return round(sum(one.answered for one in self._at_work(now)))

    def _at_work(self, now: float) -> Iterator[Spent]:
        """What each instance that has not answered yet has taken."""
        pause = self.service.pause
        return (one for free, one in zip(self.free, self._executing, strict=True) if free - pause > now)

    def drained_at(self) -> float:
        """When a replica that was stopped has given its last answer; the queue must be empty."""
        return max(self.stopped, *self.free)

    def _advance_serially(self, until: float) -> None:
        queue, service = self.queue, self.service
        alone, taken, transport = service.seconds[1], service.seconds[1] + service.pause, service.transport
        answered, late, slo = self.ledger.latencies.append, self.ledger.late.append, self.ledger.slo
        take = queue.popleft
        free, waited, last, count = self.free[0], 0.0, 0.0, 0
        while queue:
            came = queue[0]
            start = came if came > free else free
            if start > until:
                break
            take()
            count += 1
            last = start - came
            waited += last
            free = start + taken
            latency = start + alone + transport - came
            answered(latency)
            if latency > slo:
                late(came)
        if count:
            self.free[0] = free
            self._taken += Spent(0.0, count, waited, count * alone, count)
            self._executing[0] = Spent(0.0, 1, last, alone, 1)

    def _advance_greedily(self, until: float) -> None:
        queue, free, most = self.queue, self.free, self.service.max_batch
        take = queue.popleft
        while queue:
            soonest = min(free)
            start = queue[0] if queue[0] > soonest else soonest
            if start > until:
                return
            batch = [take()]
            while queue and len(batch) < most and queue[0] <= start:
                batch.append(take())
            self._execute(batch, start, soonest)

    def _advance_by_preference(self, until: float) -> None:
        queue = self.queue
        while queue:
            soonest = min(self.free)
            start, size = self._next_batch(max(queue[0], soonest))
            if start > until:
                return
            self._execute([queue.popleft() for _ in range(size)], start, soonest)

    def _next_batch(self, looked: float) -> tuple[float, int]:
        """When the batch starts, and its size, if nothing more comes than is queued. A start that lies ahead is asked
        for again once that time has come."""
        service, queue = self.service, self.queue
        most, sizes = service.max_batch, service.preferred or (service.max_batch,)
        overdue = queue[0] + service.queue_delay
        if service.queue_delay and looked >= overdue:
            return looked, self._waiting(looked, most)
        here = self._waiting(looked, most)
        best = max((size for size in sizes if size <= here), default=0)
        if best:
            return looked, best
        if not service.queue_delay:
            return looked, here
        least = min(sizes)
        if len(queue) >= least and queue[least - 1] < overdue:
            return queue[least - 1], least
        return overdue, self._waiting(overdue, most)

    def _waiting(self, now: float, most: int) -> int:
        count = 0
        for came in self.queue:
            if came > now or count == most:
                break
            count += 1
        return count

    def _execute(self, batch: list[float], start: float, soonest: float) -> None:
        service, ledger = self.service, self.ledger
        seconds = service.seconds[len(batch)] + (service.wake if start > soonest else 0.0)
        if self._stretch is not None:
            seconds *= self._stretch()
        done = start + seconds
        instance = self.free.index(soonest)
        self.free[instance] = done + service.pause
        waited = len(batch) * start - sum(batch)
        self._executing[instance] = Spent(0.0, len(batch), waited, len(batch) * seconds, 1)
        self._taken += self._executing[instance]
        for came in batch:
            latency = done + service.transport - came
            ledger.latencies.append(latency)
            if latency > ledger.slo:
                ledger.late.append(came)

"""One Triton replica: a queue, a dynamic batcher, and instances that work side by side.

Replicas never touch one another, so each is taken forward on its own from one moment of interest to the next, and an
event costs neither a heap nor an object. The batcher is that of Triton's ``GetDynamicBatch``
(triton-inference-server/core, ``dynamic_batch_scheduler.cc``): with a queue delay, it sends the largest preferred size
that the queue makes, and whatever there is (up to the maximum) once the oldest request has waited so long; without a
delay it sends at once. It looks when an instance is free.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable

from enginewright.simulation.curve import Service

# Sums of floating-point times are off by less.
ROUNDING = 1e-9


class Ledger:
    """Answers of all replicas: ``latencies`` in seconds, as they were decided; ``late`` the arrival times of those
    above ``slo``."""

    def __init__(self, slo: float) -> None:
        self.slo = slo + ROUNDING
        self.latencies = array("d")
        self.late = array("d")


class Replica:
    """``created``, ``ready`` and ``stopped`` (when it gets no more requests) are times in seconds. ``stretch`` draws a
    factor for each service time (for tests against queues in closed form)."""

    __slots__ = ("_size", "_stretch", "created", "free", "ledger", "name", "queue", "ready", "service",
                 "stopped", "taken")

    def __init__(self, name: str, service: Service, ledger: Ledger, created: float, ready: float,
                 stretch: Callable[[], float] | None = None) -> None:  # fmt: skip
        self.name = name
        self.service = service
        self.ledger = ledger
        self.created = created
        self.ready = ready
        self.stopped = ready
        self.queue: deque[float] = deque()
        self.free = [ready] * service.instances
        self.taken = 0
        self._size = [0] * service.instances
        self._stretch = stretch

    def advance(self, until: float) -> None:
        """Starts what can start by ``until``; the queue holds every request that came by then."""
        if not self.queue:
            return
        service, queued = self.service, len(self.queue)
        if service.max_batch == 1 and service.instances == 1 and self._stretch is None:
            self._advance_serially(until)
        elif service.queue_delay == 0 and not service.preferred:
            self._advance_greedily(until)
        else:
            self._advance_by_preference(until)
        self.taken += queued - len(self.queue)

    def answered(self, now: float) -> int:
        """Requests since it is there."""
        return self.taken - self.executing(now)

    def executing(self, now: float) -> int:
        """Requests being computed."""
        pause = self.service.pause
        return sum(size for free, size in zip(self.free, self._size, strict=True) if free - pause > now)

    def drained_at(self) -> float:
        """When a replica that was stopped has given its last answer; the queue must be empty."""
        return max(self.stopped, *self.free)

    def _advance_serially(self, until: float) -> None:
        queue, service = self.queue, self.service
        alone, taken = service.seconds[1], service.seconds[1] + service.pause
        answered, late, slo = self.ledger.latencies.append, self.ledger.late.append, self.ledger.slo
        take = queue.popleft
        free = self.free[0]
        while queue:
            came = queue[0]
            start = came if came > free else free
            if start > until:
                break
            take()
            free = start + taken
            latency = start + alone - came
            answered(latency)
            if latency > slo:
                late(came)
        self.free[0] = free
        self._size[0] = 1

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
        seconds = service.seconds[len(batch)]
        if self._stretch is not None:
            seconds *= self._stretch()
        done = start + seconds
        instance = self.free.index(soonest)
        self.free[instance] = done + service.pause
        self._size[instance] = len(batch)
        for came in batch:
            latency = done - came
            ledger.latencies.append(latency)
            if latency > ledger.slo:
                ledger.late.append(came)

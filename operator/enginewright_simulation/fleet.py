"""The replicas of one model: started, ready, drained, gone; and which of them a request goes to."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from enginewright.clients.signals import ReplicaMetrics
from enginewright_simulation.curve import Service
from enginewright_simulation.server import Ledger, Replica
from enginewright_simulation.tokens import TokenReplica, TokenService


class Fleet:
    """A replica is ready ``cold_start`` seconds after it was asked for, and is paid for from then on until it has
    answered its last request.

    A request goes to any ready replica with equal chance, as kube-proxy does for each new connection (kubernetes.io,
    "Virtual IPs and Service Proxies": iptables and nftables choose at random). Fewer replicas: those that start go
    first, then the youngest, as the ReplicaSet controller ranks pods to delete (kubernetes.io, "ReplicaSet", scaling).
    """

    def __init__(self, service: Service | TokenService, ledger: Ledger, cold_start: float, initial: int) -> None:
        self._service = service
        self._ledger = ledger
        self._cold_start = cold_start
        self._made = 0
        self._gone: list[tuple[float, float]] = []
        self.ready: list[Replica | TokenReplica] = []
        self.starting: deque[Replica | TokenReplica] = deque()
        self.draining: list[Replica | TokenReplica] = []
        self.held: deque[float] = deque()
        for _ in range(initial):
            self.ready.append(self._new(0.0, 0.0))

    @property
    def desired(self) -> int:
        return len(self.ready) + len(self.starting)

    @property
    def waiting(self) -> int:
        """Requests that no instance has taken up."""
        return sum(len(one.queue) for one in self.ready) + sum(len(one.queue) for one in self.draining) + len(self.held)

    def next_ready(self) -> float:
        return self.starting[0].ready if self.starting else float("inf")

    def send(self, arrivals: Sequence[float], dice: Sequence[float]) -> None:
        """``dice`` are in [0, 1), one for each arrival."""
        if not self.ready:
            self.held.extend(arrivals)
        elif len(self.ready) == 1:
            self.ready[0].queue.extend(arrivals)
        else:
            many, into = len(self.ready), [one.queue.append for one in self.ready]
            for came, die in zip(arrivals, dice, strict=True):
                into[int(die * many)](came)

    def advance(self, now: float) -> None:
        for one in self.ready:
            one.advance(now)
        for one in self.draining:
            one.advance(now)
        if self.draining:
            self._let_go()

    def admit(self, now: float) -> None:
        """Replicas whose cold start is over take requests, first those that were held for lack of any."""
        while self.starting and self.starting[0].ready <= now:
            self.ready.append(self.starting.popleft())
        if self.ready and self.held:
            for number, came in enumerate(self.held):
                self.ready[number % len(self.ready)].queue.append(came)
            self.held.clear()
            self.advance(now)

    def scale(self, wanted: int, now: float) -> None:
        while self.desired < wanted:
            self.starting.append(self._new(now, now + self._cold_start))
        while self.desired > wanted:
            if self.starting:
                self._gone.append((self.starting.pop().created, now))
            else:
                last = self.ready.pop()
                last.stopped = now
                self.draining.append(last)
        if not self._cold_start:
            self.admit(now)
        self._let_go()

    @property
    def metrics(self) -> dict[str, ReplicaMetrics]:
        """What ready replicas of a language model count."""
        return {one.name: one.metrics() for one in self.ready if isinstance(one, TokenReplica)}

    def finish(self) -> None:
        """Nothing more comes: all that is under way is answered."""
        self.advance(math.inf)

    def replica_seconds(self, end: float) -> float:
        """Of all replicas from 0 to ``end``; what drains then counts as if it went on."""
        alive = [(one.created, end) for one in (*self.ready, *self.starting, *self.draining)]
        return sum(max(0.0, min(end, until) - since) for since, until in (*self._gone, *alive))

    def _let_go(self) -> None:
        for one in [one for one in self.draining if not one.queue]:
            self.draining.remove(one)
            self._gone.append((one.created, one.drained_at()))

    def _new(self, created: float, ready: float) -> Replica | TokenReplica:
        self._made += 1
        name = f"replica-{self._made}"
        if isinstance(self._service, TokenService):
            return TokenReplica(name, self._service, self._ledger, created, ready)
        return Replica(name, self._service, self._ledger, created, ready)

"""What the activator counts. Names and labels are API (docs/reference/metrics.md)."""

from __future__ import annotations

from itertools import product
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from enginewright.activator.gate import Gate
from enginewright.activator.room import Room

Protocol = Literal["http", "grpc"]
Result = Literal["forwarded", "full", "late", "slow", "failed", "gone"]


class Tally:
    def __init__(self, gate: Gate, room: Room) -> None:
        self.registry = CollectorRegistry()
        pending = Gauge("enginewright_activator_pending", "Requests that wait for a replica.", registry=self.registry)
        pending.set_function(lambda: gate.pending)
        held = Gauge("enginewright_activator_bytes", "Bytes of the requests under way.", registry=self.registry)
        held.set_function(lambda: room.bytes)
        self._ended = Counter("enginewright_activator_requests", "Requests by how they ended.",
                              ("protocol", "result"), registry=self.registry)
        # All stand at 0 from the start: Prometheus takes a series that begins at 1 for one that has not grown.
        for protocol, result in product(get_args(Protocol), get_args(Result)):
            self._ended.labels(protocol, result)

    def ended(self, protocol: Protocol, result: Result) -> None:
        self._ended.labels(protocol, result).inc()

    def count(self, protocol: Protocol, result: Result) -> int:
        return int(self._ended.labels(protocol, result)._value.get())

    def page(self) -> bytes:
        return generate_latest(self.registry)

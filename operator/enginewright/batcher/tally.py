"""What the batcher counts and shows. Names and labels are API (docs/reference/metrics.md)."""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from enginewright.core.batching import Setting
from enginewright.core.batching.safe import MICROSECONDS


class Tally:
    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self._delay = Gauge("enginewright_batching_replica_queue_delay_seconds",
                            "Longest that a request is held back for others.", registry=registry)
        self._sizes = Gauge("enginewright_batching_replica_preferred_batch_size",
                            "1 for each batch size that the server sends on at once.", ("size",), registry=registry)
        self._phase = Gauge("enginewright_batching_replica_phase", "1 for the setting in force.", ("phase",),
                            registry=registry)
        self._loads = Counter("enginewright_batching_replica_loads", "Changes of batching by reason.",
                              ("phase",), registry=registry)
        self._failed = Counter("enginewright_batching_replica_failed_loads", "Trials that the server could not load.",
                               registry=registry)
        self._delay.set(math.nan)

    def show(self, setting: Setting | None, phase: str) -> None:
        """``setting`` is None where it is not known."""
        self._delay.set(math.nan if setting is None else setting.delay_us / MICROSECONDS)
        self._sizes.clear()
        for size in setting.preferred if setting else ():
            self._sizes.labels(str(size)).set(1)
        self._phase.clear()
        self._phase.labels(phase).set(1)

    def loaded(self, phase: str) -> None:
        self._loads.labels(phase).inc()

    def failed(self) -> None:
        self._failed.inc()

    def page(self) -> bytes:
        return generate_latest(self.registry)

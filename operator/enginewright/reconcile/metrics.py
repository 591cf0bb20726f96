"""What the operator counts, in one registry of its own. Names are API: documented in docs/reference/metrics.md."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """One an operator; two in one process do not meet."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.passes = Counter(
            "enginewright_reconcile_passes", "Reconcile passes by how they ended: ok, user, transient or bug.",
            ["result"], registry=self.registry,
        )
        for result in ("ok", "user", "transient", "bug"):
            self.passes.labels(result)
        self.pass_seconds = Histogram(
            "enginewright_reconcile_seconds", "Duration of a reconcile pass.",
            buckets=_SECONDS, registry=self.registry,
        )
        self.actions = Counter(
            "enginewright_actions", "Actions on children that changed something.",
            ["verb", "kind"], registry=self.registry,
        )
        self.status_writes = Counter("enginewright_status_writes", "Writes of status.", registry=self.registry)
        self.scrapes = Counter(
            "enginewright_scrapes", "Readings of queue depth by source and result: ok or failed.",
            ["source", "result"], registry=self.registry,
        )
        self.api_seconds = Histogram(
            "enginewright_api_request_seconds", "Duration of calls to the Kubernetes API; code 0 means no answer.",
            ["verb", "resource", "code"], buckets=_SECONDS, registry=self.registry,
        )
        self.resyncs = Counter(
            "enginewright_resyncs", "Full resyncs by result: ok or failed.", ["result"], registry=self.registry
        )
        self.events = Counter("enginewright_watch_events", "Events of watches, first lists included.",
                              registry=self.registry)
        self.missed = Counter(
            "enginewright_missed_events", "Objects whose creation or deletion only a list noticed.",
            ["what"], registry=self.registry,
        )
        self.looks = Counter(
            "enginewright_looks",
            "What passes looked at: memory, the apiserver (fresh), or memory that the apiserver then confirmed.",
            ["source"], registry=self.registry,
        )
        for source in ("memory", "confirmed", "fresh"):
            self.looks.labels(source)

        self.skipped = Counter(
            "enginewright_records_skipped", "Engine records that were not read, by reason: large or "
                                            "unreadable.", ["why"],
            registry=self.registry,
        )
        for why in ("large", "unreadable"):
            self.skipped.labels(why)

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A gauge that is read when it is scraped."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def called(self, verb: str, resource: str, code: int, seconds: float) -> None:
        self.api_seconds.labels(verb, resource, str(code)).observe(seconds)

    def scraped(self, source: str, answered: bool) -> None:
        self.scrapes.labels(source, "ok" if answered else "failed").inc()

    def acted(self, verb: str, kind: str) -> None:
        self.actions.labels(verb, kind).inc()

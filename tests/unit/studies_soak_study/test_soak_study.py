"""What the soak study takes for growth."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import generate_latest

from enginewright.reconcile.metrics import Metrics
from operator_metrics import samples_of
from soak_study.__main__ import flat
from soak_study.meters import GAUGES, Held, Reading, reading, record_of

REST = Held(rss_mb=100.0, tasks=90, files=26, threads=5, series=100, remembered=16, objects=1)


def test_memory_may_grow_by_a_twentieth() -> None:
    assert flat(REST, replace(REST, rss_mb=105.0))
    assert not flat(REST, replace(REST, rss_mb=105.2))


def test_less_than_before_is_flat() -> None:
    assert flat(REST, replace(REST, rss_mb=80.0, tasks=80, series=90))


def test_a_few_connections_may_be_kept() -> None:
    assert flat(REST, replace(REST, files=30))
    assert not flat(REST, replace(REST, files=31))


@pytest.mark.parametrize("more", ["tasks", "threads", "series", "remembered", "objects"])
def test_nothing_else_may_grow(more: str) -> None:
    assert not flat(REST, replace(REST, **{more: getattr(REST, more) + 1}))


def test_a_reading_is_of_what_the_operator_tells() -> None:
    metrics = Metrics()
    for number, name in enumerate(GAUGES.values()):
        metrics.gauge(name, "", lambda number=number: float(number))  # type: ignore[misc]
    metrics.events.inc(12)
    before = reading(samples_of(generate_latest(metrics.registry).decode()), 100.0, 26, 5)
    assert (before.events, before.held.tasks, before.held.remembered, before.held.objects) == (12, 0, 1, 2)
    metrics.called("get", "pods", 200, 0.1)
    metrics.acted("create", "Deployment")
    after = reading(samples_of(generate_latest(metrics.registry).decode()), 100.0, 26, 5)
    # A counter has its value and the time at which it began.
    assert after.held.series - before.held.series == 2


def test_what_is_written_says_when() -> None:
    assert record_of("busy", Reading(12, REST)).items() >= {"when": "busy", "events": 12, "tasks": 90}.items()

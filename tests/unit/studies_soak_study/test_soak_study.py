"""What the soak study takes for growth, what it changes, and at which pace."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest

from enginewright.clients.errors import TransientError
from enginewright.clients.resources import OPTIMISED_MODEL, POD, Resource
from enginewright.core.labels import MODEL
from enginewright.reconcile.metrics import Metrics
from operator_metrics import samples_of
from soak_study.__main__ import flat
from soak_study.changes import SHARES, Changes
from soak_study.meters import GAUGES, Held, Reading, reading, record_of
from soak_study.pace import paced
from support.apiserver import Models

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


class Cluster:
    """Takes the place of the apiserver: a child of each kind of two models, and what was written to which."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []
        self.answers = True

    async def list_all(self, resource: Resource, namespace: str, labels: str = "") -> list[dict[str, Any]]:
        if resource == OPTIMISED_MODEL:
            return [{"metadata": {"name": name}} for name in ("stays", "goes")]
        return [{"metadata": {"name": f"{name}-child", "labels": {MODEL: name}}} for name in ("stays", "goes")]

    async def _json(self, verb: str, resource: Resource, path: str, **_: Any) -> None:
        if not self.answers:
            raise TransientError("too busy")
        self.written.append((resource.plural, path))


def changes(cluster: Cluster) -> Changes:
    return Changes(Models(cluster, "soak"), frozenset({"stays"}), 1)  # type: ignore[arg-type]


async def test_each_kind_of_change_comes_and_none_is_made_to_objects_that_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soak_study.changes.LOST", 0.0)
    cluster = Cluster()
    one = changes(cluster)
    for _ in range(300):
        await one.one()
    assert one.made.keys() == SHARES.keys()
    assert {resource.plural for _, resource in SHARES.values()} == {plural for plural, _ in cluster.written}
    assert not [path for _, path in cluster.written if "goes" in path]


async def test_a_change_that_is_refused_counts_as_refused_alone() -> None:
    cluster = Cluster()
    cluster.answers = False
    one = changes(cluster)
    await one.one()
    assert (one.refused, one.made.total()) == (1, 0)


async def test_no_change_is_made_to_a_kind_of_which_there_is_none() -> None:
    class Empty(Cluster):
        async def list_all(self, resource: Resource, namespace: str, labels: str = "") -> list[dict[str, Any]]:
            return [] if resource != POD else await super().list_all(resource, namespace, labels)

    cluster = Empty()
    one = changes(cluster)
    for _ in range(20):
        await one.one()
    assert {plural for plural, _ in cluster.written} == {"pods"}


def test_shares_are_of_a_hundred() -> None:
    assert sum(share for share, _ in SHARES.values()) == 100


async def test_no_more_than_a_few_deeds_are_under_way_and_all_end() -> None:
    running = most = 0
    begun = itertools.count(1)
    ended: list[int] = []

    async def deed() -> None:
        nonlocal running, most
        number, running = next(begun), running + 1
        most = max(most, running)
        for _ in range(number % 5):
            await asyncio.sleep(0)
        running -= 1
        ended.append(number)

    await paced(0.0, 3, lambda: len(ended) >= 20, deed)
    assert most == 3
    assert sorted(ended) == list(range(1, next(begun)))

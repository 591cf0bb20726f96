"""Arrivals from counters: growth, restarts, silence."""

from __future__ import annotations

import pytest

from enginewright.clients.signals import ReplicaMetrics
from enginewright.observe.arrivals import Arrivals, Growth


def metrics(answered: float, queued: float = 0.0, failed: float = 0.0, executed: float = 0.0) -> ReplicaMetrics:
    return ReplicaMetrics(pending={"m": queued}, successes={"m": answered}, failures={"REJECTED": failed},
                          busy=executed * 1e6)  # fmt: skip


def test_what_was_answered_and_what_the_queue_grew_by_came() -> None:
    arrivals = Arrivals()
    assert arrivals.update(0.0, {"a": metrics(100), "b": metrics(5)}, ["a", "b"]) == Growth()
    scraped = {"a": metrics(110, queued=4, executed=0.5), "b": metrics(8, queued=1, failed=2, executed=1.0)}
    assert arrivals.update(1.0, scraped, ["a", "b"]) == Growth(arrived=20.0, executing=1.5,
                                                               served={"a": 10.0, "b": 5.0})  # fmt: skip


@pytest.mark.parametrize(
    ("scraped", "pods", "served"),
    [
        ({"a": metrics(3), "b": metrics(8)}, ["a", "b"], {"b": 3.0}),
        ({"a": metrics(110)}, ["a", "b"], {"a": 10.0}),
        ({"a": metrics(110), "b": metrics(8), "c": metrics(0)}, ["a", "b", "c"], {"a": 10.0, "b": 3.0}),
        ({}, [], {}),
    ],
    ids=["reset", "silent", "new", "none"],
)
def test_a_part_is_not_the_whole(scraped: dict[str, ReplicaMetrics], pods: list[str], served: dict[str, float]) -> None:
    arrivals = Arrivals()
    arrivals.update(0.0, {"a": metrics(100), "b": metrics(5)}, ["a", "b"])
    assert arrivals.update(1.0, scraped, pods) == Growth(served=served)


def test_one_that_was_silent_tells_of_a_longer_time() -> None:
    arrivals = Arrivals()
    arrivals.update(0.0, {"a": metrics(0), "b": metrics(0)}, ["a", "b"])
    arrivals.update(1.0, {"a": metrics(10)}, ["a", "b"])
    found = arrivals.update(2.0, {"a": metrics(20), "b": metrics(20)}, ["a", "b"])
    assert found == Growth(arrived=20.0, executing=0.0, served={"a": 10.0})


def test_one_that_went_away_is_forgotten() -> None:
    arrivals = Arrivals()
    arrivals.update(0.0, {"a": metrics(0), "b": metrics(0)}, ["a", "b"])
    assert arrivals.update(1.0, {"a": metrics(10)}, ["a"]).arrived == 10.0

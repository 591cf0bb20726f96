"""Arrivals from counters: growth, restarts, silence."""

from __future__ import annotations

import pytest

from enginewright.clients.signals import ReplicaMetrics
from enginewright.observe.arrivals import Arrivals, Growth


def metrics(answered: float, queued: float = 0.0, failed: float = 0.0, executed: float = 0.0, waited: float = 0.0,
            batches: float = 0.0) -> ReplicaMetrics:
    return ReplicaMetrics(pending={"m": queued}, successes={"m": answered}, failures={"REJECTED": failed},
                          busy=(executed + waited) * 1e6, queued_for=waited * 1e6, executions=batches)


def took(growth: Growth) -> dict[str, tuple[float, ...]]:
    return {name: (one.seconds, one.answered, one.waited, one.computed, one.executions)
            for name, one in growth.spent.items()}


def test_what_was_answered_and_what_the_queue_grew_by_came() -> None:
    arrivals = Arrivals()
    assert arrivals.update(0.0, {"a": metrics(100), "b": metrics(5)}, ["a", "b"]) == Growth()
    scraped = {"a": metrics(110, queued=4, executed=0.5), "b": metrics(8, queued=1, failed=2, executed=1.0)}
    found = arrivals.update(1.0, scraped, ["a", "b"])
    assert (found.arrived, found.executing, found.served) == (20.0, 1.5, {"a": 10.0, "b": 3.0})
    assert found.rejected == 2.0, "has come, and was not served: a replica does no more by rejecting"


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
    found = arrivals.update(1.0, scraped, pods)
    assert (found.arrived, found.executing, found.served) == (None, None, served)
    assert found.spent.keys() == served.keys()


def test_batch_elements_are_counted_whatever_else_is_unknown() -> None:
    def told(inferences: float, tokens: float = 0.0) -> ReplicaMetrics:
        return ReplicaMetrics(pending={}, inferences=inferences, generated_tokens=tokens)

    arrivals = Arrivals()
    arrivals.update(0.0, {"a": told(10), "b": told(100)}, ["a", "b"])
    assert arrivals.update(1.0, {"a": told(42), "b": told(3)}, ["a", "b", "c"]).inferences == 32.0, "one began anew"
    assert arrivals.update(2.0, {"a": told(42, tokens=7)}, ["a", "b", "c"]).inferences == 7.0


def test_what_requests_took_is_told_of_those_that_succeeded() -> None:
    """Triton times no others."""
    arrivals = Arrivals()
    arrivals.update(0.0, {"a": metrics(100, executed=5, waited=1, batches=50)}, ["a"])
    found = arrivals.update(1.0, {"a": metrics(110, failed=2, executed=5.5, waited=1.25, batches=54)}, ["a"])
    assert took(found) == {"a": pytest.approx((1.0, 10.0, 0.25, 0.5, 4.0))}


@pytest.mark.parametrize("fell", [{"executed": 4.0}, {"waited": 0.5}, {"batches": 49}])
def test_one_counter_that_fell_says_that_none_can_be_told(fell: dict[str, float]) -> None:
    """A server that has begun anew may have answered more by now than the one before."""
    arrivals = Arrivals()
    arrivals.update(0.0, {"a": metrics(100, executed=5, waited=1, batches=50)}, ["a"])
    found = arrivals.update(1.0, {"a": metrics(110, **{"executed": 5.5, "waited": 1.5, "batches": 55, **fell})}, ["a"])
    assert took(found) == {}


def test_one_that_was_silent_tells_of_a_longer_time() -> None:
    arrivals = Arrivals()
    arrivals.update(0.0, {"a": metrics(0), "b": metrics(0)}, ["a", "b"])
    arrivals.update(1.0, {"a": metrics(10)}, ["a", "b"])
    found = arrivals.update(2.0, {"a": metrics(20), "b": metrics(20)}, ["a", "b"])
    assert (found.arrived, found.executing, found.served) == (20.0, 0.0, {"a": 10.0})
    assert found.spent.keys() == {"a"}


def test_one_that_went_away_is_forgotten() -> None:
    arrivals = Arrivals()
    arrivals.update(0.0, {"a": metrics(0), "b": metrics(0)}, ["a", "b"])
    assert arrivals.update(1.0, {"a": metrics(10)}, ["a"]).arrived == 10.0

"""Arrivals, answers and queues of a language model, in requests of the size that was measured."""

from __future__ import annotations

import pytest

from enginewright.clients.signals import ReplicaMetrics
from enginewright.core.scaling import Capacity
from enginewright.observe.arrivals import Tokens
from enginewright.observe.sizes import LOOKED, PRIOR, Sizes, gauges
from enginewright.observe.window import Window
from enginewright_builder.contract import TokenWork

# One request is a second of a replica: half of it for reading, half for writing.
WORK = TokenWork(input_tokens=100.0, output_tokens=10.0, input_seconds=0.005, output_seconds=0.05)
CAPACITY = Capacity(throughput=1.0, instances=4, work=WORK)


def metrics(answered: float = 0.0, running: float = 0.0, waiting: float = 0.0, read: float = 0.0, cached: float = 0.0,
            written: float = 0.0, used: float | None = 0.5) -> ReplicaMetrics:
    return ReplicaMetrics(pending={"m": waiting}, successes={"m": answered}, running=running, prompt_tokens=read,
                          cached_tokens=cached, generated_tokens=written, cache_used=used)


def test_a_request_has_come_when_it_waits_or_runs_and_work_is_what_its_tokens_took() -> None:
    window = Window(0.0)
    window.arrived(0.0, {"a": metrics()}, ["a"], CAPACITY)
    found = window.arrived(1.0, {"a": metrics(running=3, waiting=2, read=300, written=6)}, ["a"], CAPACITY)
    # Each of the three has read as was measured; of tokens they have written less by now than half a measured answer.
    assert found.arrived == pytest.approx(5 * (0.5 + 0.05 * (10 * PRIOR + 6) / (PRIOR + 1.5)))
    assert found.served == {"a": pytest.approx(1.5 + 0.3)}
    assert not found.spent, "what requests took is not the time until the first token"
    assert window.arrived(2.0, {"a": metrics(3, 2, 0, 500, 0, 50)}, ["a"], CAPACITY).arrived == 0.0, "they had come"


def test_larger_requests_are_more_work_and_cached_tokens_none() -> None:
    window = Window(0.0)
    window.arrived(0.0, {"a": metrics()}, ["a"], CAPACITY)
    twice = window.arrived(1.0, {"a": metrics(400, read=80_000, written=8_000)}, ["a"], CAPACITY)
    assert twice.arrived == pytest.approx(800, rel=0.05)
    cached = window.arrived(2.0, {"a": metrics(800, read=160_000, cached=80_000, written=16_000)}, ["a"], CAPACITY)
    assert cached.served == {"a": pytest.approx(400.0)}, "all of the second prompts were cached"


def test_queues_are_in_the_same_unit() -> None:
    window = Window(0.0)
    window.arrived(0.0, {"a": metrics()}, ["a"], CAPACITY)
    twice = {"a": metrics(1000, waiting=3, read=200_000, written=20_000)}
    window.arrived(1.0, twice, ["a"], CAPACITY)
    assert window.pending(twice, CAPACITY) == {"a": pytest.approx(6.0, rel=0.05)}
    assert window.pending(twice) == {"a": 3.0}, "as vLLM says it, where nothing was measured"


def test_of_a_server_that_counts_no_tokens_nothing_changes() -> None:
    window = Window(0.0)
    window.arrived(0.0, {"a": metrics(used=None)}, ["a"])
    found = window.arrived(1.0, {"a": metrics(7, waiting=1, used=None)}, ["a"])
    assert (found.arrived, found.served) == (8.0, {"a": 7.0})
    assert gauges({"a": metrics(used=None)}) == ({}, {})
    assert gauges({"a": metrics(running=2)}) == ({"a": 2.0}, {"a": 0.5})


def test_the_newest_requests_tell_the_size() -> None:
    sizes = Sizes()
    assert sizes.mean(WORK) == 1.0
    large, small = (Tokens(read=each * 10, written=each, started=1, ended=1) for each in (100.0, 10.0))
    for _ in range(300):
        sizes.add({"a": large})
    assert sizes.mean(WORK) == pytest.approx((LOOKED * 10 + PRIOR) / (LOOKED + PRIOR), rel=0.01)
    for _ in range(300):
        sizes.add({"a": small})
    assert sizes.mean(WORK) == pytest.approx(1.0)


def test_a_server_that_starts_again_is_no_negative_work() -> None:
    window = Window(0.0)
    window.arrived(0.0, {"a": metrics(10, read=1000, written=100)}, ["a"], CAPACITY)
    found = window.arrived(1.0, {"a": metrics(1, read=100, written=10)}, ["a"], CAPACITY)
    assert (found.arrived, found.served) == (None, {})

"""Replicas that are slower than measured and never full: what waiting and computing took says so, and nothing else."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.scaling import Capacity, ScaleLimits
from enginewright.core.scaling.arrivals import intervals
from enginewright.core.scaling.latency import LEAST, calm, share_by_latency
from enginewright.core.scaling.needs import Needs, Parts
from enginewright.core.signals import Sample, Spent
from enginewright.observe.window import Window
from enginewright_simulation.curve import Service
from enginewright_simulation.policies.enginewright import Enginewright
from enginewright_simulation.run import Run, Scenario, simulate

ONE_BY_ONE = Capacity(throughput=20, curve=((1, 0.05),), objective_seconds=0.2, cold_start_seconds=20)
BATCHES = Capacity(throughput=400, curve=((1, 0.01), (8, 0.02)), objective_seconds=0.1, cold_start_seconds=20)
RATE = 10.0


def pollaczek_khinchin(rate: float, served: float) -> float:
    return rate / served / (2 * (1 - rate / served)) / served


def samples(spent: Callable[[int], Spent], seconds: int = 300) -> tuple[Sample, ...]:
    window = Window(0.0)
    for time in range(seconds + 1):
        window.add(Sample(time=float(time), ready=1, pending={"a": 0.0}, spent={"a": spent(time)}))
    return window.view().samples


def share(spent: Callable[[int], Spent], capacity: Capacity = ONE_BY_ONE, seconds: int = 300) -> float:
    return share_by_latency(samples(spent, seconds), capacity, capacity.patience(4), 1.0)


def waiting(speed: float, noise: float = 0.0, rate: float = RATE) -> Callable[[int], Spent]:
    """One second of a replica of that ``speed``."""
    draw = random.Random(3)
    mean = pollaczek_khinchin(rate, 20 * speed)
    return lambda _: Spent(1.0, rate, rate * mean * (1 + noise * draw.uniform(-1, 1)), rate * 0.01, rate)


@pytest.mark.parametrize(("speed", "said"), [(1.2, 1.0), (1.0, 1.0), (0.9, 0.9), (0.75, 0.75), (0.6, 0.6)])
@pytest.mark.parametrize("noise", [0.0, 0.9])
def test_by_how_long_requests_wait(speed: float, noise: float, said: float) -> None:
    assert share(waiting(speed, noise)) == pytest.approx(said, abs=0.051 if noise else 1e-9)


@pytest.mark.parametrize(("each", "executions", "said"), [
    pytest.param(0.010, 10, 1.0, id="as measured"),
    pytest.param(0.011, 10, 1.0, id="a mean is above a median"),
    pytest.param(0.022, 10, 0.5, id="half as fast"),
    pytest.param(0.0145, 2.5, 1.0, id="larger batches take longer"),
    pytest.param(0.033, 2.5, 0.60, id="even for larger batches"),
    pytest.param(0.022, 0, 1.0, id="batches are not counted"),
])
def test_by_how_long_they_are_computed_in_batches_of_that_size(each: float, executions: float, said: float) -> None:
    rate = 200.0
    spent = Spent(1.0, rate, 0.0, rate * each, rate * executions / 10)
    assert share(lambda _: spent, BATCHES) == pytest.approx(said)


def test_one_bad_moment_is_no_slow_replica() -> None:
    usual = waiting(1.0)
    assert share(lambda time: Spent(1.0, RATE, 40.0, 1.0, RATE) if time == 200 else usual(time)) == 1.0


@pytest.mark.parametrize(("seconds", "rate"), [(LEAST * 10 - 10, RATE), (300, 1.0)], ids=["too short", "too idle"])
def test_little_says_nothing(seconds: int, rate: float) -> None:
    assert share(lambda _: Spent(1.0, rate, 9.0 * rate, rate, rate), seconds=seconds) == 1.0


def test_samples_that_tell_nothing_are_left_out() -> None:
    slow = waiting(0.75)
    assert share(lambda time: slow(time) if time % 3 else Spent()) == 0.75
    assert share(lambda _: Spent()) == 1.0


def test_what_waits_in_a_backlog_tells_of_the_load() -> None:
    spent = {name: Spent(1.0, 9.0, 3.0, 1.0, 9.0) for name in "abcd"}
    before = Sample(time=0.0, ready=4, pending={"a": 6.0, "b": 7.0, "c": 0.0})
    after = Sample(time=1.0, ready=4, pending={"a": 0.0, "b": 0.0, "c": 7.0, "d": 0.0}, spent=spent)
    assert calm(before, after) == spent["a"]


COUNTS, SECONDS = st.floats(0, 500), st.floats(0, 1e4)


@given(st.lists(st.builds(Spent, st.just(1.0), COUNTS, SECONDS, SECONDS, COUNTS), min_size=2, max_size=200),
       st.sampled_from([ONE_BY_ONE, BATCHES]))
def test_whatever_was_counted_a_share_is_said(spent: list[Spent], capacity: Capacity) -> None:
    said = share(lambda time: spent[time % len(spent)], capacity, len(spent))
    assert 0.05 <= said <= 1.0


def test_for_the_sake_of_what_requests_take_replicas_are_doubled_at_most() -> None:
    """An objective that is hardly more than the compute time: no number of slower replicas would do."""
    hard = replace(ONE_BY_ONE, objective_seconds=0.07)
    slow = tuple(replace(one, arrived=RATE) for one in samples(waiting(0.75)))

    def needed(*, latency: bool) -> int:
        rule = Needs(hard, ScaleLimits(max_replicas=1000), Parts(latency=latency))
        return rule.of(intervals(slow), 1, slow, 1).up

    assert needed(latency=True) == 2 * needed(latency=False)


def day(seed: int) -> list[float]:
    """A quarter of an hour with a rate of 10 to 90 requests a second, after a quarter at 30."""
    draw, now, found = random.Random(seed), 0.0, []
    while (now := now + draw.expovariate(90)) < 1800:
        rate = 30 if now < 900 else 50 - 40 * math.cos(2 * math.pi * (now - 900) / 450)
        if draw.random() * 90 < rate:
            found.append(now)
    return found


def play(speed: float, service: Service, slo: float, *, latency: bool) -> Run:
    measured = Scenario(service=service, slo=slo, max_replicas=40, seed=1)
    true = Scenario(service=Service(seconds=tuple(one / speed for one in service.seconds), pause=service.pause / speed),
                    slo=slo, max_replicas=40, seed=1)
    policy = Enginewright(ScaleLimits(max_replicas=40), measured.measured, Parts(latency=latency))
    policy.initial = 14  # so that none is full at first, and known to be slow by that
    return simulate(day(1), policy, true)


SINGLE = Service(seconds=(0.0, 0.01), pause=0.04)
BATCHED = Service(seconds=(0.0, 0.050, 0.055, 0.06, 0.065))


@pytest.mark.study
@pytest.mark.parametrize(("service", "slo"), [(SINGLE, 0.1), (BATCHED, 0.13)], ids=["single", "batched"])
def test_requests_are_late_far_less_often_at_slower_replicas_and_nothing_changes_at_others(
    service: Service, slo: float
) -> None:
    """An objective near the latency, so that requests are late before a replica is full."""
    without, found = (play(0.75, service, slo, latency=latency) for latency in (False, True))
    assert len(found.ledger.late) < 0.5 * len(without.ledger.late)
    without, found = (play(1.0, service, slo, latency=latency) for latency in (False, True))
    assert found.changes == without.changes

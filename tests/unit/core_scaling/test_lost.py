"""What was lost is told by the queues that were seen, and what may still be lost by that."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.scaling import Capacity, ScaleLimits
from enginewright.core.scaling.arrivals import Interval
from enginewright.core.scaling.floor import Fleet, Shares, _shares, _steps, least_floor
from enginewright.core.scaling.lost import added, found_queued, lost
from enginewright.core.scaling.needs import Parts
from enginewright.core.signals import Sample
from enginewright.observe.window import Window
from enginewright_simulation.curve import of_figures
from enginewright_simulation.policies.base import Seen
from enginewright_simulation.policies.enginewright import Enginewright
from enginewright_simulation.run import Scenario, simulate

TWENTY = Capacity(throughput=20.0, curve=((1, 0.05),), objective_seconds=0.25, cold_start_seconds=20.0)


@pytest.mark.parametrize(("pending", "arrived", "found"), [
    ({"a": 0.0, "b": 0.0}, 10.0, ()),
    ({"a": 1.0, "b": 0.0}, 10.0, (5.0,)),
    ({"a": 5.0, "b": 2.0}, 10.0, (10.0, 10.0, 5.0)),
    ({"a": 5.0}, None, ()),
    ({}, 10.0, ()),
])
def test_how_many_found_how_much(pending: dict[str, float], arrived: float | None, found: tuple[float, ...]) -> None:
    assert found_queued(Sample(time=0.0, ready=2, pending=pending, arrived=arrived)) == found


def test_late_is_who_found_more_than_can_be_answered_in_time() -> None:
    """A spare of 0.2 s: 4 requests at 20 a second."""
    seen = [Sample(time=0.0, ready=1, queued=(10.0, 8.0, 6.0, 4.0)), Sample(time=1.0, ready=1, queued=(3.0,))]
    assert lost(seen, TWENTY, 0.25) == pytest.approx(6.0)
    assert lost(seen, TWENTY, 0.45) == pytest.approx(4.0)
    assert lost(seen, TWENTY, 0.35) == pytest.approx(4.8, abs=0.1)  # 6 are between 4 and 8
    assert lost([], TWENTY, 0.25) == 0


@pytest.mark.parametrize("throughput", [20.0, 3000.0, 6000.0, 100_000.0])
def test_who_waits_ten_times_too_long_is_late_however_fast_the_model(throughput: float) -> None:
    fast = replace(TWENTY, throughput=throughput, curve=((1, 1 / throughput),), objective_seconds=1.0)
    sample = Sample(time=0.0, ready=1, pending={"a": 10 * throughput}, arrived=throughput)
    assert lost([replace(sample, queued=found_queued(sample))], fast, 1.0) == pytest.approx(throughput)


def test_what_is_kept_is_as_short_as_the_longest_queue() -> None:
    assert len(found_queued(Sample(time=0.0, ready=1, pending={"a": 9.0}, arrived=1.0))) == 4
    assert len(found_queued(Sample(time=0.0, ready=1, pending={"a": 1e9}, arrived=1.0))) == 20


queues = st.lists(st.floats(0, 100), max_size=6).map(tuple)


@given(queues, queues, queues)
def test_they_add_up_in_any_order(one: tuple[float, ...], two: tuple[float, ...], three: tuple[float, ...]) -> None:
    assert added(one, two) == added(two, one)
    assert added(added(one, two), three) == pytest.approx(added(one, added(two, three)))


def test_an_hour_of_them_is_kept() -> None:
    window = Window(started=0.0)
    for second in range(3000):
        window.add(Sample(time=float(second), ready=1, pending={"a": float(second % 9)}, arrived=1.0))
    kept = [sum(one) for one in zip(*(sample.queued[:3] for sample in window.view().samples if len(sample.queued) > 2),
                                    strict=True)]
    assert kept[2] == pytest.approx(3000 * 5 / 9, rel=0.01)


class Counting(Enginewright):
    """Tells at the end how many requests it takes for late."""

    def decide(self, seen: Seen) -> int:
        wanted = super().decide(seen)
        assert self._capacity
        self.lost = lost(self._window.view().samples, self._capacity, self._capacity.patience(4))
        return wanted


def test_it_is_what_was_late_in_the_simulator() -> None:
    draw = random.Random(3)
    came, now = [], 0.0
    while (now := now + draw.expovariate(90.0)) < 900:
        if draw.random() < (1.0 if now % 200 > 150 else 0.3):
            came.append(now)
    scenario = Scenario(service=of_figures(10.0, 20.0), seed=3, cold_start=20.0, max_replicas=20)
    policy = Counting(ScaleLimits(max_replicas=20), scenario.measured)
    late = len(simulate(came, policy, scenario).ledger.late)
    assert late > 500
    assert policy.lost == pytest.approx(late, rel=0.15)


def fleet() -> Fleet:
    """Half of what a replica can do keeps all but 0.4 % in time."""
    return Fleet(need=lambda rate, _: max(1, math.ceil(rate / 10)), throughput=20.0, cold=20.0, patience=0.2,
                 late=lambda rate, count: min(1.0, (rate / count / 20) ** 8))


def cells(*rates: float) -> list[Interval]:
    return [Interval(time=5.0 * place, seconds=5.0, arrived=5.0 * rate) for place, rate in enumerate(rates, start=1)]


def late_shares(load: list[Interval], floor: int) -> Shares:
    """Had there never been fewer than ``floor`` replicas."""
    return _shares(_steps(load, fleet()), floor, fleet())


CALM, BURST = [20.0] * 60, [150.0] * 12


def test_a_steady_load_wins_nothing_back_by_more_replicas() -> None:
    """What is late then is late by chance, with as many as are needed."""
    assert late_shares(cells(*CALM), 2).all > 0
    assert late_shares(cells(*CALM), 2).short == 0
    assert least_floor(cells(*CALM), fleet(), 2, 12, 0.01, 0.0) == 2


def test_what_comes_back_is_awaited_with_more_the_less_may_be_lost() -> None:
    load = cells(*(CALM + BURST) * 3)
    floors = [least_floor(load, fleet(), 2, 15, 0.05, left) for left in (0.05, 0.02, 0.0)]
    assert floors == sorted(floors)
    assert floors[0] < floors[-1] <= 15
    assert late_shares(load, floors[-1]).short <= 0.05 * late_shares(load, 2).short


def test_after_a_loss_more_is_kept_for_the_next_burst() -> None:
    """The same arrivals, of which in one case many found long queues."""
    kept = {}
    for queued in (0.0, 100.0):
        for parts in (Parts(), Parts(budget=False)):
            kept[queued, parts.budget] = _kept(queued, parts)
    assert kept[0.0, True] == kept[0.0, False] == kept[100.0, False]
    assert kept[100.0, True] > kept[0.0, True]


def _kept(queued: float, parts: Parts) -> int:
    """Replicas some time after a burst, of twenty in which it left as many."""
    policy = Enginewright(ScaleLimits(max_replicas=40), replace(TWENTY, objective_seconds=0.3), parts)
    wanted = 12
    for second in range(900):
        burst = second % 300 < 40
        queue = queued if burst and second < 40 else 0.0
        pending = {f"r{number}": queue / wanted for number in range(wanted)}
        wanted = policy.decide(Seen(time=float(second), desired=wanted, pending=pending, arrived=100 if burst else 20))
    return wanted

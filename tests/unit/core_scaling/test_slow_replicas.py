"""The whole loop, with replicas that are not what the build measured: what is asked for changes what is seen next."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginewright.core.scaling import Capacity, ScaleLimits, decide_replicas
from enginewright.core.scaling.limits import ScaleDecision
from enginewright.core.scaling.seen import believe
from enginewright.core.signals import Sample
from enginewright.observe.window import Window

COLD = 20.0


@dataclass
class Replica:
    name: str
    does: float
    ready_at: float
    made_at: float
    queue: float = 0.0


@dataclass
class Loop:
    """A fluid that reaches ready replicas in equal shares, each with a queue of its own. ``does`` gives requests a
    second of the replica with that number; the youngest go first. One step a second."""

    capacity: Capacity
    does: Callable[[int], float]
    limits: ScaleLimits = field(default_factory=lambda: ScaleLimits(min_replicas=1, max_replicas=60))
    made: int = 0
    now: float = 0.0
    replicas: list[Replica] = field(default_factory=list)
    told: list[ScaleDecision] = field(default_factory=list)
    window: Window = field(default_factory=lambda: Window(0.0))

    def start(self, count: int, cold: float = COLD) -> None:
        for _ in range(count):
            self.replicas.append(Replica(f"r{self.made}", self.does(self.made), self.now + cold, self.now))
            self.made += 1

    def run(self, rate: Callable[[float], float], seconds: int) -> None:
        if not self.replicas:
            self.start(1, cold=0.0)
        for _ in range(seconds):
            self.step(rate(self.now))

    def step(self, rate: float) -> None:
        self.now += 1.0
        ready = [one for one in self.replicas if one.ready_at <= self.now]
        served = {}
        for one in ready:
            there = one.queue + rate / len(ready)
            served[one.name] = min(there, one.does)
            one.queue = there - served[one.name]
        self.window.add(Sample(
            time=self.now, ready=len(ready), arrived=rate, served=served,
            pending={one.name: float(int(one.queue)) for one in ready},
            starting=tuple(self.now - one.made_at for one in self.replicas[len(ready) :]),
        ))
        made = decide_replicas(self.window.view(), len(self.replicas), self.limits, self.now, self.capacity)
        self.window.recommend(self.now, *made.wishes)
        self.told.append(made)
        del self.replicas[made.replicas :]
        self.start(made.replicas - len(self.replicas))

    @property
    def counts(self) -> list[int]:
        return [one.replicas for one in self.told]


def reversals(counts: list[int]) -> int:
    ups = [after > before for before, after in itertools.pairwise(counts) if after != before]
    return sum(this != last for last, this in itertools.pairwise(ups))


def measured(throughput: float, objective: float) -> Capacity:
    return Capacity(throughput=throughput, curve=((1, 1 / throughput),), objective_seconds=objective,
                    cold_start_seconds=COLD)


@settings(max_examples=8, deadline=None)
@given(factor=st.floats(0.5, 1.2), load=st.floats(0.3, 6.0), throughput=st.sampled_from([20.0, 100.0, 800.0]),
       waits=st.floats(5.0, 40.0))
def test_a_constant_load_on_replicas_of_any_speed_settles(
    factor: float, load: float, throughput: float, waits: float
) -> None:
    """``load`` in replicas as they were measured, the objective in requests that may wait."""
    loop = Loop(measured(throughput, waits / throughput), lambda _: factor * throughput)
    loop.run(lambda _: load * throughput, 700)
    assert reversals(loop.counts) <= 1
    assert len(set(loop.counts[-100:])) == 1
    assert sum(one.queue for one in loop.replicas) < 1


@pytest.mark.study
@settings(max_examples=5, deadline=None)
@given(factor=st.floats(0.5, 1.2), low=st.floats(0.3, 4.0), rise=st.floats(1.0, 8.0), seconds=st.integers(30, 400))
def test_a_ramp_up_and_down_turns_once(factor: float, low: float, rise: float, seconds: int) -> None:
    throughput = 100.0
    loop = Loop(measured(throughput, 0.2), lambda _: factor * throughput)

    def rate(now: float) -> float:
        up, down = (now - 200) / seconds, (now - 500 - seconds) / seconds
        return throughput * (low + rise * (max(0.0, min(1.0, up)) - max(0.0, min(1.0, down))))

    loop.run(rate, 200)
    settling = reversals(loop.counts)
    loop.run(rate, 2 * seconds + 900)
    assert settling <= 1
    assert reversals(loop.counts[150:]) <= 1
    assert sum(one.queue for one in loop.replicas) < 1


def test_what_replicas_did_is_remembered_when_the_queue_is_gone() -> None:
    loop = Loop(measured(800.0, 0.02), lambda _: 600.0)
    loop.run(lambda _: 3000.0, 1800)
    assert reversals(loop.counts) <= 1
    assert loop.counts[-1] * 600 > 3000
    assert "seen at 75 % of what the build measured" in loop.told[-1].message


def test_another_revision_is_measured_anew() -> None:
    loop = Loop(measured(800.0, 0.02), lambda _: 600.0)
    loop.window.serve(["a"])
    loop.run(lambda _: 3000.0, 300)
    assert "75 %" in loop.told[-1].message
    loop.window.serve(["a", "b"])
    loop.run(lambda _: 1000.0, 5)
    assert "75 %" in loop.told[-1].message
    loop.window.serve(["b"])
    loop.run(lambda _: 1000.0, 5)
    assert "75 %" not in loop.told[-1].message


def test_it_is_forgotten_with_the_hour() -> None:
    loop = Loop(measured(20.0, 0.5), lambda _: 15.0)
    loop.run(lambda now: 100.0 if now < 300 else 5.0, 400)
    assert "75 %" in loop.told[-1].message
    for _ in range(3700):
        loop.now += 1.0
        loop.window.add(Sample(time=loop.now, ready=1, arrived=5.0, pending={"r0": 0.0}, served={"r0": 5.0}))
    loop.run(lambda _: 5.0, 1)
    assert "75 %" not in loop.told[-1].message


@pytest.mark.parametrize(("does", "least", "said"), [
    (0.0, 8, "r2 at 5 %"), (4.0, 8, "r2 at 20 %"), (10.0, 6, "r2 at 50 %"),
])
def test_one_slow_replica_among_four_is_seen(does: float, least: int, said: str) -> None:
    """The others would carry all of it. Its share is halved, not more: it is for a person to remove it."""
    loop = Loop(measured(20.0, 0.5), lambda number: does if number == 2 else 20.0)
    loop.start(4, cold=0.0)
    loop.run(lambda _: 52.0, 400)
    assert said in loop.told[-1].message
    assert least <= loop.counts[-1] <= 8
    assert reversals(loop.counts) <= 1
    assert loop.replicas[2].queue < 1 or does < 10
    del loop.replicas[2]
    loop.run(lambda _: 52.0, 600)
    assert "r2" not in loop.told[-1].message
    assert loop.counts[-1] == 4


def busy_for(seconds: float, step: float, each: float) -> float:
    """The share that is believed of a replica with 60 requests waiting all the time, which counts ``each`` answers at
    the end of each ``step`` seconds; it was measured with 12 a second."""
    window, ended = Window(0.0), 0
    for at in range(int(seconds)):
        served = each * (int(at / step) - ended)
        ended = int(at / step)
        window.add(Sample(time=float(at), ready=1, arrived=12.0, pending={"r0": 60.0}, served={"r0": served}))
    return believe(window.view().samples, measured(12.0, 0.5)).share


@pytest.mark.parametrize("seconds", range(8, 60, 5))
def test_one_whose_steps_take_longer_than_a_sample_is_not_taken_for_slow(seconds: int) -> None:
    assert busy_for(seconds, 4.0, 48.0) == 1.0
    assert busy_for(seconds, 3.6, 12 * 3.6) >= 0.85
    assert busy_for(40, 4.0, 24.0) == pytest.approx(0.5)


def test_one_that_ends_nothing_is_seen_after_a_while() -> None:
    assert busy_for(14, 1000.0, 0.0) == 1.0
    assert busy_for(17, 1000.0, 0.0) == pytest.approx(0.05)

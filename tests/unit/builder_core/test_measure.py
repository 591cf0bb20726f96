"""Measuring, on a clock of the test's own."""

from __future__ import annotations

import numpy as np
import pytest

from enginewright_builder.engines.base import Tensors
from enginewright_builder.measure import MAX_ROUNDS, MIN_ROUNDS, WARMUP_CALLS, Timing, measure, speedup, speedup_high

INPUTS = {"x": np.zeros((4, 2))}


class Machine:
    """Time passes only while a runner runs or someone pauses."""

    def __init__(self) -> None:
        self.now, self.calls = 0.0, dict[str, int]()

    def runner(self, name: str, milliseconds: float, cold: float = 0.0) -> object:
        def run(inputs: Tensors) -> None:
            first = self.calls.setdefault(name, 0) == 0
            self.calls[name] += 1
            self.now += (milliseconds + (cold if first else 0.0)) / 1e3

        return run

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def measure(self, budget: float, **milliseconds: float) -> dict[str, Timing]:
        runners = {name: self.runner(name, value, cold=50.0) for name, value in milliseconds.items()}
        return measure(runners, INPUTS, budget, clock=lambda: self.now, pause=self.pause)  # type: ignore[arg-type]


def test_cold_start_and_warm_up_are_apart() -> None:
    machine = Machine()
    timing = machine.measure(0.0, one=10.0)["one"]
    assert timing.cold_ms == pytest.approx(60.0)
    assert timing.times_ms == pytest.approx([10.0] * MIN_ROUNDS)
    assert machine.calls["one"] == WARMUP_CALLS + MIN_ROUNDS
    assert timing.throughput == pytest.approx(400.0)


def test_the_budget_bounds_the_rounds() -> None:
    timings = Machine().measure(1.0, one=10.0, other=30.0)
    rounds = len(timings["one"].times_ms)
    assert len(timings["other"].times_ms) == rounds
    # 40 ms and two pauses of 2 ms a round.
    assert rounds == pytest.approx(1.0 / 0.044, abs=1)
    assert len(Machine().measure(1e9, one=0.001)["one"].times_ms) == MAX_ROUNDS


def test_a_slow_patch_hits_all_alike() -> None:
    machine = Machine()
    factor = [1.0]

    def run(base: float) -> object:
        def call(inputs: Tensors) -> None:
            machine.now += base * factor[0]

        return call

    def pause(seconds: float) -> None:
        factor[0] = 5.0 if 0.2 < machine.now < 1.0 else 1.0

    timings = measure({"slow": run(0.02), "fast": run(0.01)}, INPUTS, 2.0, clock=lambda: machine.now, pause=pause)  # type: ignore[dict-item]
    assert speedup(timings["slow"], timings["fast"]) == pytest.approx(2.0)


def test_speedup_and_its_bound() -> None:
    rng = np.random.default_rng(0)
    slow = Timing(batch=1, times_ms=tuple(rng.normal(20, 1, 50)), cold_ms=0)
    fast = Timing(batch=1, times_ms=tuple(rng.normal(10, 1, 50)), cold_ms=0)
    assert speedup(slow, fast) == pytest.approx(2.0, rel=0.1)
    assert speedup(slow, fast) <= speedup_high(slow, fast) < 2.5

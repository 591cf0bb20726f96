"""Measuring, on a clock of the test's own."""

from __future__ import annotations

import numpy as np
import pytest

from enginewright_builder.competition.measure import MAX_ROUNDS, MIN_ROUNDS, WARMUP_CALLS, Stopwatch, Timing, measure

BATCH = 4


class Machine:
    """Time passes only while a runner runs or someone pauses."""

    def __init__(self) -> None:
        self.now, self.calls = 0.0, dict[str, int]()

    def runner(self, name: str, milliseconds: float, cold: float = 0.0) -> object:
        def run() -> None:
            first = self.calls.setdefault(name, 0) == 0
            self.calls[name] += 1
            self.now += (milliseconds + (cold if first else 0.0)) / 1e3

        return run

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def measure(self, budget: float, **milliseconds: float) -> dict[str, Timing]:
        runners = {name: self.runner(name, value, cold=50.0) for name, value in milliseconds.items()}
        return measure(runners, BATCH, budget, clock=lambda: self.now, pause=self.pause)  # type: ignore[arg-type]


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
        def call() -> None:
            machine.now += base * factor[0]

        return call

    def pause(seconds: float) -> None:
        factor[0] = 5.0 if 0.2 < machine.now < 1.0 else 1.0

    timings = measure({"slow": run(0.02), "fast": run(0.01)}, BATCH, 2.0, clock=lambda: machine.now, pause=pause)  # type: ignore[dict-item]
    ratios = np.divide(timings["slow"].times_ms, timings["fast"].times_ms)
    # All but the round in which the patch began or ended.
    assert np.sum(np.isclose(ratios, 2.0)) >= len(ratios) - 2


def test_a_call_is_bound_and_warmed_once_for_each_batch() -> None:
    machine, bound = Machine(), list[tuple[str, int]]()

    def bind(name: str, batch: int) -> object:
        bound.append((name, batch))
        return machine.runner(f"{name}@{batch}", 10.0 * batch, cold=50.0)

    watch = Stopwatch(bind=bind, clock=lambda: machine.now, pause=machine.pause)  # type: ignore[arg-type]
    first = watch.rounds(["a", "b"], 1, 3)
    again = watch.rounds(["b"], 1, 2)
    watch.rounds(["a"], 2, 1)
    assert bound == [("a", 1), ("b", 1), ("a", 2)]
    assert first == {"a": pytest.approx([10.0] * 3), "b": pytest.approx([10.0] * 3)}
    assert again == {"b": pytest.approx([10.0] * 2)}
    assert machine.calls == {"a@1": WARMUP_CALLS + 3, "b@1": WARMUP_CALLS + 5, "a@2": WARMUP_CALLS + 1}
    assert watch.timing("a", 1, first["a"]).cold_ms == pytest.approx(60.0)


def test_slow_calls_are_warmed_up_less() -> None:
    machine = Machine()
    watch = Stopwatch(bind=lambda name, batch: machine.runner(name, 400.0), clock=lambda: machine.now,  # type: ignore[arg-type, return-value]
                      pause=machine.pause)
    watch.rounds(["slow"], 1, 1)
    assert machine.calls == {"slow": 3}


@pytest.mark.parametrize(("count", "low", "high"), [(3, 0, 2), (5, 0, 4), (6, 0, 5), (20, 5, 14), (100, 39, 60)])
def test_the_interval_of_the_median_is_the_textbook_one(count: int, low: int, high: int) -> None:
    """Ranks for 95 % from the binomial tables (David and Nagaraja)."""
    timing = Timing(batch=1, times_ms=tuple(float(value) for value in reversed(range(count))), cold_ms=0)
    assert timing.interval == (low, high)


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    intervals = [Timing(batch=1, times_ms=tuple(rng.lognormal(0, 0.2, 25)), cold_ms=0).interval for _ in range(2000)]
    assert np.mean([low <= 1.0 <= high for low, high in intervals]) >= 0.95 - 0.01

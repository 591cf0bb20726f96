"""A choice that one slow request may have made is measured again, within the budget, and both measurements count."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginewright_builder.contract import BatchingRequest, InstancesRequest, ObjectiveRequest, ServingChoice
from enginewright_builder.engines.base import Artifact
from enginewright_builder.load import Call, LoadResult, Recorder, Request, joined
from enginewright_builder.measure.energy import DeviceUse
from enginewright_builder.sweep import Layers, Point, bench
from enginewright_builder.sweep.doubt import in_doubt
from enginewright_builder.sweep.objective import score
from enginewright_builder.sweep.reasons import reason
from enginewright_builder.sweep.search import Search
from enginewright_builder.sweep.search import run as run_search
from enginewright_builder.sweep.space import Space, Trial
from enginewright_builder.triton.client import Server
from support.reports import make_point

KNEE = ObjectiveRequest()


def at(load: int, throughput: float, p50: float, p99: float, errors: int = 0) -> Point:
    return dataclasses.replace(make_point(concurrency=load, throughput=throughput), p50_ms=p50, p99_ms=p99,
                               objective_ms=p99, mean_ms=load / throughput * 1e3, errors=errors)


# One core: 3.2 ms a request.
SOUND = (at(2, 305, 6.4, 7.4), at(4, 309, 12.8, 14.6), at(8, 310, 25.6, 29.5))


@pytest.mark.parametrize(
    ("best", "others", "again"),
    [
        pytest.param(at(1, 290, 3.2, 3.8), SOUND, [], id="nothing speaks against it"),
        pytest.param(at(1, 290, 3.2, 30.9), SOUND, [1, 2], id="beaten by three: the best of them is measured again"),
        pytest.param(at(1, 290, 3.2, 7.2), SOUND, [1], id="beaten by nobody, but its tail stands apart"),
        pytest.param(at(2, 300, 6.5, 7.6), SOUND, [], id="beaten by what noise is"),
        pytest.param(at(1, 290, 3.2, 3.8), (), [], id="nothing to hold it against"),
        pytest.param(at(2, 290, 6.6, 8.0), (at(2, 305, 6.4, 7.4, errors=1),), [], id="who fails beats nobody"),
    ],
)
def test_what_is_measured_again(best: Point, others: tuple[Point, ...], again: list[int]) -> None:
    assert [point.concurrency for point in in_doubt([best, *others], best, KNEE)] == again


@pytest.mark.parametrize(("latency", "again"), [(0.0, [16, 8]), (60.0, [])], ids=["no objective", "within it"])
def test_a_simpler_point_that_ties_within_the_objective_is_no_surprise(latency: float, again: list[int]) -> None:
    best, faster = at(16, 309, 51.2, 57.0), at(8, 310, 25.6, 28.0)
    found = in_doubt([best, faster], best, ObjectiveRequest(latency_ms=latency))
    assert [point.concurrency for point in found] == again


class Machine:
    """One core in closed loop, a second a measurement; ``slow`` says by how many times the tail of the n-th measurement
    of a load is longer, and ``mean`` by how many the mean. What is measured twice shows the mean of both."""

    def __init__(self, slow: Callable[[int, int], float], mean: Callable[[int, int], float] = lambda load, n: 1.0):
        self.slow, self.mean = slow, mean
        self.seen: dict[Trial, list[Point]] = {}
        self.rivals: list[tuple[Trial, Point | None]] = []

    async def measure(self, trial: Trial, rival: Point | None) -> Point:
        self.rivals.append((trial, rival))
        windows = self.seen.setdefault(trial, [])
        load, p50 = trial.concurrency, 3.2 * max(1, trial.concurrency)
        mean = p50 * 1.05 * self.mean(load, len(windows))
        p99 = max(mean, p50 * 1.15 * self.slow(load, len(windows)))
        windows.append(dataclasses.replace(
            at(load, load / mean * 1e3, p50, p99), mean_ms=mean, serving=trial.serving))
        tail = statistics.fmean(one.p99_ms for one in windows)
        return dataclasses.replace(windows[-1], p99_ms=tail, objective_ms=tail,
                                   throughput=statistics.fmean(one.throughput for one in windows),
                                   mean_ms=statistics.fmean(one.mean_ms for one in windows))


    def clock(self, seconds: float) -> Callable[[], float]:
        """What is left of so many."""
        return lambda: seconds - len(self.rivals)


def search(machine: Machine, *, objective: ObjectiveRequest = KNEE, limit: int = 12,
           seconds: float = math.inf) -> tuple[Search, Point]:
    space = Space.of(max_batch_size=1, batching=BatchingRequest(), instances=InstancesRequest(count=1), cores=1, gpus=0)
    found = Search(space=space, objective=objective, left=limit)
    return found, asyncio.run(run_search(found, machine.measure, machine.clock(seconds)))


@pytest.mark.parametrize(("limit", "seconds"), [(3, math.inf), (4, math.inf), (12, math.inf), (12, 3.0), (12, 3.5),
                                                (12, 5.0)])
def test_the_chosen_point_and_who_beats_it_are_measured_again(limit: int, seconds: float) -> None:
    """The one slow request of the first window is not there in the second."""
    machine = Machine(lambda load, n: 9.0 if (load, n) == (1, 0) else 1.0)
    found, best = search(machine, limit=limit, seconds=seconds)
    assert best.concurrency == 1
    times = Counter(step.trial.concurrency for step in found.steps)
    assert times[1] == 2
    assert len(found.steps) <= min(limit, math.ceil(seconds) if seconds < math.inf else limit)
    assert best.p99_ms < 9 * 1.15 * 3.2
    assert len(found.points) == len(times)
    assert f"{len(found.steps)} measurements, {len(found.steps) - len(times)} of them again" in reason(
        found, best, KNEE)


def test_what_the_second_measurement_says_decides() -> None:
    """Its first mean was luck: by both, one request in flight is no longer the knee."""
    slow = Machine(lambda load, n: 9.0 if load == 1 else 1.0, lambda load, n: 3.0 if (load, n) == (1, 1) else 1.0)
    found, best = search(slow)
    assert best.concurrency != 1
    assert score(best, KNEE) == max(score(point, KNEE) for point in found.points)


def test_nothing_is_measured_again_where_nothing_speaks_against_the_choice() -> None:
    found, best = search(Machine(lambda load, n: 1.0))
    assert len(found.steps) == len(found.points)
    assert " again" not in reason(found, best, KNEE)


def test_who_is_measured_again_is_not_told_from_a_rival_alone() -> None:
    """A window that ends as soon as throughput is told from a rival's says little of a tail."""
    machine = Machine(lambda load, n: 9.0 if (load, n) == (1, 0) else 1.0)
    search(machine)
    again = [rival for index, (trial, rival) in enumerate(machine.rivals)
             if trial in [one for one, _ in machine.rivals[:index]]]
    assert again
    assert again == [None] * len(again)


def test_the_reason_says_when_nothing_was_left_to_measure_again() -> None:
    machine = Machine(lambda load, n: 9.0 if load == 1 else 1.0)
    space = Space.of(max_batch_size=1, batching=BatchingRequest(), instances=InstancesRequest(count=1), cores=1, gpus=0)
    found = Search(space=space, objective=KNEE)
    best = asyncio.run(run_search(found, machine.measure, machine.clock(2.0)))
    left = "and neither one nor time was left to see whether one slow request made this p99"
    assert f"2 measurements, {left}" in reason(found, best, KNEE)


def test_the_reason_does_not_say_so_where_the_rival_alone_is_in_doubt() -> None:
    """Three measurements: the second load's was the last."""
    found, best = search(Machine(lambda load, n: 9.0 if load == 1 else 1.0), limit=3)
    assert best.concurrency == 1
    assert found.doubted()
    assert "1 of them again" in reason(found, best, KNEE)
    assert "was left to see" not in reason(found, best, KNEE)


@given(limit=st.integers(1, 14), slow=st.integers(0, 2**30), latency=st.sampled_from([0.0, 8.0, 40.0]))
@settings(max_examples=25, deadline=None)
def test_whatever_stalls_the_budget_holds_and_no_point_is_measured_a_third_time(
        limit: int, slow: int, latency: float) -> None:
    machine = Machine(lambda load, n: 8.0 if slow >> (load.bit_length() * 2 + n) & 1 else 1.0)
    found, best = search(machine, objective=ObjectiveRequest(latency_ms=latency), limit=limit)
    assert 1 <= len(found.steps) <= limit
    assert max(Counter(step.trial for step in found.steps).values()) <= 2
    assert best in found.points


def window(latencies: list[float], compute: float) -> bench.Window:
    """One request after the other, seconds."""
    recorder, now = Recorder(), 0.0
    for latency in latencies:
        recorder.add(Call(now, now + latency, 1))
        now += latency
    return bench.Window(load=recorder.result("closed", now), mean_batch=1.0, use=DeviceUse(meter="", seconds=now),
                        layers=Layers(queue_ms=0, compute_ms=compute, input_output_ms=0, transport_ms=0))


async def test_two_measurements_of_a_point_pool_their_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two slow requests in a hundred are its p99; two in three hundred are not."""
    windows = [window([0.003] * 98 + [0.03] * 2, 3.0), window([0.003] * 200, 6.0)]

    async def seen(*_: object, **__: object) -> bench.Window:
        return windows[len(bench_.windows.get((serving, 1), ()))]

    async def loaded(self: bench.Bench, serving: ServingChoice) -> float:
        return 0.0

    monkeypatch.setattr(bench, "window", seen)
    monkeypatch.setattr(bench.Bench, "use", loaded)
    monkeypatch.setattr(bench.Bench, "threads", lambda self, serving: 1)
    serving = ServingChoice(max_batch_size=1)
    bench_ = bench.Bench(server=cast(Server, None), artifact=cast(Artifact, None), model_name="m",
                         requests=[Request(b"", 1)], objective=KNEE, cores=1, gpus=(), point_seconds=1.0)
    first, both = await bench_.point(serving, 1), await bench_.point(serving, 1)
    assert (first.p99_ms, both.p99_ms, both.objective_ms) == pytest.approx((30.0, 3.0, 3.0))
    assert both.requests == 300
    assert both.seconds == pytest.approx(0.954)
    assert both.throughput == pytest.approx(300 / 0.954)
    assert both.mean_ms == pytest.approx(954 / 300)
    assert both.layers.compute_ms == pytest.approx(5.0)
    assert both.throughput_low <= first.throughput_low
    assert both.throughput_high >= first.throughput_high


def test_a_window_that_saw_no_steps_takes_none_from_the_others() -> None:
    """The counters of the steps before the engine stand still where no request ends within a window."""
    stepped, silent = window([0.003] * 3, 2.0), window([0.003], 2.0)
    stepped = dataclasses.replace(stepped, layers=dataclasses.replace(stepped.layers, preprocess_ms=1.0))
    pooled = bench.together([stepped, silent]).layers
    assert pooled.preprocess_ms == pytest.approx(0.75)
    assert pooled.postprocess_ms is None
    assert pooled.total_ms == pytest.approx((3 * stepped.layers.total_ms + silent.layers.total_ms) / 4)


def test_failures_of_any_window_stay() -> None:
    def seen(error: str) -> LoadResult:
        recorder = Recorder()
        recorder.add(Call(0.1, 0.2, 1, error))
        recorder.add(Call(0.1, 0.3, 1))
        return recorder.result("closed", 1.0)

    both = joined([seen("UNAVAILABLE"), seen("")])
    assert (both.failed, both.errors, both.requests, both.measured) == (1, {"UNAVAILABLE": 1}, 4, 3)

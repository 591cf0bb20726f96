"""The search against a model of a server: what it finds, how few measurements it takes, and that it obeys the user."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginewright_builder.contract import BatchingRequest, InstancesRequest, ObjectiveRequest, ServingChoice
from enginewright_builder.sweep import Layers, Point
from enginewright_builder.sweep.bench import curve_batches, layers
from enginewright_builder.sweep.objective import clearly_better, met, replicas_needed, score
from enginewright_builder.sweep.search import Search, Space, reason

Model = Callable[[ServingChoice, int], tuple[float, float]]


def ideal(
    serving: ServingChoice, concurrency: int, *, cores: int = 4, service_ms: float = 10.0, delay_gain: float = 0.0
) -> tuple[float, float]:
    """Throughput and latency by the asymptotic bounds of a closed system: equal workers, a tenth of the service time
    spent outside them. A delay speeds the workers up by ``delay_gain``."""
    workers = min(serving.instance_count, cores)
    service = service_ms / (1 + delay_gain * (serving.max_queue_delay_us > 0))
    throughput = min(concurrency / (service + service_ms / 10), workers / service)
    return throughput * 1e3, concurrency / throughput


def run(
    model: Model,
    *,
    objective: ObjectiveRequest | None = None,
    batching: BatchingRequest | None = None,
    instances: InstancesRequest | None = None,
    cores: int = 4,
    limit: int = 12,
    noise: float = 0.01,
    max_batch_size: int = 8,
) -> tuple[Search, Point]:
    async def measure(serving: ServingChoice, concurrency: int, rival: Point | None) -> Point:
        throughput, latency = model(serving, concurrency)
        return Point(
            serving=serving,
            threads=1,
            concurrency=concurrency,
            batch=1,
            requests=100,
            errors=0,
            seconds=1.0,
            throughput=throughput,
            mean_ms=latency,
            p50_ms=latency,
            p90_ms=latency,
            p95_ms=latency,
            p99_ms=latency,
            objective_ms=latency,
            throughput_low=throughput * (1 - noise),
            throughput_high=throughput * (1 + noise),
            mean_batch=1.0,
            layers=Layers(queue_ms=0, compute_ms=latency, input_output_ms=0, transport_ms=0),
        )

    space = Space.of(
        max_batch_size=max_batch_size,
        batching=batching or BatchingRequest(),
        instances=instances or InstancesRequest(),
        cores=cores,
        gpus=0,
    )
    search = Search(space=space, objective=objective or ObjectiveRequest(), measure=measure, left=limit)
    return search, asyncio.run(search.run())


def test_all_cores_are_used_when_instances_scale() -> None:
    search, best = run(ideal)
    assert best.serving.instance_count == 4
    assert len(search.points) <= 12


def test_one_instance_stays_when_more_do_not_help() -> None:
    search, best = run(lambda serving, c: ideal(dataclasses.replace(serving, instance_count=1), c))
    assert best.serving.instance_count == 1
    assert max(point.serving.instance_count for point in search.points) == 2  # one look, no more


def test_noise_is_not_taken_for_a_gain() -> None:
    _, best = run(lambda serving, c: ideal(serving, c, cores=1, delay_gain=0.05), noise=0.1)
    assert best.serving.max_queue_delay_us == 0


def test_a_gain_within_noise_is_looked_at_twice() -> None:
    """A wide interval hides a real gain of a third: both are measured again, and better twice counts."""
    search, best = run(
        lambda serving, c: ideal(serving, c, cores=1, delay_gain=0.33),
        noise=0.5,
        objective=ObjectiveRequest(latency_ms=500),
    )
    assert best.serving.max_queue_delay_us > 0
    delays = [point.serving.max_queue_delay_us for point in search.points]
    assert delays.count(500) >= 2


def test_a_delay_that_pays_is_taken() -> None:
    _, best = run(
        lambda serving, c: ideal(serving, c, cores=1, delay_gain=0.5),
        noise=0.01,
        objective=ObjectiveRequest(latency_ms=500),
    )
    assert best.serving.max_queue_delay_us > 0


def test_latency_objective_bounds_the_operating_point() -> None:
    _, best = run(ideal, objective=ObjectiveRequest(latency_ms=25), cores=1)
    assert best.objective_ms <= 25
    assert best.concurrency == 2  # 4 in flight take 40 ms


def test_unreachable_objective_gives_the_fastest_and_says_so() -> None:
    objective = ObjectiveRequest(latency_ms=1)
    search, best = run(ideal, objective=objective, cores=1)
    assert not met(best, objective)
    assert best.objective_ms == min(point.objective_ms for point in search.points)
    assert "is missed" in reason(search, best, objective)


def test_what_the_user_fixed_is_honoured() -> None:
    search, best = run(
        ideal,
        batching=BatchingRequest(mode="fixed", preferred_batch_sizes=(4,), max_queue_delay_us=700),
        instances=InstancesRequest(mode="fixed", count=3),
    )
    assert {
        (p.serving.instance_count, p.serving.max_queue_delay_us, p.serving.preferred_batch_sizes) for p in search.points
    } == {(3, 700, (4,))}
    assert best.serving.instance_count == 3


@pytest.mark.parametrize("size", [0, 1])
def test_no_delay_is_tried_where_no_batch_forms(size: int) -> None:
    search, _ = run(ideal, max_batch_size=size)
    assert {point.serving.max_queue_delay_us for point in search.points} == {0}


@given(
    limit=st.integers(1, 14),
    cores=st.integers(1, 64),
    service=st.floats(0.1, 500),
    gain=st.floats(0, 2),
    latency=st.floats(0, 1000),
    noise=st.floats(0, 0.5),
    batch=st.integers(0, 64),
)
@settings(max_examples=150, deadline=None)
def test_never_more_than_the_budget_and_never_a_point_that_a_measured_one_beats(
    limit: int, cores: int, service: float, gain: float, latency: float, noise: float, batch: int
) -> None:
    objective = ObjectiveRequest(latency_ms=latency)
    search, best = run(
        lambda serving, c: ideal(serving, c, cores=cores, service_ms=service, delay_gain=gain),
        limit=limit,
        cores=cores,
        objective=objective,
        noise=noise,
        max_batch_size=batch,
    )
    assert 1 <= len(search.points) <= limit
    assert best in search.points
    same = [point for point in search.points if point.serving == best.serving]
    assert score(best, objective) == max(score(point, objective) for point in same)
    keys = [(point.serving, point.concurrency) for point in search.points]
    assert max(keys.count(key) for key in keys) <= 2
    # A point that misses the objective is only chosen when every one does.
    assert met(best, objective) or not any(met(point, objective) for point in search.points)


def test_time_ends_the_search() -> None:
    search, _ = run(ideal)
    search = Search(space=search.space, objective=search.objective, measure=search.measure, time_left=lambda: False)
    asyncio.run(search.run())
    assert len(search.points) == 1


def test_reason_names_replicas_for_the_throughput_asked_for() -> None:
    objective = ObjectiveRequest(latency_ms=100, throughput=1000)
    search, best = run(ideal, objective=objective, cores=1)
    assert replicas_needed(best, objective) == 10
    assert "1,000 inferences/s take 10 replicas" in reason(search, best, objective)


def test_meeting_the_objective_beats_any_throughput(make_point: Callable[..., Point]) -> None:
    objective = ObjectiveRequest(latency_ms=20)
    assert clearly_better(make_point(latency=19, throughput=50), make_point(latency=21, throughput=500), objective)
    assert not clearly_better(make_point(latency=21, throughput=500), make_point(latency=19, throughput=50), objective)


def test_a_point_with_errors_never_meets_an_objective(make_point: Callable[..., Point]) -> None:
    assert not met(dataclasses.replace(make_point(), errors=1), ObjectiveRequest())


def test_layers_are_differences_of_triton_counters() -> None:
    def stats(count: int, **ns: int) -> dict[str, dict[str, int]]:
        return {name: {"count": count, "ns": value} for name, value in ns.items()}

    before = stats(10, queue=0, compute_input=0, compute_infer=50_000_000, compute_output=0)
    after = stats(20, queue=20_000_000, compute_input=1_000_000, compute_infer=150_000_000, compute_output=2_000_000)
    found = layers(before, after, client_mean_ms=15.0)
    assert (found.queue_ms, found.compute_ms) == (2.0, 10.0)
    assert found.input_output_ms == pytest.approx(0.3)
    assert found.transport_ms == pytest.approx(2.7)


@pytest.mark.parametrize(("largest", "sizes"), [(0, [1]), (1, [1]), (8, [1, 2, 4, 8]), (12, [1, 2, 4, 8, 12])])
def test_curve_batches(largest: int, sizes: list[int]) -> None:
    assert curve_batches(largest) == sizes

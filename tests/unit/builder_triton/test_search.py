"""The search against a model of a server: what it finds, how few measurements it takes, and that it obeys the user."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginewright_builder.contract import BatchingRequest, InstancesRequest, ObjectiveRequest, ServingChoice
from enginewright_builder.measure.energy import DeviceUse, inferences_per_joule_drawn
from enginewright_builder.sweep import Layers, Point
from enginewright_builder.sweep.curve import curve_batches
from enginewright_builder.sweep.objective import met, replicas_needed, score
from enginewright_builder.sweep.power import LEAST_IDLE, PowerLine, log_rate
from enginewright_builder.sweep.predict import Predictor
from enginewright_builder.sweep.queueing import Coordinates, fit, log_throughput, prior_mean
from enginewright_builder.sweep.reasons import reason
from enginewright_builder.sweep.search import EQUAL, Search
from enginewright_builder.sweep.search import run as run_search
from enginewright_builder.sweep.space import DELAYS_US, Space, Trial

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
    max_batch_size: int = 8,
) -> tuple[Search, Point]:
    space = Space.of(
        max_batch_size=max_batch_size,
        batching=batching or BatchingRequest(),
        instances=instances or InstancesRequest(),
        cores=cores,
        gpus=0,
    )
    search = Search(space=space, objective=objective or ObjectiveRequest(), left=limit)
    return search, asyncio.run(run_search(search, measured_by(model)))


def measured_by(model: Model) -> Callable[[Trial, Point | None], Awaitable[Point]]:
    async def measure(trial: Trial, rival: Point | None) -> Point:
        throughput, latency = model(trial.serving, trial.concurrency)
        return Point(
            serving=trial.serving,
            threads=1,
            concurrency=trial.concurrency,
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
            throughput_low=throughput * 0.99,
            throughput_high=throughput * 1.01,
            mean_batch=1.0,
            layers=Layers(queue_ms=0, compute_ms=latency, input_output_ms=0, transport_ms=0),
        )

    return measure


def best_of_all(model: Model, search: Search) -> float:
    """The highest score in the whole space."""
    async def every() -> list[Point]:
        return [await measured_by(model)(trial, None) for trial in search.space.trials()]

    return max(score(point, search.objective)[1] for point in asyncio.run(every()))


def test_all_cores_are_used_when_instances_scale() -> None:
    search, best = run(ideal)
    assert best.serving.instance_count == 4
    assert len(search.points) <= 12


def test_one_instance_stays_when_more_do_not_help() -> None:
    _, best = run(lambda serving, c: ideal(dataclasses.replace(serving, instance_count=1), c))
    assert best.serving.instance_count == 1


def test_of_equals_the_simplest_is_chosen() -> None:
    """A delay gains less than what is worth a longer queue, a smaller batch nothing."""
    search, best = run(lambda serving, c: ideal(serving, c, cores=1, delay_gain=0.001))
    assert best.serving == ServingChoice(max_batch_size=8, max_queue_delay_us=0, instance_count=1)
    assert score(best, search.objective)[1] >= EQUAL * max(score(one, search.objective)[1] for one in search.points)


def test_a_delay_that_pays_is_taken() -> None:
    _, best = run(
        lambda serving, c: ideal(serving, c, cores=1, delay_gain=0.5), objective=ObjectiveRequest(latency_ms=500)
    )
    assert best.serving.max_queue_delay_us > 0


def test_a_smaller_batch_that_pays_is_taken() -> None:
    """A machine whose caches hold two samples, not eight, and one core."""

    def crowded(serving: ServingChoice, concurrency: int) -> tuple[float, float]:
        return ideal(serving, concurrency, cores=1, service_ms=10.0 if serving.max_batch_size <= 2 else 14.0)

    space = dataclasses.replace(run(ideal, cores=1)[0].space, batch_sizes=(1, 2, 8))
    search = Search(space=space, objective=ObjectiveRequest(latency_ms=1000))
    assert asyncio.run(run_search(search, measured_by(crowded))).serving.max_batch_size <= 2


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
        (
            p.serving.instance_count,
            p.serving.max_queue_delay_us,
            p.serving.preferred_batch_sizes,
            p.serving.max_batch_size,
        )
        for p in search.points
    } == {(3, 700, (4,), 8)}
    assert best.serving.instance_count == 3


@pytest.mark.parametrize("size", [0, 1])
def test_no_delay_is_tried_where_no_batch_forms(size: int) -> None:
    search, _ = run(ideal, max_batch_size=size)
    assert {(p.serving.max_queue_delay_us, p.serving.max_batch_size) for p in search.points} == {(0, size)}


def test_clients_may_send_batches_of_all_that_the_spec_allows() -> None:
    """Triton refuses a request of more rows than its maximum, so a build tries no smaller one."""
    search, _ = run(ideal, max_batch_size=32)
    assert {point.serving.max_batch_size for point in search.points} == {32}


def test_steps_of_sequences_are_tried_joined_and_alone() -> None:
    """A step alone waits for no other, and no preferred size is above 1 there."""
    space = Space.of(max_batch_size=8, batching=BatchingRequest(preferred_batch_sizes=(4,)),
                     instances=InstancesRequest(count=1), cores=2, gpus=0, stepped=True)
    found = [(one.max_batch_size, one.preferred_batch_sizes, one.max_queue_delay_us) for one in space.servings()]
    assert found == [(1, (), 0), *((8, (4,), delay) for delay in DELAYS_US)]
    assert Space.of(max_batch_size=0, batching=BatchingRequest(), instances=InstancesRequest(count=1), cores=2, gpus=0,
                    stepped=True).batch_sizes == (0,)


def test_every_trial_is_in_the_space_once() -> None:
    space = Space.of(
        max_batch_size=32, batching=BatchingRequest(), instances=InstancesRequest(), cores=2, gpus=1
    )
    trials = space.trials()
    assert len(set(trials)) == len(trials)
    assert set(space.first()) <= set(trials)
    assert max(trial.serving.instance_count for trial in trials) == 4


@given(
    limit=st.integers(1, 14),
    cores=st.integers(1, 16),
    service=st.floats(0.1, 500),
    gain=st.floats(0, 2),
    latency=st.floats(0, 1000),
    batch=st.integers(0, 64),
)
@settings(max_examples=settings().max_examples // 4)
def test_never_more_than_the_budget_and_never_a_point_that_a_measured_one_beats(
    limit: int, cores: int, service: float, gain: float, latency: float, batch: int
) -> None:
    objective = ObjectiveRequest(latency_ms=latency)
    search, best = run(
        lambda serving, c: ideal(serving, c, cores=cores, service_ms=service, delay_gain=gain),
        limit=limit,
        cores=cores,
        objective=objective,
        max_batch_size=batch,
    )
    assert 1 <= len(search.steps) <= limit
    assert best in search.points
    trials = [step.trial for step in search.steps]
    assert len(set(trials)) == len(trials)
    assert set(trials) <= set(search.space.trials())
    # A point that misses the objective is only chosen when every one does.
    assert met(best, objective) or not any(met(point, objective) for point in search.points)
    top = max(score(point, objective) for point in search.points)
    assert score(best, objective)[1] == pytest.approx(top[1], rel=1.1 * (1 - EQUAL))


@pytest.mark.parametrize("gain", [0.0, 0.5])
@pytest.mark.parametrize("cores", [1, 4])
@pytest.mark.parametrize("latency", [0.0, 40.0, 1e6])
def test_near_the_best_of_the_whole_space(gain: float, cores: int, latency: float) -> None:
    def model(serving: ServingChoice, concurrency: int) -> tuple[float, float]:
        return ideal(serving, concurrency, cores=cores, delay_gain=gain)

    search, best = run(model, cores=cores, objective=ObjectiveRequest(latency_ms=latency))
    assert score(best, search.objective)[1] >= 0.99 * best_of_all(model, search)


def test_time_ends_the_search() -> None:
    search = Search(space=run(ideal)[0].space, objective=ObjectiveRequest())
    asyncio.run(run_search(search, measured_by(ideal), lambda: 0.0))
    assert len(search.points) == 1


def test_reason_says_what_the_alternatives_gave_and_what_is_left() -> None:
    objective = ObjectiveRequest(latency_ms=100, throughput=1000)
    search, best = run(ideal, objective=objective, cores=2)
    text = reason(search, best, objective)
    assert replicas_needed(best, objective) == 5
    assert text.startswith("2 instances, queue delay 0 µs, batches of up to 8: 200 inferences/s")
    assert "1,000 inferences/s take 5 replicas" in text
    assert "At best, 1 instance " in text
    assert f"{len(search.steps)} measurements; the most promising that is left is expected to gain 0." in text


def test_reason_says_how_many_steps_a_run_had(make_point: Callable[..., Point]) -> None:
    best = dataclasses.replace(make_point(), serving=ServingChoice(max_batch_size=8), mean_batch=3.25)
    search = Search(space=run(ideal)[0].space, objective=ObjectiveRequest())
    search.tell(Trial.of(best), best)
    text = reason(search, best, ObjectiveRequest(), stepped=True)
    assert "steps of up to 8 sequences in one run, 3.2 of them in the mean: " in text
    alone = dataclasses.replace(best, serving=ServingChoice(max_batch_size=1))
    assert "each step alone: " in reason(search, alone, ObjectiveRequest(), stepped=True)


def test_reason_says_where_requests_are_too_few_for_the_percentile() -> None:
    """100 were measured at each point."""
    objective = ObjectiveRequest(latency_ms=100, latency_percentile=99.9)
    search, best = run(ideal, objective=objective, cores=2)
    assert "(that is the slowest of 100 requests; p99.9 takes 1,000, which" in reason(search, best, objective)
    assert "the slowest of" not in reason(search, best, ObjectiveRequest(latency_ms=100))


@pytest.mark.parametrize(("each", "outside"), [(0.9, 0.1), (0.01, 0.45)], ids=["as a CPU", "as a GPU"])
def test_the_queueing_model_finds_its_own_parameters_again(each: float, outside: float) -> None:
    space = Space.of(max_batch_size=16, batching=BatchingRequest(), instances=InstancesRequest(), cores=4, gpus=0)
    everything = Coordinates.of(space.trials())
    # 2 ms a request alone, instances that share half, at most 20 a millisecond.
    truth = np.array([np.log(2.0 * (1 - outside)), np.log(each / (1 - each)), 0.5, np.log(2.0 * outside), np.log(20.0)])
    some = Coordinates.of(space.trials()[::7])
    measured = log_throughput(truth, some)
    found, covariance = fit(some, measured, 0.01**2 * np.eye(len(measured)), prior_mean(2.0, 2.0 * outside))
    np.testing.assert_allclose(log_throughput(found, everything), log_throughput(truth, everything), atol=0.05)
    assert covariance.shape == (len(truth), len(truth))
    assert (np.linalg.eigvalsh(covariance) > 0).all()


def test_the_queueing_model_keeps_the_laws() -> None:
    """More load never serves less, one request alone takes its service time, a full server serves what it can."""
    # 2.5 ms a request alone, of which each further one adds a fifth; half shared; 0.3 ms outside.
    parameters = np.array([np.log(2.5), np.log(0.25), 0.5, np.log(0.3), np.log(1e6)])
    loads = (1, 2, 4, 8, 16, 32, 64, 128)
    serving = ServingChoice(max_batch_size=8, instance_count=2)
    rates = np.exp(log_throughput(parameters, Coordinates.of([Trial(serving=serving, concurrency=c) for c in loads])))
    assert (np.diff(rates) > -1e-9).all()
    # The corner between bounds is rounded, by 9 % where two meet.
    assert rates[0] == pytest.approx(1 / 2.8, rel=0.09)
    assert rates[-1] == pytest.approx(2 * 8 / ((2 + 8 * 0.5) * 2**0.5), rel=0.02)


@pytest.mark.parametrize(("delay_us", "load", "rate"), [
    (5000, 4, 4 / (0.3 + 2 + 4 * 0.5 + 5)),  # too few to fill a batch: they wait in vain, together
    (5000, 8, 8 / (0.3 + 2 + 8 * 0.5)),  # a batch's worth: it goes at once, and the other instance idles
    (0, 1, 1 / 2.8),
])
def test_a_delay_gathers_all_and_costs_its_length_only_where_no_batch_fills(
        delay_us: int, load: int, rate: float) -> None:
    parameters = np.array([np.log(2.5), np.log(0.25), 0.5, np.log(0.3), np.log(1e6)])
    serving = ServingChoice(max_batch_size=8, instance_count=2, max_queue_delay_us=delay_us)
    found = np.exp(log_throughput(parameters, Coordinates.of([Trial(serving=serving, concurrency=load)])))
    assert found[0] == pytest.approx(rate, rel=0.15)


def stalled(point: Point) -> Point:
    """Nine requests in ten as before, and one that waited for a graph to be captured: throughput falls to a tenth."""
    return dataclasses.replace(point, throughput=point.throughput / 10, mean_ms=point.mean_ms * 10,
                               p99_ms=point.p99_ms * 90, objective_ms=point.objective_ms * 90)


def test_a_stall_in_one_window_is_not_taken_for_the_servers_ceiling() -> None:
    search, _ = run(ideal, objective=ObjectiveRequest(latency_ms=1e6))
    points = [search.points[0], stalled(search.points[1])]
    prediction, sound = (Predictor(search.space.trials()).predict(some) for some in (points, search.points[:2]))
    assert np.exp(prediction.throughput.max()) > 0.5 * np.exp(sound.throughput.max())


def test_what_the_model_explains_badly_makes_all_else_less_certain() -> None:
    search, _ = run(ideal, objective=ObjectiveRequest(latency_ms=50))
    points = search.points[:4]
    odd = [*points[:3], dataclasses.replace(points[3], **{name: 4 * getattr(points[3], name) for name in (
        "mean_ms", "p50_ms", "p99_ms", "objective_ms")}, throughput=points[3].throughput / 4)]
    predictor = Predictor(search.space.trials())
    fine, bad = predictor.predict(points), predictor.predict(odd)
    assert np.median(bad.throughput_spread) > 1.5 * np.median(fine.throughput_spread)


def test_predictions_agree_with_what_was_measured_and_are_surest_there() -> None:
    search, _ = run(ideal, objective=ObjectiveRequest(latency_ms=50))
    prediction = Predictor(search.space.trials()).predict(search.points)
    where = [search.space.trials().index(step.trial) for step in search.steps]
    np.testing.assert_allclose(np.exp(prediction.throughput[where]), [p.throughput for p in search.points], rtol=0.03)
    others = np.delete(prediction.throughput_spread, where)
    # One request alone fills no batch under any delay: what was measured of one delay is known of all.
    assert prediction.throughput_spread[where].max() <= 1.01 * others.min()


def test_a_point_with_errors_never_meets_an_objective(make_point: Callable[..., Point]) -> None:
    assert not met(dataclasses.replace(make_point(), errors=1), ObjectiveRequest())


@pytest.mark.parametrize(("largest", "sizes"), [(0, [1]), (1, [1]), (8, [1, 2, 4, 8]), (12, [1, 2, 4, 8, 12])])
def test_curve_batches(largest: int, sizes: list[int]) -> None:
    assert curve_batches(largest) == sizes


SAVES = ObjectiveRequest(latency_ms=200, minimise="energy")


def drawing(point: Point, watts: float) -> Point:
    return dataclasses.replace(point, use=DeviceUse(meter="nvml", seconds=2.0, joules=2 * watts))


def thirsty(serving: ServingChoice, concurrency: int) -> tuple[float, float]:
    """More than two instances gain a little."""
    two = dataclasses.replace(serving, instance_count=min(2, serving.instance_count))
    throughput, latency = ideal(two, concurrency)
    gain = 1.1 if serving.instance_count > 2 else 1.0
    return throughput * gain, latency / gain


def with_power(model: Model) -> Callable[[Trial, Point | None], Awaitable[Point]]:
    """100 W for being on, and 60 for each instance."""
    async def measure(trial: Trial, rival: Point | None) -> Point:
        return drawing(await measured_by(model)(trial, rival), 100.0 + 60.0 * trial.serving.instance_count)

    return measure


def choice(objective: ObjectiveRequest, model: Model = thirsty) -> tuple[Search, Point]:
    space = Space.of(max_batch_size=8, batching=BatchingRequest(), instances=InstancesRequest(), cores=4, gpus=0)
    search = Search(space=space, objective=objective)
    return search, asyncio.run(run_search(search, with_power(model)))


def test_the_least_energy_is_another_choice_than_the_most_throughput() -> None:
    _, fastest = choice(dataclasses.replace(SAVES, minimise="cost"))
    search, frugal = choice(SAVES)
    assert fastest.serving.instance_count > 2 >= frugal.serving.instance_count
    assert fastest.throughput > frugal.throughput
    rates = [inferences_per_joule_drawn(one.use, one.throughput) or 0.0 for one in (fastest, frugal)]
    assert rates[1] > 1.1 * rates[0]
    assert f"It gives {rates[1]:.3g} inferences a joule, idle power included" in reason(search, frugal, SAVES)


def test_what_misses_the_limit_is_not_said_to_give_the_most_inferences_a_joule() -> None:
    missed = dataclasses.replace(SAVES, latency_ms=0.001)
    search, fastest = choice(missed)
    assert max(inferences_per_joule_drawn(one.use, one.throughput) or 0.0 for one in search.points) > (
        inferences_per_joule_drawn(fastest.use, fastest.throughput) or 0.0)
    assert "idle power included." in reason(search, fastest, missed)


@given(st.floats(5, 400), st.floats(0.0, 200.0), st.floats(1.0, 40.0))
@settings(max_examples=settings().max_examples // 4)
def test_of_what_keeps_the_latency_the_most_frugal_is_chosen(limit: float, each: float, service: float) -> None:
    objective = dataclasses.replace(SAVES, latency_ms=limit)

    async def measure(trial: Trial, rival: Point | None) -> Point:
        throughput, latency = ideal(trial.serving, trial.concurrency, service_ms=service)
        return drawing(await measured_by(lambda serving, load: (throughput, latency))(trial, rival),
                       50.0 + each * trial.serving.instance_count + 0.1 * throughput)

    space = Space.of(max_batch_size=8, batching=BatchingRequest(), instances=InstancesRequest(), cores=4, gpus=0)
    search = Search(space=space, objective=objective)
    best = asyncio.run(run_search(search, measure))
    kept = [one for one in search.points if met(one, objective)]
    assert met(best, objective) is bool(kept)
    if kept:
        rates = [inferences_per_joule_drawn(one.use, one.throughput) or 0.0 for one in kept]
        assert score(best, objective)[1] >= EQUAL * max(rates)


def test_a_latency_out_of_reach_is_missed_by_the_fastest_whatever_it_draws() -> None:
    objective = dataclasses.replace(SAVES, latency_ms=1)
    _, best = choice(objective, ideal)
    assert not met(best, objective)
    assert best.concurrency == 1


@pytest.mark.parametrize(("measured", "idle", "each"), [
    ([(100.0, 150.0), (300.0, 250.0)], 100.0, 0.5),
    ([(100.0, 150.0)], 150.0, 0.0),
    ([(100.0, 150.0), (100.0, 170.0)], 160.0, 0.0),
    ([(100.0, 200.0), (300.0, 150.0)], 175.0, 0.0),  # noise: nobody draws less for more work
    ([(10.0, 1.0), (100.0, 200.0)], LEAST_IDLE * 100.5, 0.95 * 100.5 / 55),  # nor nothing for being on
])
def test_what_is_drawn_is_a_line_through_what_was_measured(
    measured: list[tuple[float, float]], idle: float, each: float, make_point: Callable[..., Point]
) -> None:
    points = [drawing(dataclasses.replace(make_point(), throughput=rate), watts) for rate, watts in measured]
    line = PowerLine.of([*points, make_point()])
    np.testing.assert_allclose((line.idle, line.each), (idle, each))
    rate, share = log_rate(np.array([line.idle]), np.array([line.each]), np.log([100.0]))
    np.testing.assert_allclose(np.exp(rate), 100 / (idle + each * 100))
    np.testing.assert_allclose(share, idle / (idle + each * 100))

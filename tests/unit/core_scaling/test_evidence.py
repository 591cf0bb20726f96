"""From an engine's record to what one replica can do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from enginewright.core.observed import EngineRecord
from enginewright.core.scaling import capacity_asked_for, capacity_of
from enginewright.core.scaling.capacity import largest_rate
from enginewright.core.spec import Spec, parse_spec
from enginewright_builder.contract import BatchTime, ContractError, Outcome, ServingChoice
from support.cluster import SPEC, built, engine

CURVE = (BatchTime(batch=1, p50_ms=4.0), BatchTime(batch=8, p50_ms=8.0), BatchTime(batch=32, p50_ms=20.0))
SERVING = ServingChoice(max_batch_size=32, max_queue_delay_us=500, instance_count=2)


def record(*, curve: tuple[BatchTime, ...] = CURVE, serving: ServingChoice | None = SERVING, **figures: float
           ) -> EngineRecord:
    known = engine(**{"throughput": 1200.0, "p50_ms": 30.0, "load_seconds": 4.0, **figures})
    outcome = replace(built(), engine=replace(known, service_curve=curve), serving=serving)
    return EngineRecord(fingerprint="a" * 64, store_claim="store", outcome=outcome)


def spec(**autoscaling: object) -> Spec:
    found = parse_spec({**SPEC, "objective": {"latency": {"percentile": 95, "milliseconds": 50}},
                        "autoscaling": {"maxReplicas": 4, **autoscaling}})
    assert isinstance(found, Spec)
    return found


def test_the_curve_says_what_a_batch_takes() -> None:
    found = capacity_of(record(), spec().objective)
    assert found is not None
    assert found.curve == ((1, 0.004), (8, 0.008), (32, 0.020))
    assert (found.instances, found.delay_seconds, found.throughput) == (2, 0.0005, 1200.0)
    assert (found.objective_seconds, found.percentile, found.cold_start_seconds) == (0.05, 95, 14.0)
    assert found.compute_seconds == pytest.approx(0.0045)


def test_the_median_of_the_closed_loop_is_not_what_one_request_takes() -> None:
    """With many requests in flight it is 30 ms: an objective of 25 ms is not out of reach for that."""
    with_curve, without = (capacity_of(record(curve=curve), spec().objective) for curve in (CURVE, ()))
    assert with_curve is not None
    assert without is not None
    tight = [replace(one, objective_seconds=0.025) for one in (with_curve, without)]
    assert [one.shortfall_seconds for one in tight] == [0, pytest.approx(0.005)]
    assert largest_rate(with_curve, 0.025) > 800 > 0 == largest_rate(without, 0.025)


@pytest.mark.parametrize(("curve", "serving"), [
    ((), SERVING), (CURVE[1:], SERVING), (CURVE, None), ((BatchTime(batch=1, p50_ms=0.0),), SERVING),
])
def test_without_a_curve_throughput_and_median_say_it(
    curve: tuple[BatchTime, ...], serving: ServingChoice | None
) -> None:
    found = capacity_of(record(curve=curve, serving=serving), spec().objective)
    assert found is not None
    assert (found.curve, found.instances, found.delay_seconds) == (((1, 0.030),), 36, 0.0)


def test_a_curve_that_falls_is_held() -> None:
    found = capacity_of(record(curve=(*CURVE[:2], BatchTime(batch=16, p50_ms=6.0))), spec().objective)
    assert found is not None
    assert found.curve == ((1, 0.004), (8, 0.008), (16, 0.008))


def test_without_figures_there_is_no_capacity() -> None:
    assert capacity_of(None, spec().objective) is None
    assert capacity_of(record(throughput=0.0), spec().objective) is None


@pytest.mark.parametrize(("autoscaling", "asked"), [
    ({}, True), ({"algorithm": "measured"}, True), ({"algorithm": "queue"}, False),
    ({"source": "prometheus", "prometheus": {"url": "http://p:9090"}}, False),
])
def test_it_is_used_unless_something_else_is_asked_for(autoscaling: dict[str, object], asked: bool) -> None:
    assert (capacity_asked_for(spec(**autoscaling), record()) is not None) is asked


def test_the_curve_travels_in_the_outcome() -> None:
    outcome = record().outcome
    assert Outcome.from_json(outcome.to_json()) == outcome


def shorter_and_shorter(outcome: Outcome) -> Iterator[Outcome]:
    limit = 4096
    while True:
        try:
            message = outcome.to_termination_message(limit)
        except ContractError:
            return
        yield Outcome.from_json(message)
        limit = len(message.encode()) - 1


def test_it_goes_from_a_message_only_after_all_candidates_but_one() -> None:
    told = shorter_and_shorter(record().outcome)
    kept = [(len(one.candidates), bool(one.engine and one.engine.service_curve)) for one in told]
    assert kept[-1] == (1, False)
    assert (1, True) in kept
    assert (2, False) not in kept


def test_records_of_older_builders_are_read() -> None:
    old = record(curve=()).outcome.to_json().replace(',"service_curve":[]', "")
    assert "service_curve" not in old
    assert Outcome.from_json(old) == record(curve=()).outcome

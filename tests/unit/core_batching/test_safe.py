"""Which settings of the dynamic batcher the build's measurements allow."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.batching import Refusal, SafeSet, Setting, safe_set
from enginewright.core.observed import EngineRecord
from enginewright.core.reasons import Reason
from enginewright.core.spec.engine import LatencySpec, ObjectiveSpec
from enginewright_builder.contract import BatchTime, ServingChoice
from support.cluster import built, engine

CURVE = (BatchTime(batch=1, p50_ms=4.0), BatchTime(batch=4, p50_ms=5.0), BatchTime(batch=16, p50_ms=9.0))
SERVING = ServingChoice(max_batch_size=16, max_queue_delay_us=500, preferred_batch_sizes=(4,), instance_count=1)
SAFE = SafeSet(default=Setting(delay_us=500), curve=((1, 0.004), (4, 0.005), (16, 0.009)), max_batch=16,
               longest_delay_us=9000, load_seconds=1.0)


def record(curve: tuple[BatchTime, ...] = CURVE, serving: ServingChoice | None = SERVING) -> EngineRecord:
    known = replace(engine(throughput=400.0, p50_ms=9.0, load_seconds=3.0), service_curve=curve)
    outcome = replace(built(), engine=known, serving=serving)
    return EngineRecord(fingerprint="a" * 64, store_claim="store", outcome=outcome)


def test_what_shipped_is_the_default_and_the_curve_bounds_the_rest() -> None:
    found = safe_set(record(), ObjectiveSpec(latency=LatencySpec(percentile=95, milliseconds=12)))
    assert isinstance(found, SafeSet)
    assert found.allowed == pytest.approx(0.05)
    assert found == SafeSet(
        default=Setting(delay_us=500, preferred=(4,)), curve=((1, 0.004), (4, 0.005), (16, 0.009)), max_batch=16,
        longest_delay_us=18_000, load_seconds=3.0, objective_seconds=0.012, allowed=found.allowed,
    )


def test_a_longer_delay_that_shipped_is_allowed() -> None:
    found = safe_set(record(serving=replace(SERVING, max_queue_delay_us=20_000)), ObjectiveSpec())
    assert isinstance(found, SafeSet)
    assert found.longest_delay_us == 20_000


@pytest.mark.parametrize(("known", "reason"), [
    (record(curve=()), Reason.BATCHES_NOT_MEASURED),
    (record(curve=CURVE[:1]), Reason.BATCHES_NOT_MEASURED),
    (record(serving=None), Reason.NO_BATCHES),
    (record(serving=replace(SERVING, max_batch_size=1, preferred_batch_sizes=())), Reason.NO_BATCHES),
    (replace(record(), outcome=replace(record().outcome, engine=None)), Reason.NO_BATCHES),
])
def test_nothing_is_adapted_where_nothing_was_measured_of_batches(known: EngineRecord, reason: Reason) -> None:
    found = safe_set(known, ObjectiveSpec())
    assert isinstance(found, Refusal)
    assert found.reason == reason


@pytest.mark.parametrize(("batch", "seconds"), [(1, 0.004), (2.5, 0.0045), (4, 0.005), (10, 0.007), (40, 0.009)])
def test_between_measured_batches_lie_straight_lines(batch: float, seconds: float) -> None:
    assert SAFE.seconds(batch) == pytest.approx(seconds)


@pytest.mark.parametrize(("setting", "objective", "safe"), [
    (Setting(delay_us=500), 0.001, True),  # what shipped is not ours to doubt
    (Setting(delay_us=9000), None, True),
    (Setting(delay_us=9100), None, False),
    (Setting(delay_us=3000), 0.012, True),
    (Setting(delay_us=3100), 0.012, False),
    (Setting(delay_us=7000, preferred=(4,)), 0.012, True),
    (Setting(delay_us=1000, preferred=(4, 32)), None, True),  # never more than the maximum forms
])
def test_held_back_and_served_in_the_largest_batch_it_is_within_the_objective(
    setting: Setting, objective: float | None, safe: bool
) -> None:
    assert replace(SAFE, objective_seconds=objective).holds(setting) is safe


def test_no_batch_that_was_not_measured() -> None:
    """A curve may end early: a slow model's largest batches are left out."""
    short = replace(SAFE, curve=SAFE.curve[:2])
    assert not short.holds(Setting(delay_us=100))
    assert short.holds(Setting(delay_us=100, preferred=(4,)))


@given(delay=st.integers(0, 20_000), less=st.integers(0, 20_000), objective=st.floats(0.005, 0.05),
       sizes=st.sets(st.integers(1, 16), max_size=3))
def test_what_is_shorter_than_a_safe_delay_is_safe(delay: int, less: int, objective: float, sizes: set[int]) -> None:
    safe, preferred = replace(SAFE, objective_seconds=objective), tuple(sorted(sizes))
    if safe.holds(Setting(delay_us=delay, preferred=preferred)):
        assert safe.holds(Setting(delay_us=min(delay, less), preferred=preferred)) or delay == safe.default.delay_us

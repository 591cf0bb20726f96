"""A language model's demand in work: what the record says of a replica, what decisions say, and the guard of caches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.observed import EngineRecord
from enginewright.core.reasons import Reason
from enginewright.core.scaling import Capacity, ScaleDecision, ScaleLimits, capacity_of, decide_replicas
from enginewright.core.scaling.cache import FULL, LOOKED, guarded
from enginewright.core.scaling.work import rate_text, requests_of, seconds_of, size_text
from enginewright.core.signals import Sample, SignalWindow
from enginewright.core.spec.engine import ObjectiveSpec, TokensSpec
from enginewright_builder.contract import TokenWork
from support.published_language_model import TOKENS, built_language_model

# A request is 0.1 + 0.1 seconds of a replica.
WORK = TokenWork(input_tokens=1000.0, output_tokens=100.0, input_seconds=1e-4, output_seconds=1e-3)
ASKED = ObjectiveSpec(tokens=TokensSpec(ttft_milliseconds=500.0, tpot_milliseconds=50.0, percentile=95.0))


def record(**changes: Any) -> EngineRecord:
    return EngineRecord(fingerprint="f" * 64, store_claim="store", outcome=built_language_model("f" * 64, **changes))


def test_a_record_tells_what_a_replica_does() -> None:
    found = capacity_of(record(work=WORK), ASKED)
    assert found is not None
    assert found.throughput == pytest.approx(5.0)
    assert (found.instances, found.work) == (8, WORK)
    assert (found.compute_seconds, found.objective_seconds, found.percentile) == (0.0615, 0.5, 95.0)
    assert found.cold_start_seconds == 90.0
    assert found.slowed(0.5).work == WORK


def test_an_older_record_tells_of_output_tokens_alone() -> None:
    found = capacity_of(record(), ObjectiveSpec())
    assert found is not None
    assert found.work is not None
    assert found.throughput == pytest.approx(TOKENS.goodput)
    assert seconds_of(found.work, 1e6, 640.0) == pytest.approx(1.0)
    assert found.objective_seconds is None


@pytest.mark.parametrize("changes", [{"goodput": 0.0}, {"output_rate": 0.0}, {"ttft_p50_ms": 0.0}])
def test_a_record_of_a_server_that_did_nothing_in_time_leaves_it_to_the_queue(changes: dict[str, Any]) -> None:
    assert capacity_of(record(tokens=replace(TOKENS, **changes)), ASKED) is None


@given(st.floats(0, 1e5), st.floats(0, 1e5), st.floats(0, 10))
def test_work_is_linear(read: float, written: float, times: float) -> None:
    one = requests_of(WORK, read, written)
    assert requests_of(WORK, times * read, times * written) == pytest.approx(times * one, abs=1e-9)
    assert requests_of(WORK, WORK.input_tokens, WORK.output_tokens) == pytest.approx(1)


def test_rates_are_told_in_tokens() -> None:
    capacity = Capacity(throughput=5.0, work=WORK)
    assert rate_text(5.0, capacity) == "500 tokens/s"
    assert size_text(capacity) == " (in requests of 1000 tokens in and 100 out)"
    assert size_text(Capacity(throughput=5.0, work=replace(WORK, input_tokens=0.0))) == " (in requests of 100 out)"
    assert (rate_text(5.04, Capacity(throughput=5.0)), size_text(Capacity(throughput=5.0))) == ("5.0 requests/s", "")


def window(arrived: float, seconds: int = 60, **more: Any) -> SignalWindow:
    return SignalWindow(started=0.0, samples=tuple(
        Sample(time=float(second), ready=1, pending={"a": 0.0}, arrived=arrived, **more) for second in range(seconds)))


def test_a_decision_says_tokens() -> None:
    capacity = capacity_of(record(work=WORK), ASKED)
    found = decide_replicas(window(12.0), 1, ScaleLimits(max_replicas=9), 59.0, capacity)
    assert found.replicas >= 3
    assert "1200 tokens/s" in found.message
    assert "first tokens within 500 ms at p95" in found.message
    assert "requests/s" not in found.message


def down(replicas: int, message: str = "Down.") -> ScaleDecision:
    return ScaleDecision(replicas=replicas, recommendation=replicas, reason=Reason.SCALING, message=message)


@pytest.mark.parametrize(("shares", "wanted", "kept"), [
    ((0.2, 0.2, 0.2), 1, 1), ((0.5, 0.5, 0.5), 1, 2), ((0.9, 0.9, 0.9), 1, 3), ((1.0, 1.0, 1.0), 2, 3), ((), 1, 1),
    ((0.8, 0.8, 0.0), 2, 2), ((0.9, 0.9, 0.9), 4, 4)])
def test_what_runs_fits_into_the_caches_of_those_that_stay(shares: tuple[float, ...], wanted: int, kept: int) -> None:
    seen = window(0.0, caches={str(pod): share for pod, share in enumerate(shares)})
    found = guarded(down(wanted), seen, 3, ScaleLimits(max_replicas=9), 59.0)
    assert found.replicas == kept
    if kept == 3:
        assert found.reason is Reason.STEADY
        assert f"over {FULL:.0%} full" in found.message
    elif kept > wanted:
        assert found.message == "Down. 2 replicas for now: KV caches would be over 80% full with fewer."


def test_full_caches_ask_for_no_replica_and_keep_none_beyond_the_users_limit() -> None:
    seen = window(0.0, caches={"a": 1.0, "b": 1.0, "c": 1.0})
    assert guarded(down(1), seen, 1, ScaleLimits(max_replicas=9), 59.0).replicas == 1
    assert guarded(down(1), seen, 3, ScaleLimits(max_replicas=2), 59.0).replicas == 2
    assert guarded(down(1), seen, 3, ScaleLimits(max_replicas=9), 60.0 + LOOKED).replicas == 1, "long ago"
    assert guarded(down(0), None, 3, ScaleLimits(), 0.0).replicas == 0


def test_a_model_that_answers_does_not_sleep() -> None:
    """A long stream is no arrival, and is cut if its replica goes."""
    limits = ScaleLimits(min_replicas=0, max_replicas=2, zero_after=10.0)
    for running, wanted in ((1.0, 1), (0.0, 0)):
        seen = window(0.0, held=0.0, running={"a": running})
        assert decide_replicas(seen, 1, limits, 59.0).replicas == wanted

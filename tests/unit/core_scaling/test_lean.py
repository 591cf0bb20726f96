"""``autoscaling.prefer``: how many requests may be late, and what follows for replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.scaling import Capacity, ScaleDecision, ScaleLimits, decide_replicas, limits_of
from enginewright.core.scaling.lean import leaning
from enginewright.core.signals import Sample, SignalWindow
from enginewright.core.spec import AutoscalingSpec
from enginewright.core.spec.scaling_limits import Prefer

CAPACITY = Capacity(throughput=20, curve=((1, 0.01),), objective_seconds=0.1, cold_start_seconds=20)
LIMITS = ScaleLimits(max_replicas=30, down_window=60.0)
WORDS: tuple[Prefer, ...] = ("cost", "balanced", "latency")


@pytest.mark.parametrize(("prefer", "percentile", "by"), [
    ("cost", 99.0, 96.0), ("latency", 99.0, 99.75), ("cost", 99.9, 99.6), ("latency", 95.0, 98.75),
    ("cost", 90.0, 60.0), ("cost", 80.0, 50.0), ("latency", 99.99, 99.99),
])
def test_four_times_or_a_quarter_of_the_requests_may_be_late(prefer: Prefer, percentile: float, by: float) -> None:
    asked = replace(CAPACITY, percentile=percentile)
    assert leaning(asked, prefer) == replace(asked, percentile=by)


def test_balanced_changes_nothing_and_is_what_older_objects_have() -> None:
    assert leaning(CAPACITY, "balanced") is CAPACITY
    assert limits_of(AutoscalingSpec(max_replicas=3)).prefer == "balanced"
    assert limits_of(AutoscalingSpec(max_replicas=3, prefer="cost")).prefer == "cost"


def decided(arrived: list[float], current: int, queued: float, prefer: Prefer) -> ScaleDecision:
    samples = tuple(Sample(time=float(second), ready=current, arrived=came,
                           pending={f"r{index}": queued / current for index in range(current)})
                    for second, came in enumerate(arrived))
    window = SignalWindow(started=-10_000.0, samples=samples)
    return decide_replicas(window, current, replace(LIMITS, prefer=prefer), samples[-1].time, CAPACITY)


@given(st.lists(st.floats(0, 400), min_size=6, max_size=90), st.integers(1, 30), st.floats(0, 100))
def test_a_word_further_to_latency_never_means_fewer_replicas(
    arrived: list[float], current: int, queued: float
) -> None:
    """Of the same samples, with a window that the user wrote: our own floor counts what the fleet would have done."""
    cost, balanced, latency = (decided(arrived, current, queued, word) for word in WORDS)
    assert cost.replicas <= balanced.replicas <= latency.replicas
    assert cost.recommendation <= balanced.recommendation <= latency.recommendation


def test_each_word_asks_for_its_own_number_and_says_by_what() -> None:
    found = {word: decided([100.0] * 60, 5, 0.0, word) for word in WORDS}
    assert found["cost"].replicas < found["balanced"].replicas < found["latency"].replicas
    assert "within 100 ms at p96, by prefer cost" in found["cost"].message
    assert "within 100 ms at p99:" in found["balanced"].message
    assert "within 100 ms at p99.75, by prefer latency" in found["latency"].message

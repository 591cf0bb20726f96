"""What is kept between scrapes: bounded, and right across restarts of servers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.observed import Sample
from enginewright.observe.window import SAMPLES, FailureCounts, Window


def test_samples_are_bounded_and_oldest_first() -> None:
    window = Window(0.0)
    for time in range(SAMPLES + 10):
        window.add(Sample(time=float(time), ready=1))
    samples = window.view().samples
    assert len(samples) == SAMPLES
    assert (samples[0].time, samples[-1].time) == (10.0, SAMPLES + 9.0)


@given(wishes=st.lists(st.integers(1, 5), min_size=1), seconds=st.integers(0, 50))
def test_what_is_kept_of_recommendations_has_the_same_least_and_most_in_every_window(
    wishes: list[int], seconds: int
) -> None:
    window = Window(0.0)
    for time, wish in enumerate(wishes):
        window.recommend(float(time), wish)
    now = len(wishes) - 1
    kept = [replicas for time, replicas in window.view().recommendations if now - time <= seconds]
    whole = wishes[max(0, now - seconds):]
    assert (min(kept), max(kept)) == (min(whole), max(whole))
    assert len(window.view().recommendations) <= 5


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        ([100.0], 0.0),
        ([100.0, 103.0], 3.0),
        ([100.0, 103.0, 2.0], 5.0),
        ([5.0, 0.0, 0.0], 0.0),
    ],
    ids=["what failed before we looked is not counted", "growth counts", "a restart starts at zero", "a restart alone"],
)
def test_failures_since_first_seen(totals: list[float], expected: float) -> None:
    counts = FailureCounts()
    for total in totals:
        counts.update({"a": total}, ["a"])
    assert counts.since_first_seen() == {"a": expected}


def test_a_pod_that_misses_a_scrape_keeps_its_count_and_one_that_is_gone_does_not() -> None:
    counts = FailureCounts()
    counts.update({"a": 1.0, "b": 1.0}, ["a", "b"])
    counts.update({}, ["a", "b"])
    counts.update({"a": 2.0}, ["a"])
    assert counts.since_first_seen() == {"a": 1.0}

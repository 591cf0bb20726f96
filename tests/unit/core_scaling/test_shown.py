"""When figures of the moment in status are out of date."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginewright.core.scaling.shown import Shown
from enginewright.core.signals import Sample, SignalWindow

SAMPLE = Sample(time=100.0, ready=1, pending={"a": 3.2}, p99=50.0, rejected=2.0, hits=3.0, misses=1.0)
SHOWN = Shown(queue_depth=3, p99=50.0, rejected=2, hit_share=0.75)


def outdated(shown: Shown, sample: Sample = SAMPLE, depth: float | None = 3.2) -> bool:
    return shown.outdated(SignalWindow(started=0.0, samples=(sample,)), depth, 100.0)


def test_the_same_figures_are_not() -> None:
    assert not outdated(SHOWN)


@pytest.mark.parametrize("sample", [replace(SAMPLE, p99=54.0), replace(SAMPLE, p99=46.0)])
def test_a_p99_that_moves_by_less_than_a_reader_sees_is_not(sample: Sample) -> None:
    assert not outdated(SHOWN, sample)


@pytest.mark.parametrize(("sample", "depth"), [
    (SAMPLE, 4.0), (SAMPLE, None), (replace(SAMPLE, p99=60.0), 3.2), (replace(SAMPLE, p99=None), 3.2),
    (replace(SAMPLE, rejected=3.0), 3.2), (replace(SAMPLE, hits=0.0, misses=0.0), 3.2)])
def test_each_of_them_counts(sample: Sample, depth: float | None) -> None:
    assert outdated(SHOWN, sample, depth)


def test_what_status_does_not_tell_of_this_spec_is_not_looked_for() -> None:
    assert not outdated(replace(SHOWN, rejected=None, hit_share=None), replace(SAMPLE, rejected=9.0, hits=0.0))

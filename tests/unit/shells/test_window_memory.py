"""What a window keeps of full replicas: while it is fresh, when it is old, and when the revision changes."""

from __future__ import annotations

import gc
from collections.abc import Iterable

import pytest

from enginewright.clients.signals import ReplicaMetrics
from enginewright.core.signals import Sample, Work
from enginewright.observe.window import SAMPLES, Window


def busy(window: Window, seconds: Iterable[int], queued: float = 100.0) -> None:
    for second in seconds:
        window.add(Sample(time=float(second), ready=2, arrived=30.0, pending={"a": queued, "b": 0.0},
                          served={"a": 15.0, "b": 15.0}))


def done(window: Window) -> Work:
    return sum((one.full.get("a", Work()) for one in window.view().samples), Work())


def test_of_a_replica_with_a_long_queue_it_keeps_what_was_served() -> None:
    window = Window(0.0)
    busy(window, range(11))
    assert done(window) == Work(10.0, 150.0)
    assert not any("b" in one.full for one in window.view().samples)


@pytest.mark.parametrize("queued", [0.0, 7.0])
def test_a_queue_that_may_have_been_empty_in_between_tells_nothing(queued: float) -> None:
    window = Window(0.0)
    busy(window, range(11), queued)
    assert done(window) == Work()


def test_it_is_added_up_with_age_and_lost_with_the_hour() -> None:
    window = Window(0.0)
    busy(window, range(60))
    busy(window, range(60, 60 + 2 * SAMPLES), queued=0.0)
    assert done(window) == Work(59.0, 885.0)
    busy(window, range(60 + 2 * SAMPLES, 3900), queued=0.0)
    assert done(window) == Work()


def test_another_revision_forgets_it_and_two_at_once_teach_nothing() -> None:
    window = Window(0.0)
    window.serve(["one", "one"])
    busy(window, range(300))
    known = done(window)
    window.serve(["one"])
    window.serve([])
    window.serve(["one", "two"])
    busy(window, range(300, 310))
    assert done(window) == known == Work(299.0, 4485.0)
    window.serve(["two"])
    assert done(window) == Work()
    busy(window, range(310, 312))
    assert done(window) == Work(2.0, 30.0)


def test_an_hour_of_samples_is_few_objects_for_the_collector_of_garbage() -> None:
    """Which stops the operator for as long as it goes through them: a thousand windows had 1.8 million."""
    window = Window(0.0)
    metrics = {"a": ReplicaMetrics(pending={"m": 0.0})}

    def read(seconds: range) -> None:
        for second in map(float, seconds):
            grown = window.arrived(second, metrics, ["a"])
            window.add(Sample(time=second, ready=1, pending=window.pending(metrics), arrived=grown.arrived,
                              served=grown.served, spent=grown.spent))

    read(range(2))
    gc.collect()
    before = len(gc.get_objects())
    read(range(2, 4000))
    gc.collect()
    kept = len(window.view().samples)
    assert len(gc.get_objects()) - before < 3 * kept

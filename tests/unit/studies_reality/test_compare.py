"""What is offered to both, and what the simulated replica makes of it."""

from __future__ import annotations

import itertools

import pytest

from enginewright_simulation.curve import Service
from reality import compare
from reality.places import places


def test_a_trace_is_scaled_to_the_rate_and_cut() -> None:
    trace = [second + part / 4 for second in range(100) for part in range(4)]
    arrivals = compare.offered(trace, 12.0, 50.0, seed=1)
    assert len(arrivals) / 50 == pytest.approx(12.0, rel=0.05)
    assert arrivals == sorted(arrivals)
    assert arrivals[-1] < 50.0


def test_without_a_trace_arrivals_are_poissons() -> None:
    arrivals = compare.offered(None, 20.0, 200.0, seed=1)
    assert len(arrivals) / 200 == pytest.approx(20.0, rel=0.1)
    gaps = [late - early for early, late in itertools.pairwise(arrivals)]
    mean = sum(gaps) / len(gaps)
    assert sum((gap - mean) ** 2 for gap in gaps) / len(gaps) == pytest.approx(mean**2, rel=0.2)


def test_a_simulated_replica_answers_in_the_order_of_the_arrivals() -> None:
    service = Service(seconds=(0.0, 1.0), instances=1)
    assert compare.one_replica([0.0, 0.5, 5.0], service) == pytest.approx([1.0, 1.5, 1.0])


@pytest.mark.parametrize(("cores", "replicas", "client", "each"), [
    ([0, 1], 1, {0}, [{1}]),
    ([0, 1, 2, 3, 4], 2, {0}, [{1, 2}, {3, 4}]),
    ([0, 1], 2, {0, 1}, [{0, 1}, {0, 1}]),
])
def test_replicas_have_cores_of_their_own_where_there_are_enough(cores: list[int], replicas: int, client: set[int],
                                                                each: list[set[int]]) -> None:
    found = places(cores, replicas)
    assert (set(found.client), [set(one) for one in found.replicas]) == (client, each)


def test_load_is_of_what_full_batches_answer() -> None:
    """Where a larger batch takes longer for each request, a queue that is never empty makes large ones nevertheless."""
    assert compare.sustained(Service(seconds=(0.0, 0.1, 0.3), instances=2, pause=0.1)) == pytest.approx(10.0)


def test_the_pace_is_what_the_same_batches_took_by_what_was_measured() -> None:
    service = Service(seconds=(0.0, 0.1, 0.2))
    assert compare.slower({1: (10, 1.0), 2: (5, 2.0)}, service) == pytest.approx(1.5)
    assert compare.slower({}, service) == 1.0


def test_times_are_those_between_two_measurements() -> None:
    one, other = (Service(seconds=(0.0, time), wake=time / 10, transport=time / 100, queue_delay=0.5)
                  for time in (1.0, 3.0))
    found = compare.between(one, other)
    assert (*found.seconds, found.wake, found.transport, found.queue_delay) == pytest.approx((0.0, 2.0, 0.2, 0.02, 0.5))


def test_a_simulated_figure_is_off_by_the_median_of_the_repeats() -> None:
    real = compare.figures([1.0, 2.0, 3.0, 4.0], 10.0)
    assert real == {"p50_ms": 2.0, "p95_ms": 4.0, "throughput": 10.0}
    simulated = [compare.figures([each] * 4, 10.0) for each in (1.0, 2.2, 3.0)]
    off = compare.off([(one, real) for one in simulated])
    assert off == pytest.approx({"p50_ms": 0.1, "p95_ms": -0.45, "throughput": 0.0})


def test_the_share_of_each_replica_is_simulated_by_itself() -> None:
    service = Service(seconds=(0.0, 1.0), transport=0.5)
    found = compare.simulated([[0.0, 0.0], [0.5]], service, end=2.0)
    assert found == pytest.approx({"p50_ms": 1500.0, "p95_ms": 2500.0, "throughput": 1.0})

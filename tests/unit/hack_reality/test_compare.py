"""What is offered to both, and what the simulated replica makes of it."""

from __future__ import annotations

import itertools

import pytest

from enginewright.simulation.curve import Service
from reality import compare


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
    assert compare._simulated([0.0, 0.5, 5.0], service) == pytest.approx([1.0, 1.5, 1.0])


@pytest.mark.parametrize(("cores", "replicas", "client", "each"), [
    ([0, 1], 1, {0}, [{1}]),
    ([0, 1, 2, 3, 4], 2, {0}, [{1, 2}, {3, 4}]),
    ([0, 1], 2, {0, 1}, [{0, 1}, {0, 1}]),
])  # fmt: skip
def test_replicas_have_cores_of_their_own_where_there_are_enough(cores: list[int], replicas: int, client: set[int],
                                                                each: list[set[int]]) -> None:  # fmt: skip
    found = compare.places(cores, replicas)
    assert (set(found.client), [set(one) for one in found.replicas]) == (client, each)

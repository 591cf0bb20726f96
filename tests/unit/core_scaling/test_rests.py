"""While no request comes to a model with its fewest replicas, time alone asks for no more: the scraper lets the rule
rest for some seconds then."""

from __future__ import annotations

import itertools
import random

import pytest

from enginewright.core.scaling import Capacity, ScaleLimits, decide_replicas
from enginewright.core.signals import Sample, SignalWindow, Spent

POD = "m-0"
LIMITS = ScaleLimits(min_replicas=1, max_replicas=8, target=4.0)
BOUNDED = ScaleLimits(min_replicas=1, max_replicas=8, target=4.0, bounded=True)
KNOWN = Capacity(throughput=100.0, curve=((1, 0.01), (8, 0.03)), objective_seconds=0.1, cold_start_seconds=20.0)
QUIET = 40


def sample(time: float, arrived: float, queued: float) -> Sample:
    return Sample(time=time, ready=1, pending={POD: queued}, arrived=arrived, inflight=arrived / 100,
                  served={POD: arrived}, spent={POD: Spent(1.0, arrived, 0.0, arrived / 100, arrived)})


@pytest.mark.parametrize("limits", [LIMITS, BOUNDED])
@pytest.mark.parametrize("capacity", [None, KNOWN])
def test_once_the_fewest_are_enough_seconds_without_a_request_ask_for_no_more(
    limits: ScaleLimits, capacity: Capacity | None
) -> None:
    """After loads of all kinds; for some of them more replicas are asked for meanwhile, for what came before."""
    rested = 0
    for seed in range(24):
        chance = random.Random(seed)
        most, deepest = chance.choice([1, 20, 50, 90, 400]), chance.choice([0, 3, 40])
        samples = [sample(float(second), float(chance.randint(0, most)), chance.choice([0.0, float(deepest)]))
                   for second in range(chance.randint(5, 300))]
        still = len(samples)
        samples += [sample(float(still + second), 0.0, 0.0) for second in range(QUIET)]
        asked = [decide_replicas(SignalWindow(started=0.0, samples=tuple(samples[: end + 1])), 1, limits, float(end),
                                 capacity).replicas for end in range(still, still + QUIET)]
        assert all(after == 1 for before, after in itertools.pairwise(asked) if before == 1), f"seed {seed}"
        rested += asked[0] == 1
    assert rested > 12

"""Rules to hold ours against that no user has: some that know more, and the least that one can do."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence

from enginewright.core.scaling import Capacity
from enginewright.core.scaling.capacity import replicas_for
from enginewright.core.scaling.limits import TARGET
from enginewright_simulation.foresight import BLOCK, Bounds, lateness, priced
from enginewright_simulation.policies.base import Seen
from enginewright_simulation.policies.oracle import Oracle
from enginewright_simulation.run import Scenario, throw_dice
from enginewright_simulation.tokens import TokenService

# Seconds over which the informed rival takes the rate.
SMOOTHED = 20
# Draws of who gets what, none of them the true one, that are taken the mean of.
DRAWS = 8


class Trailing:
    """The rate of the last ``span`` seconds, by the queue's formula; a replica goes ``hold`` seconds after it was
    needed last. No forecast, no memory."""

    def __init__(self, span: int, hold: int, capacity: Capacity, most: int) -> None:
        self.initial = 1
        self._capacity = capacity
        self._most = most
        self._arrived: deque[int] = deque(maxlen=span)
        self._needs: deque[int] = deque(maxlen=hold + 1)

    def decide(self, seen: Seen) -> int:
        if seen.time:  # what came before the first second is unknown
            self._arrived.append(seen.arrived)
        if not self._arrived:
            return self.initial
        self._needs.append(needed(sum(self._arrived) / len(self._arrived), self._capacity, self._most))
        return max(self._needs)


def told(arrivals: Sequence[float], capacity: Capacity, most: int) -> Oracle:
    """One that knows what comes within a cold start, but not which replica gets it, so that it needs what the queue's
    formula says."""
    seconds = [0] * (int(arrivals[-1]) + 1)
    for came in arrivals:
        seconds[int(came)] += 1
    sums, half = [0, *itertools.accumulate(seconds)], SMOOTHED // 2
    needs = []
    for second in range(len(seconds)):
        first, last = max(0, second - half), min(len(seconds), second + half)
        needs.append(needed((sums[last] - sums[first]) / (last - first), capacity, most))
    return Oracle(needs, capacity.cold_start_seconds, 1, most)


def foreseen(arrivals: Sequence[float], scenario: Scenario) -> Oracle:
    """One that knows all that comes in the whole hour, and plans by it as the oracle does, but not which replica gets
    it."""
    service = scenario.service
    if isinstance(service, TokenService):
        raise ValueError("its plan is of requests that are alike")
    bounds = Bounds(low=scenario.min_replicas, high=scenario.max_replicas, cold_start=scenario.cold_start)
    draws = [lateness(arrivals, throw_dice(arrivals, scenario.seed - draw), service, scenario.slo, bounds)
             for draw in range(1, DRAWS + 1)]
    blocks = [[sum(late) / DRAWS for late in itertools.zip_longest(*each, fillvalue=0.0)]
              for each in zip(*draws, strict=True)]
    plan = [count for count in priced(blocks, scenario.measured.allowed * len(arrivals), bounds) for _ in range(BLOCK)]
    return Oracle(plan, scenario.cold_start, scenario.min_replicas, scenario.max_replicas)


def needed(rate: float, capacity: Capacity, most: int) -> int:
    return min(most, replicas_for(rate, capacity, capacity.patience(TARGET), 1.0, most))

"""One that knows the future: it starts replicas ahead of the requests that need them.

It is found by looking at what happens: the least that the arrivals of each second ask for, then one replica more around
each request that came too late, until so few are late that more replicas would not be worth it, or all are in time.
Starting a replica costs its cold start, so one is kept through a pause that is shorter. That is near the fewest
replica-seconds, not proven to be the fewest: no search over all plans is made.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from enginewright.simulation.policies.base import Seen

# A round adds at most one replica to each second.
ROUNDS = 12
# Of all requests; so few late ones end the search.
FEW = 0.0005


@dataclass(frozen=True, kw_only=True)
class Trial:
    """How a plan did: when the requests came that were answered too late, and what it cost."""

    late: Sequence[float]
    replica_seconds: float


class Oracle:
    """``ready[k]`` replicas are to be ready from second ``k`` on."""

    def __init__(self, ready: Sequence[int], cold_start: float, min_replicas: int, max_replicas: int) -> None:
        ahead = math.ceil(cold_start) + 1
        self._plan = [max(min_replicas, min(max_replicas, most)) for most in sliding_max(ready, ahead)]
        self._least = min_replicas
        self.initial = self._plan[0] if self._plan else min_replicas

    def decide(self, seen: Seen) -> int:
        second = round(seen.time)
        return self._plan[second] if second < len(self._plan) else max(self._least, seen.desired)


def sliding_max(values: Sequence[int], width: int) -> list[int]:
    """The largest of the ``width`` values from each on."""
    found: list[int] = []
    falling: deque[int] = deque()  # indices whose values fall with the distance
    for index in range(len(values) - 1, -1, -1):
        while falling and values[falling[0]] <= values[index]:
            falling.popleft()
        falling.appendleft(index)
        if falling[-1] >= index + width:
            falling.pop()
        found.append(values[falling[-1]])
    return found[::-1]


def first_guess(arrivals: Sequence[float], capacity: float) -> list[int]:
    """Replicas for the mean rate of each second and the one after it."""
    counts = [0] * (int(arrivals[-1]) + 2)
    for came in arrivals:
        counts[int(came)] += 1
    return [math.ceil((here + then) / 2 / capacity) for here, then in zip(counts, [*counts[1:], 0], strict=True)]


def search(arrivals: Sequence[float], capacity: float, attempt: Callable[[Sequence[int]], Trial],
           max_replicas: int) -> list[int]:  # fmt: skip
    """The plan with the fewest late requests that was found; of equals the cheapest. ``attempt`` tries a plan."""
    plan = first_guess(arrivals, capacity)
    best, least = plan, (math.inf, math.inf)
    for _ in range(ROUNDS):
        trial = attempt(plan)
        found = (float(len(trial.late)), trial.replica_seconds)
        if found < least:
            best, least = plan, found
        if len(trial.late) <= FEW * len(arrivals):
            break
        more = list(plan)
        for second in {second for came in trial.late for second in (int(came), max(0, int(came) - 1))}:
            more[second] = min(max_replicas, plan[second] + 1)
        if more == plan:
            break
        plan = more
    return best

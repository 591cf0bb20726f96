"""One that knows the future: it starts replicas a cold start ahead of the requests that need them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from enginewright_simulation.policies.base import Seen


class Oracle:
    """``ready[k]`` replicas are to be ready from second ``k`` on: what will be needed within a cold start is kept, or
    started now."""

    def __init__(self, ready: Sequence[int], cold_start: float, min_replicas: int, max_replicas: int) -> None:
        ahead = math.ceil(cold_start) + 1
        self._plan = [max(min_replicas, min(max_replicas, most)) for most in sliding_max(ready, ahead)]
        self.initial = self._plan[0]

    def decide(self, seen: Seen) -> int:
        return self._plan[min(round(seen.time), len(self._plan) - 1)]


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

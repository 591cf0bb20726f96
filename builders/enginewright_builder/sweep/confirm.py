"""Does what was chosen keep the latency limit, or did it seem to? It is measured once more before it ships. Pure.

The best of a dozen measured points is one whose requests happened to be quick. So what its choice was made by does not
say whether it keeps the limit: the requests of a new measurement do, alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from enginewright_builder.sweep.objective import MOST_TRIES, met, score
from enginewright_builder.sweep.result import Point
from enginewright_builder.sweep.search import Search

# A point, and the seconds that its new measurement may take.
Again = Callable[[Point, float], Awaitable[Point]]


async def confirm(search: Search, again: Again, seconds_left: Callable[[], float]) -> Point:
    """The point that ships. Where there is a limit, ``again`` measures the best point once more, then the next best,
    until one keeps the limit. Where none does in :data:`MOST_TRIES` or in the time, the fastest of those that it
    measured ships. It measures one at least."""
    objective, best = search.objective, search.best()
    if objective.latency_ms <= 0:
        return best
    tried: list[Point] = []
    while met(best, objective) and (not tried or (len(tried) < MOST_TRIES and seconds_left() > 0)):
        tried.append(await again(best, seconds_left()))
        search.tell_again(tried[-1])
        if met(tried[-1], objective):
            return tried[-1]
        best = search.best()
    return max(tried, key=lambda point: score(point, objective)) if met(best, objective) else best

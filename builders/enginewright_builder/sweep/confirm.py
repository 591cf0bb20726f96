"""Does what was chosen keep the latency limit, or did it seem to? It is measured once more before it ships. Pure.

The best of a dozen measured points is one whose requests happened to be quick. So what its choice was made by does not
say whether it keeps the limit: the requests of a new measurement do, alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from enginewright_builder.sweep.objective import MOST_TRIES

P = TypeVar("P")

# A point, and the seconds that its new measurement may take.
Again = Callable[[P, float], Awaitable[P]]


class Measured(Protocol[P]):
    """Points that were measured, of engines or of language models. ``limited``: there is a limit for them to keep."""

    @property
    def limited(self) -> bool: ...

    def best(self) -> P: ...

    def met(self, point: P) -> bool: ...

    def score(self, point: P) -> tuple[Any, ...]: ...

    def tell_again(self, point: P) -> None: ...


async def confirm(search: Measured[P], again: Again[P], seconds_left: Callable[[], float], before: int = 0) -> P:
    """The point that ships. Where there is a limit, ``again`` measures the best point once more, then the next best,
    until one keeps the limit. Where none does in :data:`MOST_TRIES`, of which there were so many ``before``, or in the
    time, the fastest of those that it measured ships. It measures one at least."""
    best = search.best()
    if not search.limited:
        return best
    tried: list[P] = []
    while search.met(best) and (not tried or (before + len(tried) < MOST_TRIES and seconds_left() > 0)):
        tried.append(await again(best, seconds_left()))
        search.tell_again(tried[-1])
        if search.met(tried[-1]):
            return tried[-1]
        best = search.best()
    return max(tried, key=search.score) if search.met(best) else best

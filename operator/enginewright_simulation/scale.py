"""More or fewer requests in the same time."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from enginewright_simulation.errors import InputError
from enginewright_simulation.luck import stream
from enginewright_simulation.tokens import retimed

# A copy of a request is moved at most as far as this neighbour of it, and never into a gap that is longer than this
# share of the way: a burst keeps its edges.
NEIGHBOURS, SPARSE = 50, 0.2


def scaled(arrivals: Sequence[float], factor: float, seed: int) -> Sequence[float]:
    """``factor`` times as many requests; what is left of the factor is drawn by lot.

    The copies of a request stand for other clients who come at about the same time, so each is moved by chance among
    its neighbours. Rates grow by the factor over seconds, while within them requests come as independently as those of
    many clients do: counts spread as those of a superposition. Copies beside their originals would make bursts that no
    client made. Raises :class:`InputError`.
    """
    if not 0 < factor < math.inf:
        raise InputError(f"--rate-scale: got {factor:g}; write a number above 0")
    if factor == 1.0:
        return arrivals
    draw = stream("scale", seed).random
    whole, rest = divmod(factor, 1.0)
    made: list[float] = []
    for number, came in enumerate(arrivals):
        copies = int(whole) + (draw() < rest)
        if copies:
            made.append(came)
        for _ in range(copies - 1):
            made.append(retimed(came, _moved(arrivals, number, 2 * draw() - 1)))  # noqa: PERF401 - most have none
    if not made:
        raise InputError(f"--rate-scale {factor:g}: leaves no request of {len(arrivals)}; write a larger one")
    made.sort()
    start = made[0]
    return [retimed(came, came - start) for came in made] if start else made


def _moved(arrivals: Sequence[float], number: int, share: float) -> float:
    """``share`` is from -1 to 1, of the way to the nearer of the neighbours on both sides."""
    came, last = arrivals[number], len(arrivals) - 1
    before = came - arrivals[max(0, number - NEIGHBOURS)]
    after = arrivals[min(last, number + NEIGHBOURS)] - came
    room = min(before, after) or max(before, after)
    for place in (came + share * room, came - share * room):
        right = bisect_left(arrivals, place)
        if 0 < right <= last and arrivals[right] - arrivals[right - 1] <= SPARSE * room:
            return place
    return came

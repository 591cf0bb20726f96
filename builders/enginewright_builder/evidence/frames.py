"""How many frames a model makes of a sound, found by asking it.

A chain of convolutions and poolings makes ``(length + offset) // stride`` frames of ``length`` positions, whatever its
layers are: of one layer that is the formula of its output's size, and a floor of a floor is one floor (Graham, Knuth
and Patashnik 1994, "Concrete mathematics", 3.10). ``stride`` is how far two steps of the staircase lie apart, and one
step fixes ``offset``.
"""

from __future__ import annotations

from collections.abc import Callable

Count = Callable[[int], int]


def staircase(count: Count, low: int, high: int) -> tuple[int, int] | None:
    """``(stride, offset)`` of the rule by which ``count`` gives frames for lengths from ``low`` to ``high``; None where
    it follows no such rule, or takes fewer than two steps."""
    first = _rise(count, low, high)
    second = None if first is None else _rise(count, first, high)
    if first is None or second is None:
        return None
    stride = second - first
    offset = stride * count(first) - first
    # The last step as well: a rule that holds for short sounds alone is none.
    last = stride * ((high + offset) // stride) - offset
    predicted = {length: (length + offset) // stride for length in (low, first, second, last - 1, last, high)
                 if low <= length <= high}
    return (stride, offset) if all(count(length) == frames for length, frames in predicted.items()) else None


def _rise(count: Count, start: int, high: int) -> int | None:
    """The shortest length above ``start`` with more frames; None where ``high`` has no more."""
    frames, below, step = count(start), start, 1
    while count(above := min(start + step, high)) <= frames:
        if above == high:
            return None
        below, step = above, 2 * step
    while above - below > 1:
        middle = (below + above) // 2
        if count(middle) > frames:
            above = middle
        else:
            below = middle
    return above

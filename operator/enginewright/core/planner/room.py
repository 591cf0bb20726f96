"""How much room a pool of equal boards has, by counting alone.

Widths are powers of two and starts are multiples of them, so that a board is a tree: a board has two halves, a half two
pairs, a pair two slices. A set of slices fits exactly when the largest go first and each takes the block that is worth
least to those after it:

- the whole board before halves, halves before pairs, pairs before single slices;
- 4g fits only the lower half, 3g either: it takes upper halves first, because an upper half also ends in a pair that
  2g cannot take and of which 1g can use one slice;
- the double-memory 1g takes such weak pairs first.

So a handful of comparisons answers what would otherwise be a search over positions (a test compares it with one).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from enginewright.core.planner.geometry import FOUR, FULL, ONE, THREE, TWO, WHOLE, WIDE

# Of a board that is not empty: free lower and upper halves, pairs, weak pairs (6–7) and single slices that are free
# outside of larger free blocks.
Blocks = tuple[int, int, int, int, int]


@cache
def blocks(free: int, size: int) -> Blocks:
    """``free`` is not the whole board."""
    low, high, pairs, weak, single = 0, 0, 0, 0, 0
    for base in range(0, size, 4):
        half = free >> base & 15
        if half == 15 and size == 8:
            low, high = low + (base == 0), high + (base == 4)
            continue
        for start in (0, 2):
            last = base + start == 6
            pair = half >> start & 3
            if pair == 3:
                pairs, weak = pairs + (not last), weak + last
            elif pair:
                single += not (last and pair == 2)  # no 1g starts on slice 7
    return low, high, pairs, weak, single


@dataclass(kw_only=True)
class Room:
    """``fixed`` counts free instances by shape, ``blocks`` what broken boards have free, ``empty`` boards that may be
    cut, ``uncut`` idle boards that may only be taken whole. ``size`` is the slices of a board."""

    size: int
    fixed: list[int]
    blocks: list[int]
    empty: int = 0
    uncut: int = 0

    def fits(self, counts: Sequence[int], empty: int, uncut: int) -> bool:  # noqa: C901  asked thousands of times
        """``counts`` by shape. ``empty`` and ``uncut`` stand for those of the room, less what replicas of several GPUs
        have taken."""
        fixed = self.fixed
        whole = counts[WHOLE] - uncut
        whole = whole if whole > 0 else 0
        over = counts[FULL] - fixed[FULL]
        if over > 0:
            whole += over
        empty -= whole
        if empty < 0:
            return False
        low, high, pairs, weak, single = self.blocks
        if self.size == 4:
            pairs += 2 * empty
        else:
            low, high = low + empty, high + empty
            over = counts[FOUR] - fixed[FOUR]
            if over > 0:
                low -= over
            over = counts[THREE] - fixed[THREE]
            if over > 0:
                high -= over
                if high < 0:
                    low, high = low + high, 0
            if low < 0:
                return False
            pairs += 2 * low + high
            weak += high
            over = counts[WIDE] - fixed[WIDE]
            if over > 0:
                weak -= over
                if weak < 0:
                    pairs, weak = pairs + weak, 0
        over = counts[TWO] - fixed[TWO]
        if over > 0:
            pairs -= over
        if pairs < 0:
            return False
        return counts[ONE] - fixed[ONE] <= single + 2 * pairs + weak


"""A sequence that fails is made shorter, as long as it still fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def shrunk(steps: Sequence[T], fails: Callable[[Sequence[T]], Awaitable[bool]], tries: int) -> list[T]:
    """By leaving out ever smaller pieces, in at most ``tries`` plays. Those at the beginning are left out first: what
    failed late mostly failed of what came late."""
    kept, size = list(steps), max(1, len(steps) // 2)
    while tries > 0:
        start = 0
        while start < len(kept) and len(kept) > 1 and tries > 0:
            without = kept[:start] + kept[start + size:]
            tries -= 1
            if without and await fails(without):
                kept = without
            else:
                start += size
        if size == 1:
            break
        size = max(1, size // 2)
    return kept

"""How long to wait after something that failed, before it is tried again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """Twice as long after each failure in a row, from ``first`` to ``most`` seconds."""

    first: float
    most: float

    def delay(self, failures: int) -> float:
        """Seconds; ``failures`` counts from 1. 2 to the power of a large number is no float."""
        return min(self.most, self.first * 2.0 ** min(max(failures, 1) - 1, 32))

    def jittered(self, failures: int, chance: Callable[[], float]) -> float:
        """Between half of the delay and all of it, so that what failed together does not come back together.
        ``chance`` gives 0 to 1."""
        return self.delay(failures) * (0.5 + 0.5 * chance())

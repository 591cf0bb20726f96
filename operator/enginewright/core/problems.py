"""What is wrong with what the user wrote, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One refused input. ``field`` is a path such as ``spec.source.uri``, ``value`` what stood there (shortened, as
    JSON), ``message`` what is wrong with it, ``remedy`` what to write instead."""

    field: str
    value: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message} (got {self.value}); {self.remedy}"


def summarise(problems: Sequence[Problem], limit: int = 3) -> str:
    """One text for a condition: the first ``limit`` problems, and how many more there are."""
    shown = "; ".join(str(problem) for problem in problems[:limit])
    more = len(problems) - limit
    return f"{shown}; and {more} more" if more > 0 else shown

"""Evidence that a rollout adds up round by round, of a whole series at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from enginewright.core.failures import Failures, Trials
from enginewright.core.sequential import Interval, Series


def more_failures(rounds: Iterable[Trials]) -> float:
    """Natural logarithm of the evidence that the one side fails more often than the other."""
    evidence = Failures()
    for one in rounds:
        evidence.add(one)
    return evidence.grown()


def confidence_sequence(values: Sequence[float], weights: Sequence[float], alpha: float) -> Interval | None:
    """The mean of ``values``; None before it is known."""
    series = Series()
    for value, weight in zip(values, weights, strict=True):
        series.add(value, weight)
    return series.interval(alpha)

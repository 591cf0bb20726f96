"""What is queued, turned into the capacity that takes it away in time."""

from __future__ import annotations

from collections.abc import Sequence

from enginewright.core.scaling.capacity import Capacity

# Cold starts after which a replica that has not answered is not expected any more.
OVERDUE = 2.0


def left_over(queued: float, rate: float, ready: int, starting: Sequence[float], capacity: Capacity) -> float:
    """Requests still queued when a replica that is asked for now answers: a fluid that comes at ``rate`` and is served
    by those that are ready, and by each of ``starting`` (ages in seconds) from when it answers.
    One that is long overdue is not counted on."""
    horizon = capacity.cold_start_seconds
    joins = sorted(min(horizon, max(0.0, horizon - age)) for age in starting if age <= OVERDUE * horizon)
    left, clock, serving = queued, 0.0, ready
    for moment in (*joins, horizon):
        left = max(0.0, left + (rate - serving * capacity.throughput) * (moment - clock))
        clock, serving = moment, serving + 1
    return left


def ordinary(rate: float, capacity: Capacity, patience: float) -> float:
    """Requests that may be queued at any moment without one of them being late (Little's law)."""
    return rate * max(0.0, patience - capacity.compute_seconds)

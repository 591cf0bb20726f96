"""What one replica can do, as the build measured it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """``throughput`` is requests a second that one replica does within the objective. ``curve`` holds (batch, seconds
    of one batch) by rising batch, as one of ``instances`` does it; it may be empty. ``objective_seconds`` at
    ``percentile`` (50 to 99.99) is None when the spec has no latency objective. ``cold_start_seconds`` is the time from
    the write of a scale-up until the new replica answers."""

    throughput: float
    curve: tuple[tuple[int, float], ...] = ()
    instances: int = 1
    objective_seconds: float | None = None
    percentile: float = 99.0
    cold_start_seconds: float = 0.0

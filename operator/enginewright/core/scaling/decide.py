"""The scaler's one entry."""

from __future__ import annotations

from enginewright.core.observed import SignalWindow
from enginewright.core.scaling.capacity import Capacity
from enginewright.core.scaling.limits import ScaleDecision, ScaleLimits
from enginewright.core.scaling.queue import by_queue


def decide_replicas(
    window: SignalWindow | None, current: int, limits: ScaleLimits, now: float, capacity: Capacity | None = None
) -> ScaleDecision:
    """How many replicas should run, when ``current`` are asked for. ``now`` is on the window's monotonic clock. Without
    ``capacity``, or samples that tell arrivals, queue depth alone decides."""
    return by_queue(window, current, limits, now)

"""What the user allows, and what the scaler answers."""

from __future__ import annotations

from dataclasses import dataclass

from enginewright.core.reasons import Reason
from enginewright.core.spec import AutoscalingSpec

# The down window where nothing measured says how long it should be: the HorizontalPodAutoscaler's own.
DOWN_WINDOW = 300.0
# Queued requests that one replica should have, where the user does not say.
TARGET = 4.0


@dataclass(frozen=True, kw_only=True)
class ScaleLimits:
    """What the user asked for. Windows in seconds; ``target`` is queued requests per replica, with ``bounded`` the most
    that the user wants, whatever was measured; a sample older than ``stale_after`` seconds is not believed.
    ``down_window`` None leaves it to what was measured. With 0 ``min_replicas`` none is left after ``zero_after``
    seconds without a request."""

    min_replicas: int = 1
    max_replicas: int = 1
    target: float = TARGET
    bounded: bool = False
    tolerance: float = 0.1
    up_window: float = 0.0
    down_window: float | None = None
    stale_after: float = 10.0
    zero_after: float = 300.0

    def clamp(self, replicas: int) -> int:
        return max(self.min_replicas, min(self.max_replicas, replicas))


def limits_of(autoscaling: AutoscalingSpec, *, holds: bool = True) -> ScaleLimits:
    """Prometheus scrapes every 15 to 60 seconds, so its samples may be that much older. Unless an activator ``holds``
    what comes, one replica at least runs."""
    return ScaleLimits(
        min_replicas=autoscaling.min_replicas if holds else max(1, autoscaling.min_replicas),
        max_replicas=autoscaling.max_replicas,
        target=autoscaling.target_queue_depth or TARGET,
        bounded=autoscaling.target_queue_depth is not None,
        tolerance=autoscaling.tolerance,
        up_window=autoscaling.scale_up_stabilization_seconds,
        down_window=autoscaling.scale_down_stabilization_seconds,
        stale_after=10.0 if autoscaling.source == "direct" else 90.0,
        zero_after=autoscaling.scale_to_zero_after_seconds,
    )


@dataclass(frozen=True, kw_only=True)
class ScaleDecision:
    """``replicas`` to run now. ``recommendation`` is this moment's wish before stabilisation, to be kept in the signal
    window; ``queue_depth`` the smoothed total over all replicas, None when unknown. ``message`` holds the figures.
    ``rate`` and ``forecast`` are requests a second, now and when a replica asked for now would answer; None when not
    known, or when the forecast has no vote."""

    replicas: int
    recommendation: int
    reason: Reason
    message: str
    hold: bool = False
    queue_depth: float | None = None
    rate: float | None = None
    forecast: float | None = None

"""What the user allows, and what the scaler answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from enginewright.core.reasons import Reason
from enginewright.core.scaling.schedules import holding_at
from enginewright.core.spec import AutoscalingSpec, ScalingPolicySpec
from enginewright.core.spec.scaling_limits import Prefer

# The down window where nothing measured says how long it should be: the HorizontalPodAutoscaler's own.
DOWN_WINDOW = 300.0
# Queued requests that one replica should have, where the user does not say.
TARGET = 4.0
# A ceiling that is a whole number of prices pays for that many, whatever the last digit of the quotient.
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Step:
    """``value`` replicas, or with ``percent`` so many of a hundred, within ``period`` seconds."""

    value: int
    percent: bool
    period: float

    def __str__(self) -> str:
        return f"{self.value}{' %' if self.percent else ''} in {self.period:g} s"


@dataclass(frozen=True, kw_only=True)
class ScaleLimits:
    """What the user asked for. Windows in seconds; ``target`` is queued requests per replica, with ``bounded`` the most
    that the user wants, whatever was measured; a sample older than ``stale_after`` seconds is not believed.
    ``down_window`` None leaves it to what was measured. With 0 ``min_replicas`` none is left after ``zero_after``
    seconds without a request. By ``prefer`` more or fewer requests may be late than the objective says. ``least`` and
    ``most`` say where the fewest and the most replicas come from, if not from minReplicas and maxReplicas
    themselves."""

    min_replicas: int = 1
    max_replicas: int = 1
    least: str = ""
    most: str = ""
    up_steps: tuple[Step, ...] = ()
    down_steps: tuple[Step, ...] = ()
    target: float = TARGET
    bounded: bool = False
    tolerance: float = 0.1
    up_window: float = 0.0
    down_window: float | None = None
    stale_after: float = 10.0
    zero_after: float = 300.0
    prefer: Prefer = "balanced"

    def clamp(self, replicas: int) -> int:
        return max(self.min_replicas, min(self.max_replicas, replicas))

    @property
    def ceiling(self) -> str:
        """What allows no more."""
        return self.most or f"autoscaling.maxReplicas {self.max_replicas}"

    @property
    def span(self) -> str:
        sources = [f"at least by {self.least}"] if self.least else []
        sources += [f"at most by {self.most}"] if self.most else []
        why = f" ({', '.join(sources)})" if sources else ""
        return f"between {self.min_replicas} and {self.max_replicas} replicas{why}"


def limits_of(autoscaling: AutoscalingSpec, *, holds: bool = True, now: datetime | None = None,
              price: float | None = None) -> ScaleLimits:
    """Prometheus scrapes every 15 to 60 seconds, so its samples may be that much older. Unless an activator ``holds``
    what comes, one replica at least runs. Without ``now``, which has a time zone, no schedule holds; without the
    ``price`` of a replica for an hour the cost ceiling limits nothing."""
    low, high, least, most = _bounds(autoscaling, now, price)
    up, down = autoscaling.behavior.scale_up, autoscaling.behavior.scale_down
    return ScaleLimits(
        min_replicas=low if holds else max(1, low),
        max_replicas=high,
        least=least,
        most=most,
        up_steps=_steps(up.policies),
        down_steps=_steps(down.policies),
        target=autoscaling.target_queue_depth or TARGET,
        bounded=autoscaling.target_queue_depth is not None,
        tolerance=autoscaling.tolerance,
        up_window=up.stabilization_window_seconds,
        down_window=down.stabilization_window_seconds,
        stale_after=10.0 if autoscaling.source == "direct" else 90.0,
        zero_after=autoscaling.scale_to_zero_after_seconds,
        prefer=autoscaling.prefer,
    )


def _bounds(autoscaling: AutoscalingSpec, now: datetime | None, price: float | None) -> tuple[int, int, str, str]:
    """Fewest and most replicas, and what says so. The fewest always run, whatever they cost."""
    low, high, least, most = autoscaling.min_replicas, autoscaling.max_replicas, "", ""
    held = holding_at(autoscaling.schedules, now) if now else None
    if held and held.min_replicas is not None:
        low, least = held.min_replicas, f"minReplicas {held.min_replicas} of schedule {held.name}"
    if held and held.max_replicas is not None:
        high, most = held.max_replicas, f"maxReplicas {held.max_replicas} of schedule {held.name}"
    if autoscaling.cost_ceiling_per_hour is not None and price:
        paid = int(autoscaling.cost_ceiling_per_hour / price * (1 + ROUNDING))
        if paid < high:
            high, most = max(low, paid), f"autoscaling.costCeilingPerHour {autoscaling.cost_ceiling_per_hour:g}"
            most += f", which pays for {paid} at {price:g} each"
    return low, max(low, high), least, most


def _steps(policies: Iterable[ScalingPolicySpec]) -> tuple[Step, ...]:
    return tuple(Step(value=one.value, percent=one.type == "Percent", period=one.period_seconds) for one in policies)


@dataclass(frozen=True, kw_only=True)
class ScaleDecision:
    """``replicas`` to run now. ``recommendation`` is this moment's wish before stabilisation; ``up`` is the wish that
    more replicas are asked for by, where tolerance tells it from the one that fewer are, and never more than that.
    ``queue_depth`` the smoothed total over all replicas, None when unknown. ``message`` holds the figures.
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
    up: int | None = None

    @property
    def wishes(self) -> tuple[int, ...]:
        """To be kept in the signal window. Up windows look for the least of all, down windows for the most, so that
        neither is taken for the other."""
        return (self.recommendation,) if self.up is None else (self.recommendation, self.up)

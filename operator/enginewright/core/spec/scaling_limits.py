"""How fast replicas may come and go, and limits that hold at certain times only."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from enginewright.core.spec.base import Remedy, SpecModel

CRON_EXAMPLE = '"0 8 * * 1-5", which is 08:00 from Monday to Friday'
CronTime = Annotated[
    str,
    Field(max_length=100, pattern=r"^\S+( +\S+){4}$"),
    Remedy(f"write minute, hour, day of month, month and day of week, such as {CRON_EXAMPLE}"),
]
TimeZone = Annotated[
    str,
    Field(max_length=64, pattern=r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$"),
    Remedy("write a name of the IANA time zone database, such as Europe/Berlin or Etc/UTC"),
]
Prefer = Literal["cost", "balanced", "latency"]


class ScalingPolicySpec(SpecModel):
    """A limit to how fast replicas come or go, as in the behavior of a HorizontalPodAutoscaler."""

    type: Literal["Pods", "Percent"]
    """What value counts: Pods, or Percent of the replicas at the beginning of the period."""
    value: int = Field(ge=1, le=10_000)
    """By how much the number of replicas may change within periodSeconds."""
    period_seconds: int = Field(ge=1, le=1800)
    """Length of the period."""


Policies = Annotated[tuple[ScalingPolicySpec, ...], Field(max_length=8)]


class ScaleUpSpec(SpecModel):
    """How replicas are added."""

    policies: Policies = ()
    """How many replicas may be added within a period; of several the one that lets most be added counts. None: as many
    as are needed at once."""
    stabilization_window_seconds: int = Field(default=0, ge=0, le=3600)
    """Scale up only as far as every recommendation of this window."""


class ScaleDownSpec(SpecModel):
    """How replicas are removed."""

    policies: Policies = ()
    """How many replicas may be removed within a period; of several the one that lets most be removed counts."""
    stabilization_window_seconds: int | None = Field(default=None, ge=0, le=86_400)
    """Scale down only as far as every recommendation of this window. Left out: two cold starts, and then only to a
    fleet that would have met the objective over the last hour; 300 where queue depth alone decides."""


class BehaviorSpec(SpecModel):
    """How fast replicas come and go, as in a HorizontalPodAutoscaler."""

    scale_up: ScaleUpSpec = Field(default_factory=ScaleUpSpec)
    """How replicas are added."""
    scale_down: ScaleDownSpec = Field(default_factory=ScaleDownSpec)
    """How replicas are removed."""


class ScheduleSpec(SpecModel):
    """Limits that hold from each start to the next end."""

    name: str = Field(min_length=1, max_length=63)
    """What decisions and conditions call it."""
    time_zone: TimeZone = "Etc/UTC"
    """Time zone of start and end."""
    start: CronTime
    """When the limits begin to hold, as in a CronJob: minute, hour, day of month, month, day of week."""
    end: CronTime
    """When they cease to hold."""
    min_replicas: int | None = Field(default=None, ge=1, le=1000)
    """Fewest replicas meanwhile; absent: as autoscaling.minReplicas says."""
    max_replicas: int | None = Field(default=None, ge=1, le=1000)
    """Most replicas meanwhile; absent: as autoscaling.maxReplicas says."""

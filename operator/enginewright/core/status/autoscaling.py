"""Queue depth, what was decided from it, and who else decides."""

from __future__ import annotations

from pydantic import Field

from enginewright.core.status.base import TIME, StatusModel

MAX_DECISIONS = 10


class ContestStatus(StatusModel):
    """Another controller writes the replicas of the object's Deployments."""

    manager: str
    """Its field manager."""
    deployment: str
    """The Deployment where the operator put the number back."""
    time: str = Field(json_schema_extra=TIME)
    """When."""
    retry: str | None = None
    """Value of the annotation enginewright.io/retry at that time."""


class DecisionStatus(StatusModel):
    """One change of replicas."""

    time: str = Field(json_schema_extra=TIME)
    """When."""
    from_: int = Field(alias="from")
    """Replicas before."""
    to: int
    """Replicas after."""
    reason: str
    """Why, with figures."""


class AutoscalingStatus(StatusModel):
    """Queue depth and what was decided from it."""

    queue_depth: int | None = None
    """Queued requests over all replicas, rounded."""
    queue_depth_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When queueDepth was taken; it is refreshed sparingly."""
    p99_milliseconds: float | None = Field(default=None, alias="p99Milliseconds")
    """99th percentile latency of the last minute as the servers count it, of the slowest replica. Absent unless servers
    export it (config.serverArgs of the chart with --metrics-config=summary_latencies=true) and the operator asks them
    directly."""
    p99_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When p99Milliseconds was taken; it is refreshed sparingly."""
    rejected: int | None = None
    """With serving.queue: requests that were rejected in the last minute after their timeout in a queue. Triton does
    not count those that a full queue turns away."""
    rejected_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When rejected was counted; it is refreshed sparingly."""
    cache_hit_share: float | None = None
    """With serving.responseCache: share of the requests of the last minute that were answered from it, 0 to 1. Absent
    without requests. Replicas are counted for the others alone."""
    cache_hit_share_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When cacheHitShare was taken; it is refreshed sparingly."""
    desired_replicas: int | None = None
    """Replicas that the operator wants."""
    max_replicas: int | None = None
    """Most replicas that there may be now, by maxReplicas, schedules and costCeilingPerHour."""
    decisions: tuple[DecisionStatus, ...] = Field(default=(), max_length=MAX_DECISIONS)
    """The last changes, newest first."""

"""The build under way, or the one that failed."""

from __future__ import annotations

from pydantic import Field

from enginewright.core.status.base import TIME, StatusModel
from enginewright.core.status.conditions import FailureStatus


class BuildStatus(StatusModel):
    """The build under way, or the last one."""

    fingerprint: str
    """Fingerprint that is built."""
    job: str | None = None
    """Its newest Job."""
    step: str | None = None
    """What the build is doing."""
    percent: int | None = None
    """Progress when this step began, 0 to 100."""
    attempts: int | None = None
    """Jobs of this fingerprint that ended without an engine."""
    failures: int | None = None
    """Failures in a row; the delay before the next attempt grows with them."""
    disruptions: int | None = None
    """Of these, pods that lost their place or their node, which says nothing of the build."""
    repairs: int | None = None
    """How often the engine was rebuilt because the store had lost it."""
    last_failure_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When the last attempt failed."""
    last_failure: FailureStatus | None = None
    """Why the last attempt failed."""
    failure: FailureStatus | None = None
    """An error that waits for a change."""
    spec_key: str | None = None
    """Identifies what of the spec a Job depends on, as it was when it failed."""
    retry: str | None = None
    """Value of the annotation enginewright.io/retry at that time."""

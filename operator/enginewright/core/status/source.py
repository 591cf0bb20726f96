"""What the resolve Job found the source to be."""

from __future__ import annotations

from pydantic import Field

from enginewright.core.status.base import TIME, StatusModel
from enginewright.core.status.conditions import FailureStatus


class CheckpointStatus(StatusModel):
    """Weights of a language model beside the source's: others of it, or a draft's."""

    name: str
    """Its name in the spec."""
    digest: str
    """SHA-256 of its content."""


class SourceStatus(StatusModel):
    """What the resolve Job found the source to be."""

    key: str
    """Identifies what was resolved: URIs, format and declared digests."""
    digest: str | None = None
    """SHA-256 of the source's content."""
    format: str | None = None
    """What the source is."""
    size_bytes: int | None = None
    """Size of the source in bytes."""
    evaluation_digest: str | None = None
    """SHA-256 of the evaluation data."""
    calibration_digest: str | None = None
    """SHA-256 of the calibration data."""
    checkpoints: tuple[CheckpointStatus, ...] | None = None
    """Checkpoints of a language model that the spec lists."""
    drafts: tuple[CheckpointStatus, ...] | None = None
    """Drafts of a language model that the spec lists."""
    attempts: int | None = None
    """Failed attempts to resolve it."""
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

"""Conditions, and an error in a few words."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from enginewright.core.status.base import TIME, StatusModel


class ConditionStatus(StatusModel):
    """A Kubernetes condition; healthy is always True."""

    type: str
    """Ready, Available, SourceResolved, EngineBuilt, AccuracyVerified, ObjectiveMet, RolloutComplete, ScalingActive,
    QualityHeld or ThroughputHeld."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown; healthy is always True."""
    reason: str
    """Why, as one CamelCase word."""
    message: str
    """Why, for people, and what to do next."""
    observed_generation: int
    """Generation of the spec that this speaks of."""
    last_transition_time: str = Field(json_schema_extra=TIME)
    """When status last changed."""


class FailureStatus(StatusModel):
    """An error."""

    reason: str
    """Why, as one CamelCase word."""
    message: str
    """What went wrong, with the field, its value and the remedy."""
    device: bool | None = None
    """True when the device's memory ran out, not the pod's."""

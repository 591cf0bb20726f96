"""The classes of a fleet."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from enginewright.core.status.base import TIME, StatusModel


class ClassStatus(StatusModel):
    """One class of devices of a fleet."""

    name: str
    """The class."""
    model: str
    """The OptimisedModel that serves it, with all details in its own status."""
    ready: Literal["True", "False", "Unknown"]
    """Whether that is Ready."""
    reason: str
    """Why, as one CamelCase word."""
    engine: str | None = None
    """Engine: tensorrt, onnxruntime or torch."""
    precision: str | None = None
    """Numeric precision of the engine."""
    replicas: int | None = None
    """Serving pods that exist."""
    ready_replicas: int | None = None
    """Serving pods that are ready."""
    throughput: float | None = None
    """Inferences a second of one replica, as measured by the build."""
    p99_milliseconds: float | None = Field(default=None, alias="p99Milliseconds")
    """99th percentile latency as measured by the build."""
    per_million_inferences: float | None = None
    """Price of a million inferences at the throughput that a replica sustains within the latency objective."""
    weight: int | None = None
    """Per cent of what comes through a Gateway."""
    least_replicas: int | None = None
    """Replicas that it has at least while it takes over what a class that left has carried."""
    stable: str | None = None
    """Its revision when all classes last served one revision of the fleet: what it goes back to."""
    candidate: str | None = None
    """The revision that is being rolled out."""


class HandoverStatus(StatusModel):
    """What classes that leave a fleet have carried, and the others are to take over."""

    classes: tuple[str, ...] = ()
    """Those that leave, or have left."""
    inferences_per_second: float | None = None
    """The most that all classes together carried when the first was to leave."""
    replicas: int | None = None
    """The same in replicas, where not every class is measured."""
    until: str | None = Field(default=None, json_schema_extra=TIME)
    """Until when the others keep the replicas that they were given for it; absent while a class is still to leave."""

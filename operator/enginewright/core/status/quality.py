"""Live answers held against the source, and the run of a data set."""

from __future__ import annotations

from pydantic import Field

from enginewright.core.status.base import TIME, StatusModel
from enginewright.core.status.conditions import FailureStatus


class QualityStatus(StatusModel):
    """How far live answers agree with the source model."""

    revision: str
    """The revision that answered."""
    metric: str
    """The accuracy gate's metric."""
    agreement: float
    """Mean score of the requests in the windows, 1 for equal answers."""
    low: float
    """It is at least this."""
    high: float
    """It is at most this."""
    required: float
    """What the engine was proven to keep."""
    samples: int
    """Sampled requests in the windows of all replicas."""
    replicas: int
    """Replicas that measure."""
    time: str = Field(json_schema_extra=TIME)
    """When these figures were taken; they are refreshed sparingly."""


class BatchStatus(StatusModel):
    """The run of a data set through the engine."""

    key: str
    """Identifies the run: input, output and shards."""
    job: str | None = None
    """Its Job."""
    fingerprint: str | None = None
    """Fingerprint of the engine that answers."""
    shards: int | None = None
    """Parts of the input."""
    completed: int | None = None
    """Shards whose rows are all answered."""
    failed: int | None = None
    """Shards that were given up."""
    rows: int | None = None
    """Rows of the input; absent until a shard is done."""
    rows_completed: int | None = None
    """Rows of the shards that are done. The output has those of other shards as well, as far as they are."""
    start_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When the Job began; where it was recreated, the newest one."""
    completion_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When all rows were answered."""
    rows_per_second: float | None = None
    """Of all pods together, from start to completion."""
    cost: float | None = None
    """Price of the newest Job's pods from start to completion, at most: by the price for an hour of one, as if all of
    them had run all the time."""
    currency: str | None = None
    """Currency of the price."""
    failure: FailureStatus | None = None
    """Why it waits for a change."""
    generation: int | None = None
    """Generation of the spec that the Job was made for."""
    retry: str | None = None
    """Value of the annotation enginewright.io/retry at that time."""

"""The chosen hardware and batching, and what they cost."""

from __future__ import annotations

from enginewright.core.status.base import StatusModel
from enginewright.core.status.engine import ServedStatus


class CostStatus(StatusModel):
    """What inferences cost on one replica at the latency objective, by the operator's configured prices."""

    per_million_inferences: float | None = None
    """Price of a million inferences at the throughput that a replica sustains within the latency objective. Absent of a
    language model."""
    per_million_tokens: float | None = None
    """Of a language model: price of a million tokens of answers, under the load that the build measured."""
    currency: str
    """Currency of the price."""
    price_per_hour: float
    """Price of one replica's devices for an hour."""
    throughput: float | None = None
    """Inferences a second of one replica within the latency objective."""
    served: ServedStatus | None = None
    """What live traffic costs. Absent where the operator does not read the replicas, as with spec.replicas."""


class BatchingStatus(StatusModel):
    """The chosen batching."""

    max_batch_size: int
    """Largest batch that the server forms; 0 where the model takes no batches, and each request is one call of it."""
    preferred_batch_sizes: tuple[int, ...] = ()
    """Batch sizes that the server tries to form."""
    max_queue_delay_microseconds: int
    """How long a request waits for others."""
    instances: int
    """Instances of the model in one replica."""


class TriedProfileStatus(StatusModel):
    """A MIG profile that profile auto has skipped."""

    profile: str
    """The profile."""
    fingerprint: str
    """Of the engine that was built, or was to be built, on it."""
    reason: str
    """Why it does not suit: NotMet or OutOfMemory."""
    message: str
    """With the measured figures."""
    retry: str | None = None
    """Value of the retry annotation when its build failed: another one tries it again."""
    spec_key: str | None = None
    """What of the spec its build depended on: where that changes, it is tried again."""
    attempts: int | None = None
    """Builds that failed on it."""


class PlacementStatus(StatusModel):
    """The chosen hardware."""

    accelerator: str
    """gpu or cpu."""
    resource: str | None = None
    """Extended resource that a replica asks for."""
    mig_profile: str | None = None
    """MIG profile of the slice."""
    device_class: str | None = None
    """DRA device class of the slice."""
    reason: str | None = None
    """What a replica runs on, in words."""
    tried: tuple[TriedProfileStatus, ...] | None = None
    """With mig.profile auto: smaller profiles that do not suit, by the measurements of their builds."""

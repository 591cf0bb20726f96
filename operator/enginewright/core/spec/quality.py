"""The quality monitor: live answers held against the unquantised source model."""

from __future__ import annotations

from pydantic import Field

from enginewright.core.spec.base import SpecModel
from enginewright.core.spec.resources import ResourcesSpec


class QualitySpec(SpecModel):
    """Hold a few live answers against the unquantised source model. Off where absent: it looks at requests."""

    sample_share: float = Field(default=0.1, gt=0, le=1)
    """Share of the requests of each replica that is sampled, as far as maxSamplesPerMinute allows."""
    max_samples_per_minute: int = Field(default=60, ge=1, le=600)
    """Most requests of each replica that are sampled in a minute."""
    window: int = Field(default=2000, ge=100, le=100_000)
    """Newest sampled requests of each replica that agreement is taken over. A batch in one request counts as one."""
    resources: ResourcesSpec = Field(default_factory=ResourcesSpec)
    """CPU and memory of the monitor beside each server; memory has to hold the source model in full precision."""
    rollback: bool = False
    """Go back to the last revision that served before, without asking, when live answers have drifted."""

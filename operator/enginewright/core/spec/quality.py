"""The quality monitor: live answers held against the unquantised source model."""

from __future__ import annotations

from pydantic import Field

from enginewright.core.spec.base import SpecModel
from enginewright.core.spec.resources import ResourcesSpec

# Times the interval that captures may be kept: so many lie in the store at most.
CAPTURES_KEPT = 100


class CaptureSpec(SpecModel):
    """Keep sampled requests in the store, inputs alone, for later builds to evaluate and calibrate on."""

    max_samples: int = Field(default=2000, ge=20, le=100_000)
    """Most samples of a capture, drawn evenly from all that were sampled. Each row of a batch is a sample."""
    max_mebibytes: int = Field(default=64, ge=1, le=1024)
    """Most MiB of a capture's tensors. The monitor holds them in its memory, beside the source model."""
    interval_seconds: int = Field(default=86_400, ge=900, le=604_800)
    """For how long a capture collects, 900 to 604800. It is written at the end; what a replica that stops before has
    collected is lost."""
    retention_seconds: int = Field(default=604_800, ge=900, le=31_536_000)
    """How long a capture is kept, at least as long as it collects and at most a hundred times as long. Builds do not
    read it after that, and it is deleted."""


class QualitySpec(SpecModel):
    """Hold a few live answers against the unquantised source model. Off where absent: it looks at requests. A language
    model is asked prompts of its build in their place."""

    sample_share: float = Field(default=0.1, gt=0, le=1)
    """Share of the requests of each replica that is sampled, as far as maxSamplesPerMinute allows. A language
    model's monitor sends requests of its own instead: so many for each live one."""
    max_samples_per_minute: int = Field(default=60, ge=1, le=600)
    """Most requests of each replica that are sampled in a minute, or that a language model's monitor
    sends."""
    window: int = Field(default=2000, ge=100, le=100_000)
    """Newest sampled requests of each replica that agreement is taken over. A batch in one request counts as one."""
    resources: ResourcesSpec = Field(default_factory=ResourcesSpec)
    """CPU and memory of the monitor beside each server; memory has to hold the source model in full precision, but not
    a language model."""
    capture: CaptureSpec | None = None
    """Keep sampled requests in the store, for captured://MODEL in spec.accuracy.evaluation and spec.engine.calibration.
    Absent: no request is kept. Needs a store on a volume. Removing it deletes what was captured."""
    rollback: bool = False
    """Go back to the last revision that served before, without asking, when live answers have drifted."""

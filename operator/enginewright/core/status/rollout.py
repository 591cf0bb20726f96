"""Revisions, and the rollout between two of them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from enginewright.core.status.base import TIME, StatusModel


class RolledBackStatus(StatusModel):
    """A revision that was given up; it is not tried again before the spec changes."""

    revision: str
    """The revision."""
    reason: str
    """Why, as one CamelCase word."""
    message: str
    """Why, with figures."""
    time: str = Field(json_schema_extra=TIME)
    """When."""
    retry: str | None = None
    """Value of the annotation enginewright.io/retry at that time."""


class AnalysisStatus(StatusModel):
    """Figures of the analysis under way or just ended."""

    ratio: float | None = None
    """The new revision's mean request latency over the stable one's in the same seconds."""
    low: float | None = None
    """The ratio is at least this."""
    high: float | None = None
    """The ratio is at most this."""
    measure: str | None = None
    """What the ratio is of in place of request latencies: of a language model the time to first token, or the time per
    token, whichever is worse."""
    requests: int = 0
    """Requests that the new revision answered."""
    failures: int = 0
    """Requests that it failed."""
    seconds: int = 0
    """How long both were watched."""
    time: str | None = Field(default=None, json_schema_extra=TIME)
    """When these figures were taken."""
    uncompared: str | None = None
    """Why outputs were not compared that should have been; without a ratio, latency neither."""
    mirrored: int | None = None
    """Live requests that both answered, where rollout.analysis.mirror asks for it."""
    agreement: float | None = None
    """Mean score of the new revision's answers to them against the stable one's, by the accuracy gate's metric."""
    agreement_low: float | None = None
    """The mean is at least this."""
    agreement_high: float | None = None
    """The mean is at most this."""


class RolloutStatus(StatusModel):
    """The revisions, and the state of the rollout."""

    stable: str | None = None
    """The last revision that was proven to serve."""
    candidate: str | None = None
    """The revision that is being rolled out."""
    retry: str | None = None
    """Value of the annotation enginewright.io/retry when the candidate began."""
    step: str | None = None
    """Starting, Analysing, WaitingForPromotion, Expanding, Switching, Draining, Complete or RolledBack; of a fleet
    Starting, WaitingForClasses, WaitingForPromotion, Expanding, Complete or RolledBack."""
    step_start_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When the step began."""
    weight_step: int | None = None
    """Steps of spec.rollout.steps that the candidate has passed."""
    restarts: int | None = None
    """Restarts of the candidate's pods when its analysis began."""
    readiness_losses: int | None = None
    """How often replicas of the candidate lost readiness while it was analysed, or all of them after all traffic
    had moved to it."""
    failed_switches: int | None = None
    """How often traffic went back from the candidate after all of it had moved there, as it failed more inferences."""
    analysis: AnalysisStatus | None = None
    """Figures of the analysis."""
    stable_source: str | None = None
    """Digest of the source that the stable revision was built from."""
    rolled_back: RolledBackStatus | None = None
    """The last revision that the operator rolled back."""
    approved: str | None = None
    """With strategy Recreate and autoPromote false: the approved revision, until it serves."""


class TargetStatus(StatusModel):
    """What an engine is built for, and depends on."""

    device: str
    """GPU product and MIG profile, or cpu; and the architecture."""
    device_count: int
    """Devices of one replica."""
    server_image: str
    """Image of the server, which has the runtime."""
    backends: str
    """What that image can run."""
    builder_image: str
    """Image of the builder."""
    objective: str | None = None
    """The latency that its throughput was measured within."""


class RevisionStatus(StatusModel):
    """One revision that served or was tried, with its evidence in short."""

    revision: str
    """The revision."""
    fingerprint: str
    """Its engine."""
    backend: str | None = None
    """Engine: tensorrt, onnxruntime or torch; of a language model its server, vllm."""
    precision: str | None = None
    """Numeric precision of the engine."""
    speedup: float | None = None
    """Throughput relative to the source model, as in status.engine."""
    p99_milliseconds: float | None = Field(default=None, alias="p99Milliseconds")
    """99th percentile latency as measured by the build."""
    accuracy_low: float | None = None
    """Lower 95 % confidence bound of the accuracy."""
    promotion_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When it last took over. Absent: it never did, and you cannot go back to it."""
    outcome: Literal["Serving", "Superseded", "RolledBack"]
    """Serving, Superseded by a later one, or RolledBack."""
    reason: str | None = None
    """Why it was rolled back, as one CamelCase word."""
    message: str | None = None
    """Why it was rolled back, with figures."""
    analysis: AnalysisStatus | None = None
    """The result of its last analysis, beside the revision that served before it. Absent: nothing served to compare it
    with, or the rollout had no analysis."""
    end_time: str | None = Field(default=None, json_schema_extra=TIME)
    """When it was superseded or rolled back."""
    target: TargetStatus | None = None
    """What its engine was built for."""


class ThroughputStatus(StatusModel):
    """Throughput that the build of an engine measured, beside the build of the engine that served before it."""

    fingerprint: str
    """The engine."""
    before: str
    """The revision that served before it."""
    reason: str
    """AsFast, BuiltSlower or NotComparable."""
    message: str
    """Both figures, or why they cannot be compared."""


class PinStatus(StatusModel):
    """What the annotation enginewright.io/rollback-to asked for."""

    revision: str
    """The annotation's value."""
    spec_key: str
    """Identifies what the spec asked to be served when the annotation was first seen."""
    released: bool | None = None
    """True once the spec has asked for something else: the newest wish wins."""

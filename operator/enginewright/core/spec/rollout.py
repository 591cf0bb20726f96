"""How revisions replace each other, and how many replicas there are."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from enginewright.core.promql import MATCHERS_PATTERN
from enginewright.core.spec.base import Remedy, SpecModel
from enginewright.core.spec.gateway import GatewaySpec
from enginewright.core.spec.scaling_limits import BehaviorSpec, Prefer, ScheduleSpec

PrometheusUrl = Annotated[
    str,
    Field(max_length=512, pattern=r"^https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~:+,=-]*)*$"),
    Remedy("write the base address without user, query and fragment, such as http://prometheus.monitoring:9090"),
]
Matchers = Annotated[
    str,
    Field(max_length=512, pattern=MATCHERS_PATTERN),
    Remedy('write label matchers with double quotes and commas between them, such as cluster="eu-1",tier=~"a|b"'),
]


class CanaryStep(SpecModel):
    """A share of the traffic, and an analysis at it."""

    weight: int = Field(ge=1, le=100)
    """Per cent of the replicas that are of the new revision: the nearest number of replicas is taken, one at least.
    With gateway, exactly that much of the traffic that comes through it."""
    analysis_seconds: int | None = Field(default=None, ge=0, le=86_400)
    """How long the analysis at this step should take; absent: as analysis.seconds says."""


class AnalysisSpec(SpecModel):
    """What a new revision is held to, beside the stable one in the same seconds."""

    seconds: int = Field(default=60, ge=0, le=86_400)
    """How long the analysis of a new revision should take. Bad figures end it as soon as they are clear, good ones
    after a quarter of this; unclear ones are watched up to five times as long. Time alone never promotes; 0 promotes
    without an analysis."""
    max_slowdown: float = Field(default=0.25, ge=0.05, le=10)
    """Largest relative rise of the mean request latency, or with task generate of the mean time to first token and the
    mean time per token: 0.25 lets it be a quarter slower."""
    min_requests: int = Field(default=60, ge=10, le=1_000_000)
    """Requests that each of the two revisions must have answered before promotion, probes included."""
    compare_outputs: Literal["auto", "always", "never"] = "auto"
    """Send both revisions the same made-up inputs and compare what they answer: auto does so when both are built from
    the same source, always also for new weights, which are meant to differ. With task generate the answers to live
    requests are compared: their mean length, and how many the largest length ended."""
    mirror: bool = False
    """Send the live requests that the quality monitor samples from the stable revision to the new one as well, and hold
    its answers against the stable one's by the accuracy gate's metric, where compareOutputs has outputs compared. Needs
    spec.quality, whose limits hold: requests stay in the memory of these pods. Pods that were made before it was set
    send none."""


class RolloutSpec(SpecModel):
    """How a new engine takes over."""

    strategy: Literal["Canary", "BlueGreen", "Recreate"] = "Canary"
    """Canary lets new replicas share the traffic while they are analysed; BlueGreen switches all traffic after the
    analysis; Recreate stops the old revision first (when capacity allows only one)."""
    max_surge: int = Field(default=1, ge=0, le=100)
    """Replicas above the wanted number during a rollout. With 0, Canary exchanges them one at a time, so that one fewer
    than wanted serves while a new one starts."""
    steps: tuple[CanaryStep, ...] = Field(default=(), max_length=20)
    """With Canary: rising shares of the traffic, with an analysis at each, and no pause between them. A step of 100 is
    left out: promotion is that step. None: one replica, analysed once."""
    analysis: AnalysisSpec = Field(default_factory=AnalysisSpec)
    """What the new revision is held to."""
    gateway: GatewaySpec | None = None
    """Split the traffic that comes through a Gateway by the weights of routes. Absent: by replicas behind one
    Service."""
    scale_down_delay_seconds: int = Field(default=30, ge=0, le=3600)
    """With BlueGreen: how long the old revision stays after the switch, at full strength and without traffic. It takes
    the traffic back when no replica of the new one answers in that time, the third time for good, or when the new one
    fails more inferences than the old one did before, the second time for good."""
    auto_promote: bool = True
    """Promote after a good analysis without asking. When false, the rollout waits for the annotation
    enginewright.io/promote: after the last step, whose share the new revision keeps meanwhile; with Recreate, before
    the old revision is stopped."""
    require_objective: bool = False
    """Refuse a new revision that misses spec.objective.latency. One that misses it in the build never starts; one that
    misses it live, where its replicas export latencies, is rolled back. Where too few requests were measured to know
    the percentile, the rollout waits and says how many it takes. What serves already goes on serving."""
    require_throughput: bool = False
    """Refuse a new revision when one replica of it does less within the objective than one of what serves, as both
    builds measured it, by more than analysis.maxSlowdown allows. It never starts, and what serves goes on serving. When
    false it is rolled out, and condition ThroughputHeld says so."""


class PrometheusSpec(SpecModel):
    """Prometheus as the source of queue depth."""

    url: PrometheusUrl
    """Base address of Prometheus."""
    labels: Matchers = ""
    """Label matchers added to the query, such as cluster="eu-1",tier=~"a|b". The operator adds namespace and pod."""


class AutoscalingSpec(SpecModel):
    """Replicas follow arrivals and the queue."""

    min_replicas: int = Field(default=1, ge=0, le=1000)
    """Fewest replicas. With 0 none runs while no request comes: an activator, a small Deployment of its own, takes the
    model's Service meanwhile and holds what comes until a replica is ready. Not together with source prometheus or
    rollout.gateway."""
    max_replicas: int = Field(ge=1, le=1000)
    """Most replicas."""
    target_queue_depth: float | None = Field(default=None, gt=0, le=100_000)
    """Queued requests that one replica should have at most: more ask for more replicas. Left out: 4 where queue depth
    alone decides; with algorithm measured what is queued asks for replicas only by how long it takes to answer."""
    scale_to_zero_after_seconds: int = Field(default=300, ge=1, le=3600)
    """With minReplicas 0: how long no request may have come before the last replica goes. Longer than a request takes:
    one that is being computed is not seen before it is answered."""
    hold_seconds: int = Field(default=120, ge=1, le=3600)
    """With minReplicas 0: how long a request may wait for a replica to start. Then it is refused: HTTP 503 with
    Retry-After, gRPC UNAVAILABLE."""
    tolerance: float = Field(default=0.1, ge=0, lt=1)
    """Relative distance from the target that changes nothing."""
    behavior: BehaviorSpec = Field(default_factory=BehaviorSpec)
    """How fast replicas come and go, as in a HorizontalPodAutoscaler."""
    cost_ceiling_per_hour: float | None = Field(default=None, gt=0, le=1e9)
    """What all replicas together may cost an hour, in the currency of the operator's prices, which must have one for
    the device. No more run than it pays for, but minReplicas do; what a rollout runs beside them is not counted."""
    schedules: tuple[ScheduleSpec, ...] = Field(default=(), max_length=16)
    """Other limits at certain times. Of several that hold at once the first counts."""
    algorithm: Literal["queue", "measured"] = "measured"
    """measured: replicas follow arrivals and the queue, by what the build measured one replica to do within the
    objective, or was seen to do since where that is less. queue: they follow queue depth alone, as they do with source
    prometheus, and where the build measured nothing."""
    prefer: Prefer = "balanced"
    """With algorithm measured, how many requests may be late. balanced: what the objective allows, 1 of 100 at p99.
    cost: four times as many, for fewer replicas. latency: a quarter, for more. Not with algorithm queue or source
    prometheus: queue depth knows no objective."""
    source: Literal["direct", "prometheus"] = "direct"
    """Where queue depth is read: direct from every replica once a second, or from prometheus."""
    prometheus: PrometheusSpec | None = None
    """Needed with source prometheus."""

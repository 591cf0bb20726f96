"""What a sweep found. Plain data: it goes into ``build-report.json`` as it is."""

from __future__ import annotations

from dataclasses import dataclass

from enginewright_builder.contract import ServingChoice
from enginewright_builder.measure.energy import DeviceUse
from enginewright_builder.measure.layers import Layers


@dataclass(frozen=True, kw_only=True)
class Point:
    """One measurement in closed loop: ``concurrency`` requests of ``batch`` elements each in flight."""

    serving: ServingChoice
    threads: int
    concurrency: int
    batch: int
    requests: int
    errors: int
    seconds: float
    throughput: float
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    objective_ms: float  # latency at the objective's percentile
    throughput_low: float  # 95 % interval of throughput, from time slices
    throughput_high: float
    mean_batch: float  # as executed by Triton
    layers: Layers
    use: DeviceUse | None = None
    p999_ms: float | None = None  # None where ``requests`` are too few to know it
    late: int = 0  # requests that took longer than the objective's latency; 0 without one


@dataclass(frozen=True, kw_only=True)
class ServicePoint:
    """Service time of one batch alone on one replica, and what that makes in inferences a second.

    ``compute_ms`` is how long an instance is taken and ``transport_ms`` what a client sees on top, by Triton's own
    statistics: means, of which a replica's capacity is made, where ``p50_ms`` is a median.
    """

    batch: int
    p50_ms: float
    throughput: float
    compute_ms: float = 0.0
    transport_ms: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """``best`` is the point shipped; ``capacity`` its throughput (inferences a second of one replica at the objective).

    ``cold_start_seconds`` is the first load of the model in a server that runs, ``first_inference_ms`` the first
    request after it; neither is part of any point. ``requests_to_show``: how many requests it takes to say that the
    latency objective is met, where too few kept it; else 0.
    """

    serving: ServingChoice
    threads: int
    reason: str
    objective_met: bool
    best: Point
    points: tuple[Point, ...]
    service_curve: tuple[ServicePoint, ...]
    cold_start_seconds: float
    first_inference_ms: float
    memory_bytes: int
    server_version: str
    seconds: float
    alone: ServicePoint | None = None  # one request that finds the replica idle
    warm_load_seconds: float = 0.0  # the quickest of the loads that came later; 0: there was none
    requests_to_show: int = 0

    @property
    def capacity(self) -> float:
        return self.best.throughput

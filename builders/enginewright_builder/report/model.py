"""``build-report.json`` as dataclasses; read it back with ``contract.load(BuildReport, text)``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from enginewright_builder.accuracy.drift_report import DriftReport
from enginewright_builder.contract import (
    CONTRACT_VERSION,
    CandidateSummary,
    EngineSummary,
    GroupFigure,
    GroupsSummary,
    Interface,
    ObjectiveRequest,
    ServingChoice,
    TaskFigure,
)
from enginewright_builder.measure.profile import EngineProfile
from enginewright_builder.report.performance import Performance
from enginewright_builder.sweep.result import SweepResult


@dataclass(frozen=True, kw_only=True)
class AccuracyEvidence:
    """``low`` is the one-sided 95 % lower bound of ``value``; the gate asks ``low >= 1 - tolerance``. ``evaluation`` is
    ``held-out`` or ``synthetic``. ``task`` is the metric on labels; ``groups`` has every candidate's figures by group,
    ``summary`` what they come to for the engine that ships."""

    metric: str
    value: float
    low: float
    tolerance: float
    samples: int
    evaluation: str
    task: TaskFigure | None = None
    groups: Mapping[str, tuple[GroupFigure, ...]] = field(default_factory=dict)
    summary: GroupsSummary | None = None


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The source model as it is (eager PyTorch, or the given ONNX), measured like the candidates. None: not
    measured."""

    name: str
    batch: int
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    throughput: float | None = None


@dataclass(frozen=True, kw_only=True)
class Hardware:
    device: str  # "Intel Xeon …" or the GPU product
    cores: int
    memory_bytes: int
    architecture: str
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BuildReport:
    """``command`` reproduces the build by hand. ``steps`` are seconds a step; ``versions`` of runtime, exporter,
    server.

    ``sweep`` and ``performance`` are None for an engine that was offered but not served. ``drift`` is by the
    names of refused candidates. ``profiles`` are of the engines that serve, where they were asked for.
    Fields are only ever added within one ``version``.
    """

    model_name: str
    fingerprint: str
    created: str
    command: str
    source_uri: str
    source_digest: str
    source_format: str
    interface: Interface
    reference: Reference
    candidates: tuple[CandidateSummary, ...]
    engine: EngineSummary
    accuracy: AccuracyEvidence
    objective: ObjectiveRequest
    serving: ServingChoice
    config_pbtxt: str
    hardware: Hardware
    sweep: SweepResult | None = None
    performance: Performance | None = None
    drift: Mapping[str, DriftReport] = field(default_factory=dict)
    profiles: tuple[EngineProfile, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    version: int = CONTRACT_VERSION

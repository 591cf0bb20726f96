"""The form of what ``--format json`` prints: the contract with its readers."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from enginewright_simulation.results import Figures


class TraceFigures(TypedDict):
    """``peak_rps`` is the most requests that came in one second."""

    name: str
    requests: int
    seconds: float
    mean_rps: float
    peak_rps: int
    rate_scale: float
    seed: int


class GridRow(TypedDict):
    """``settings`` are ``target`` (queued requests a replica; for Knative concurrent ones) and ``window`` (seconds)."""

    policy: str
    settings: dict[str, float]
    slo_violations: int
    replica_seconds: float


class Answer(TypedDict):
    """``settings`` are what all policies shared, ``notes`` what a reader should know."""

    trace: TraceFigures
    settings: dict[str, float]
    policies: dict[str, Figures]
    grid: NotRequired[list[GridRow]]
    notes: list[str]

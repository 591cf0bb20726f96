"""Which of two measured points is the better one?"""

from __future__ import annotations

import math

from enginewright_builder.contract import ENERGY, ObjectiveRequest
from enginewright_builder.measure.energy import inferences_per_joule_drawn
from enginewright_builder.sweep.result import Point


def met(point: Point, objective: ObjectiveRequest) -> bool:
    """True when no latency is asked for. Throughput is asked of all replicas together, so one replica cannot miss
    it."""
    return not point.errors and (objective.latency_ms <= 0 or point.objective_ms <= objective.latency_ms)


def score(point: Point, objective: ObjectiveRequest) -> tuple[int, float]:
    """Higher is better. Within the latency objective: throughput, or inferences a joule where energy is to be least.
    Outside: the smaller latency.

    Without an objective: power, throughput divided by mean latency, whose maximum is the knee of the latency–throughput
    curve (Kleinrock, "Power and deterministic rules of thumb", ICC 1979).
    """
    if not met(point, objective):
        return 0, -point.objective_ms
    if objective.minimise == ENERGY:
        return 1, inferences_per_joule_drawn(point.use, point.throughput) or 0.0
    if objective.latency_ms > 0:
        return 1, point.throughput
    return 1, point.throughput / point.mean_ms if point.mean_ms else 0.0


def replicas_needed(point: Point, objective: ObjectiveRequest) -> int:
    """Replicas of this capacity for the throughput asked for; 0 when none is."""
    if objective.throughput <= 0 or point.throughput <= 0:
        return 0
    return math.ceil(objective.throughput / point.throughput)

"""Which of two measured points is the better one, and is the difference clear?"""

from __future__ import annotations

import math

from enginewright_builder.contract import ObjectiveRequest
from enginewright_builder.sweep.result import Point

# Below this a difference is not worth another process, more memory, or a longer queue.
WORTH = 1.03


def met(point: Point, objective: ObjectiveRequest) -> bool:
    """True when no latency is asked for. Throughput is asked of all replicas together, so one replica cannot miss
    it."""
    return not point.errors and (objective.latency_ms <= 0 or point.objective_ms <= objective.latency_ms)


def score(point: Point, objective: ObjectiveRequest) -> tuple[int, float]:
    """Higher is better. Within the latency objective: throughput. Outside: the smaller latency.

    Without an objective: power, throughput divided by mean latency, whose maximum is the knee of the latency–throughput
    curve (Kleinrock, "Power and deterministic rules of thumb", ICC 1979).
    """
    if not met(point, objective):
        return 0, -point.objective_ms
    if objective.latency_ms > 0:
        return 1, point.throughput
    return 1, point.throughput / point.mean_ms if point.mean_ms else 0.0


def clearly_better(challenger: Point, incumbent: Point, objective: ObjectiveRequest) -> bool:
    """Better by score, and by more than noise: at equal concurrency the 95 % intervals of throughput must not contain
    each other's value, and the gain must be worth it. Meeting an objective that the other misses always counts."""
    if score(challenger, objective) <= score(incumbent, objective):
        return False
    if met(challenger, objective) != met(incumbent, objective):
        return True
    if challenger.concurrency != incumbent.concurrency:
        return True
    return (challenger.throughput_low > incumbent.throughput and challenger.throughput > incumbent.throughput_high
            and challenger.throughput > WORTH * incumbent.throughput)


def replicas_needed(point: Point, objective: ObjectiveRequest) -> int:
    """Replicas of this capacity for the throughput asked for; 0 when none is."""
    if objective.throughput <= 0 or point.throughput <= 0:
        return 0
    return math.ceil(objective.throughput / point.throughput)

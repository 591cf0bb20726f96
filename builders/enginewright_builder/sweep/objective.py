"""Which of two measured points is the better one?"""

from __future__ import annotations

import itertools
import math

from scipy.special import bdtr

from enginewright_builder.contract import ENERGY, ObjectiveRequest
from enginewright_builder.measure.energy import inferences_per_joule_drawn
from enginewright_builder.sweep.result import Point

# The chance that a build says "met" of an engine that is late at twice the odds that the objective allows, at whatever
# settings it is tried: all tries share it (Bonferroni's inequality).
WRONGLY_MET = 0.05
# So many settings are tried at most of each way to serve an engine.
MOST_TRIES = 3


def met(point: Point, objective: ObjectiveRequest) -> bool:
    """Whether the measured requests, which may be few (:func:`shown`), keep the latency objective. True where there is
    none. An objective of throughput is that of all replicas together, so one replica cannot miss it."""
    return not point.errors and (objective.latency_ms <= 0 or point.objective_ms <= objective.latency_ms)


def shown(point: Point, objective: ObjectiveRequest, ways: int = 1) -> bool:
    """Met, of enough requests to tell it from an engine that is late at twice the odds. ``ways`` is how many ways to
    serve the engine are tried."""
    return met(point, objective) and (
        objective.latency_ms <= 0 or point.requests >= requests_to_show(objective.latency_percentile, point.late, ways))


def requests_to_show(percentile: float, late: int, ways: int = 1) -> int:
    """The fewest requests of which ``late`` or fewer come late in one try's share of :data:`WRONGLY_MET` at most, where
    the odds of a late request are twice those that the percentile allows: 205 for the 99th where none is late."""
    allowed, chance = 1 - percentile / 100, WRONGLY_MET / (MOST_TRIES * ways)
    odds = 2 * allowed / (1 + allowed)
    low, high = late, late + 1
    while bdtr(late, high, odds) > chance:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bdtr(late, middle, odds) > chance else (low, middle)
    return high


def requests_to_decide(percentile: float, ways: int = 1) -> int:
    """So many requests that they show it wherever the percentile of them is within the limit: 898 for the 99th."""
    needed = ((late, requests_to_show(percentile, late, ways)) for late in itertools.count())
    return next(count for late, count in needed if count * (1 - percentile / 100) <= late)


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

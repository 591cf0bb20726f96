"""May one slow request be in what was chosen? Then it is measured again before it ships. Pure.

A search asks for each point once, and one pause of the machine can move a percentile of a short window by ten times.
Two signs of that: the chosen point's tail is far longer for its median than the tails of the others are for theirs, or
another measured point answers faster *and* serves more. A point that such a request kept from being chosen is not
looked for.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from enginewright_builder.contract import ObjectiveRequest
from enginewright_builder.sweep.objective import score
from enginewright_builder.sweep.predict import CLIP, TAIL
from enginewright_builder.sweep.result import Point

# Latencies closer than this are equal: noise beats none.
CLEARLY = 0.95


def in_doubt(points: Sequence[Point], best: Point, objective: ObjectiveRequest) -> list[Point]:
    """What to measure again before ``best`` ships, ``best`` first; empty where nothing speaks against it."""
    # Under a limit only a tie leaves such a point behind, for a simpler configuration: nothing is odd about that.
    beaten = beaten_by(points, best, objective) if objective.latency_ms <= 0 else None
    if beaten is not None:
        return [best, beaten]
    return [best] if apart(points, best) else []


def beaten_by(points: Sequence[Point], best: Point, objective: ObjectiveRequest) -> Point | None:
    """Of the points with more throughput and clearly less latency at the objective's percentile, the best one."""
    found = [point for point in points if not point.errors and point.throughput >= best.throughput
             and point.objective_ms < CLEARLY * best.objective_ms]
    return max(found, key=lambda point: score(point, objective), default=None)


def apart(points: Sequence[Point], best: Point) -> bool:
    """True when the tail of ``best`` is longer than is usual among the others, by what the search takes for a stall."""
    others = [_tail(point) for point in points if point is not best]
    return bool(others) and _tail(best) - statistics.median(others) > CLIP * TAIL.spread


def _tail(point: Point) -> float:
    """Logarithm of the objective's percentile over the median, which a single slow request does not move."""
    return math.log(point.objective_ms / min(point.p50_ms, point.mean_ms))

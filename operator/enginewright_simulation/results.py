"""What a run comes to: the figures of one policy."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Sequence
from typing import TypedDict

from enginewright_simulation.run import Run


class Figures(TypedDict):
    """``violation_rate`` is a share of all requests, ``reversals`` how often scaling changed its direction."""

    requests: int
    slo_violations: int
    violation_rate: float
    replica_seconds: float
    p50_ms: float
    p99_ms: float
    reversals: int


def figures(run: Run) -> Figures:
    ordered = array("d", sorted(run.ledger.latencies))
    late = len(run.ledger.late)
    return Figures(
        requests=len(ordered),
        slo_violations=late,
        violation_rate=round(late / len(ordered), 6),
        replica_seconds=round(run.replica_seconds, 3),
        p50_ms=round(percentile(ordered, 50) * 1e3, 3),
        p99_ms=round(percentile(ordered, 99) * 1e3, 3),
        reversals=reversals(run.changes),
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: the least value that ``percent`` of all do not exceed."""
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def reversals(changes: Sequence[tuple[float, int, int]]) -> int:
    ups = [after > before for _, before, after in changes]
    return sum(this != last for last, this in itertools.pairwise(ups))

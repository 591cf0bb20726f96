"""How far a rule can go that does not know the future: replica-seconds of several, each where 1 % of requests are late.

Each is tried with several percentiles in place of the objective's; between two of them late requests and
replica-seconds follow a straight line.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from enginewright_simulation.results import Figures
from scaling_study.runs import FORESEEN, ORACLE, TOLD, TRAILING, US, Cell
from tables import head, row

SEEDS = 3
LATE = 0.01
# Loads that change without warning: 1 % is reached by none.
SUDDEN = ("bursts", "on and off")
TRIED = {FORESEEN: (98.8, 99.0, 99.2), TOLD: (98.0, 98.6, 99.0, 99.3),
         **dict.fromkeys(TRAILING, (98.6, 99.0, 99.3, 99.5)),
         US: (98.7, 99.0, 99.2)}


def bounds(loads: Sequence[str], seeds: int) -> list[Cell]:
    return [Cell(load=load, policy=policy, seed=seed, percentile=percentile)
            for load in loads if load not in SUDDEN for seed in range(1, min(SEEDS, seeds) + 1)
            for policy, tried in {ORACLE: (99.0,), **TRIED}.items() for percentile in tried]


def bounds_table(cells: Sequence[Cell], found: Mapping[Cell, Figures]) -> str:
    lines = [*head("Load", "Policy", "Replica-seconds at 1 % late, of those of oracle", right=(2,))]
    for load in dict.fromkeys(cell.load for cell in cells):
        here = [cell for cell in cells if cell.load == load]
        best = sum(found[cell]["replica_seconds"] for cell in here if cell.policy == ORACLE)
        for policy, tried in TRIED.items():
            points = []
            for percentile in tried:
                each = [found[cell] for cell in here if (cell.policy, cell.percentile) == (policy, percentile)]
                late = sum(one["slo_violations"] for one in each) / sum(one["requests"] for one in each)
                points.append((late, sum(one["replica_seconds"] for one in each) / best))
            cost = at(LATE, points)
            said = "not within what was tried" if math.isnan(cost) else f"{cost:.2f}"
            lines.append(row((Path(load).stem, policy, said)))
    return "\n".join([*lines, ""])


def at(late: float, points: Sequence[tuple[float, float]]) -> float:
    """On the straight lines between ``points`` of (share late, cost); NaN outside of them."""
    for (before, high), (after, low) in itertools.pairwise(sorted(points)):
        if before <= late <= after and before < after:
            return high + (low - high) * (late - before) / (after - before)
    return math.nan

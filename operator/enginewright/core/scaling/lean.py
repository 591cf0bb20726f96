"""How far replicas lean to cost or to latency: the user's one dial, as times the requests that may be late.

Who prefers cost allows more late requests than the objective does, who prefers latency fewer. Nothing else of the rule
differs (docs/adr/0043-prefer.md), so for the same samples a word further to cost never asks for more replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from enginewright.core.scaling.capacity import Capacity
from enginewright.core.spec.scaling_limits import Prefer

# Times the share of requests that may be late by the objective.
LATE: Final[Mapping[Prefer, float]] = {"cost": 4.0, "balanced": 1.0, "latency": 0.25}
# Of what an objective may be, where the queue's formula holds.
LOWEST, HIGHEST = 50.0, 99.99


def leaning(capacity: Capacity, prefer: Prefer) -> Capacity:
    """``capacity`` by another percentile: 4 % may be late in place of p99's 1 %, or a quarter of it."""
    if prefer == "balanced":
        return capacity
    percentile = 100 - LATE[prefer] * (100 - capacity.percentile)
    return replace(capacity, percentile=max(LOWEST, min(HIGHEST, round(percentile, 4))))

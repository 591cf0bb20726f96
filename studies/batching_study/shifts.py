"""Shifts of the mix by name, simulated: for which no fixed setting suits all phases, and for which one does.

What is drawn by lot (``study.py``) is mostly a run whose p99 is that of one phase. Here each run is held against the
best of the fixed settings for that very run, chosen in hindsight: no rule could have known it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from batching_study.simulate import Follow, Replica, play
from batching_study.study import (
    ALONE,
    CURVES,
    DEFAULTS,
    LONG,
    MAX_BATCH,
    STALLS,
    Follower,
    fixed,
    percentile,
    safe,
)
from batching_study.traffic import kinds
from enginewright.core.batching import SafeSet, Setting
from enginewright.core.batching.safe import MICROSECONDS

SHIFTS = {
    "crowds of 4, 8 and 12, lone requests": ("crowd 4", "crowd 8", "lone", "crowd 12"),
    "crowds of 8 and 4, lone requests, a stream": ("crowd 8", "stream", "crowd 4", "lone"),
    "a crowd of 8, bursts, a stream": ("crowd 8", "fans of 8", "crowd 8", "stream"),
    "no crowd: a stream, bursts, lone requests": ("stream", "fans of 8", "lone", "stream"),
}
Row = dict[str, Any]


def settings() -> list[Setting]:
    """Those of the study, and one that has all sizes at once."""
    delay = round(LONG * ALONE * MICROSECONDS)
    return [*fixed(), DEFAULTS["short"], Setting(delay_us=delay, preferred=(4, 8, MAX_BATCH)),
            Setting(delay_us=delay, preferred=(4, 8, 12, MAX_BATCH))]


def run(job: tuple[str, str, int, float]) -> Row:
    """One row. The job is (curve, shift, seed, seconds of a phase)."""
    curve, name, seed, seconds = job
    made = kinds(ALONE, STALLS[seed % len(STALLS)])
    phases = [made[kind](seconds) for kind in SHIFTS[name]]

    def p99(within: SafeSet, rule: Follow | None) -> tuple[float, list[float]]:
        result = play(phases, Replica(within, within.default, seed=seed), rule, seed=seed)
        return (percentile([one for each in result.latencies for one in each]),
                [percentile(each) for each in result.latencies])

    still = {setting: p99(safe(curve, setting), None) for setting in dict.fromkeys(settings())}
    best = min(still, key=lambda setting: still[setting][0])
    row: Row = {"curve": curve, "shift": name, "seed": seed, "best_fixed": str(best), "best_fixed_ms": still[best][0]}
    for default in DEFAULTS.values():
        within = safe(curve, default)
        whole, each = p99(within, Follower(within))
        row[f"from {default}"] = {
            "p99_ms": whole, "over_best_fixed": whole / still[best][0], "over_default": whole / still[default][0],
            "worst_phase_over_default": max(map(_ratio, each, still[default][1])),
        }
    return row


def _ratio(mine: float, theirs: float) -> float:
    return mine / theirs


def summary(rows: Sequence[Row]) -> list[Row]:
    """Of each curve, shift and default: geometric means over the seeds, and the worst seed."""
    found = []
    for curve, name in dict.fromkeys((row["curve"], row["shift"]) for row in rows):
        mine = [row for row in rows if (row["curve"], row["shift"]) == (curve, name)]
        for default in DEFAULTS.values():
            ours = [row[f"from {default}"] for row in mine]
            found.append({
                "curve": curve, "shift": name, "default": str(default), "seeds": len(ours),
                "best_fixed": sorted({row["best_fixed"] for row in mine}),
                **{f"p99_{key}": statistics.geometric_mean(one[key] for one in ours)
                   for key in ("over_best_fixed", "over_default")},
                **{f"worst_{key}": max(one[key] for one in ours)
                   for key in ("over_best_fixed", "over_default", "worst_phase_over_default")},
            })
    return found


def jobs(seeds: int, seconds: float) -> list[tuple[str, str, int, float]]:
    return [(curve, name, seed, seconds) for curve in CURVES for name in SHIFTS for seed in range(1, seeds + 1)]

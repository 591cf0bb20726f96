"""Many seeds of mixed traffic in simulation: fixed settings, and settings that follow the traffic."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

from batching_study.simulate import Follow, Replica, Result, play
from batching_study.traffic import mixes
from enginewright.core.batching import SafeSet, Setting, State, begin, follow
from enginewright.core.batching.safe import MICROSECONDS
from enginewright.core.observed import Spent

# One request alone, seconds; and batches in times of it. On a CPU a batch of 16 costs 2.4 times one, as an MLP of 12 M
# parameters was measured; where one request leaves the device idle, little more than one.
ALONE = 0.045
CURVES = {"cpu": {1: 1.0, 4: 1.02, 8: 1.4, 16: 2.4}, "idle device": {1: 1.0, 4: 1.02, 8: 1.07, 16: 1.2}}
MAX_BATCH, LOAD_SECONDS = 16, 1.0
# Delays in times of one request alone.
SHORT, LONG = 0.2, 1.05
CROWDS = (4, 8, 12)
DEFAULTS = {"0": Setting(), "short": Setting(delay_us=round(SHORT * ALONE * MICROSECONDS))}
# How often clients stall: differs by seed.
STALLS = (0.0, 0.0005, 0.002)
PERCENTILE = 0.99


def safe(curve: str, default: Setting) -> SafeSet:
    points = tuple((batch, times * ALONE) for batch, times in CURVES[curve].items())
    return SafeSet(default=default, curve=points, max_batch=MAX_BATCH, load_seconds=LOAD_SECONDS,
                   longest_delay_us=round(2 * points[-1][1] * MICROSECONDS))


def fixed() -> list[Setting]:
    delays = [round(times * ALONE * MICROSECONDS) for times in (SHORT, LONG)]
    return [Setting(), *(Setting(delay_us=delay, preferred=sizes) for delay, sizes in itertools.product(
        delays, ((), *((crowd, MAX_BATCH) for crowd in CROWDS))))]


class Follower:
    """The rule, beside its states."""

    def __init__(self, within: SafeSet) -> None:
        self._safe = within
        self.state: State = begin(0.0, within)

    def __call__(self, time: float, spent: Spent) -> Setting:
        self.state = follow(self.state, time, spent, self._safe)
        return self.state.setting


def run(job: tuple[str, int, float, int]) -> list[dict[str, Any]]:
    """One row for each arm. The job is (curve, seed, seconds of a phase, phases)."""
    curve, seed, seconds, count = job
    phases = mixes(seed, ALONE, seconds, count, STALLS[seed % len(STALLS)])
    rows = []

    def arm(name: str, within: SafeSet, rule: Follow | None) -> None:
        result = play(phases, Replica(within, within.default, seed=seed), rule, seed=seed)
        rows.append({"curve": curve, "seed": seed, "arm": name, "phases": [phase.name for phase in phases],
                     "changes": len(result.changes), **_figures(result)})

    for setting in fixed():
        arm(f"fixed {setting}", safe(curve, setting), None)
    for setting in DEFAULTS.values():
        within = safe(curve, setting)
        arm(f"follows from {setting}", within, Follower(within))
    return rows


def _figures(result: Result) -> dict[str, Any]:
    whole = [one for each in result.latencies for one in each]
    return {"requests": len(whole), "mean_ms": statistics.fmean(whole) * 1e3, "p99_ms": percentile(whole),
            "phases_p99_ms": [percentile(each) for each in result.latencies]}


def percentile(latencies: Sequence[float], share: float = PERCENTILE) -> float:
    """Milliseconds, nearest rank; of seconds."""
    ordered = sorted(latencies)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e3 if ordered else 0.0


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each rule on each curve, ratios below 1 are in its favour: p99 over that of its default, of the best fixed
    setting of each seed (in hindsight), and of the best over all seeds; means are geometric, phases count alike."""
    found = []
    for curve in dict.fromkeys(row["curve"] for row in rows):
        arms: dict[str, dict[int, dict[str, Any]]] = {}
        for row in rows:
            if row["curve"] == curve:
                arms.setdefault(row["arm"], {})[row["seed"]] = row
        settled = {name: mine for name, mine in arms.items() if name.startswith("fixed")}
        best = min(settled, key=lambda name: _mean(one["p99_ms"] for one in settled[name].values()))
        balanced = min(settled, key=lambda name: _mean(_phases(one) for one in settled[name].values()))
        for default in DEFAULTS.values():
            ours, base = arms[f"follows from {default}"], arms[f"fixed {default}"]
            each = {seed: row["p99_ms"] / base[seed]["p99_ms"] for seed, row in ours.items()}
            found.append({
                "curve": curve, "default": str(default), "seeds": len(ours), "changes": sum(
                    row["changes"] for row in ours.values()) / len(ours),
                "mean_over_default": _mean(row["mean_ms"] / base[seed]["mean_ms"] for seed, row in ours.items()),
                "p99_over_default": _mean(each.values()), "worst_p99_over_default": max(each.values()),
                "worst_phase_p99_over_default": max(
                    mine / theirs for seed, row in ours.items()
                    for mine, theirs in zip(row["phases_p99_ms"], base[seed]["phases_p99_ms"], strict=True)),
                "best_fixed": best, "p99_over_best_fixed": _mean(
                    row["p99_ms"] / settled[best][seed]["p99_ms"] for seed, row in ours.items()),
                "p99_over_best_fixed_of_each_seed": _mean(
                    row["p99_ms"] / min(other[seed]["p99_ms"] for other in settled.values())
                    for seed, row in ours.items()),
                "best_fixed_by_phase": balanced, "phase_p99_over_best_fixed_by_phase": _mean(
                    _phases(row) / _phases(settled[balanced][seed]) for seed, row in ours.items()),
            })
    return found


def by_kind(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """p99 in milliseconds of each kind of traffic under each arm: geometric means over the phases of all seeds."""
    seen: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        for name, p99 in zip(row["phases"], row["phases_p99_ms"], strict=True):
            seen.setdefault((row["curve"], name), {}).setdefault(row["arm"], []).append(p99)
    return [{"curve": curve, "kind": kind, **{arm: _mean(each) for arm, each in arms.items()}}
            for (curve, kind), arms in sorted(seen.items())]


def _phases(row: dict[str, Any]) -> float:
    return statistics.geometric_mean(row["phases_p99_ms"])


def _mean(ratios: Any) -> float:
    return statistics.geometric_mean(list(ratios))



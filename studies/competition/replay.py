"""Replays races and their alternatives: how far the pick is from the truly best, and how long the measuring took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from competition.tracks import MEASURED, MadeUp, Recorded, Track, recorded
from enginewright_builder.competition.race import CALL_OVERHEAD, LOOKS, NEAR, ZONE, Heat, compete
from enginewright_builder.tensors import Array
from tables import head

SEEDS = 20
NOISES = (0.01, 0.03, 0.08)
# What the ladder did before: so many rounds of all arms, and the fastest at the median.
FEW = 7


@dataclass(frozen=True, kw_only=True)
class Run:
    """``regret`` of the arm picked, ``worst`` of any arm that would count as equally fast, and might be shipped for its
    accuracy: true time over the best true time, minus one. ``seconds`` of timed calls."""

    regret: float
    worst: float
    seconds: float


Policy = Callable[[Track], Run]


class _Meter:
    """Asks a track and counts the time."""

    def __init__(self, track: Track) -> None:
        self.track, self.seconds = track, 0.0

    def ask(self, names: Sequence[str], batch: int, count: int) -> dict[str, list[float]]:
        times = self.track.rounds(sorted(names), count)
        self.seconds += sum(float(values.sum()) / 1e3 + CALL_OVERHEAD * count for values in times.values())
        return {name: values.tolist() for name, values in times.items()}


def race(track: Track) -> Run:
    """As the ladder does it, without a limit of time."""
    meter = _Meter(track)
    heat = compete({1: list(track.true)}, meter.ask, lambda: float("inf"))[1]
    return _run(track, heat, meter.seconds)


def uniform(rounds: int) -> Policy:
    """All arms in every round, for so many rounds."""
    def policy(track: Track) -> Run:
        meter = _Meter(track)
        times = meter.ask(list(track.true), 1, rounds)
        return _run(track, Heat(batch=1, times=times, live=list(times)), meter.seconds)

    return policy


def one_by_one(rounds: int) -> Policy:
    """Each arm by itself, one after the other, compared by medians: what a benchmark script does."""
    def policy(track: Track) -> Run:
        meter = _Meter(track)
        medians = {name: float(np.median(meter.ask([name], 1, rounds)[name])) for name in track.true}
        fastest = min(medians.values())
        near = [name for name, value in medians.items() if value <= fastest * (1 + NEAR)]
        return _outcome(track, min(medians, key=lambda name: medians[name]), near, meter.seconds)

    return policy


POLICIES: Mapping[str, Policy] = {
    "the race": race, f"all arms, {LOOKS[-1]} rounds": uniform(LOOKS[-1]), f"all arms, {FEW} rounds": uniform(FEW),
    f"one by one, {LOOKS[-1]} calls": one_by_one(LOOKS[-1]),
}


def _run(track: Track, heat: Heat, seconds: float) -> Run:
    leader = heat.leader()
    return _outcome(track, leader, [name for name in heat.live if heat.behind(name, heat.live).near], seconds)


def _outcome(track: Track, pick: str, near: Sequence[str], seconds: float) -> Run:
    best = min(track.true.values())
    return Run(regret=track.true[pick] / best - 1, seconds=seconds,
               worst=max(track.true[name] for name in {pick, *near}) / best - 1)


def tracks(path: Path) -> Iterator[tuple[str, Callable[[int], Track]]]:
    """Groups of the table, each with what makes a track from a seed."""
    for noise in NOISES:
        for name in MEASURED:
            yield f"made-up, noise {noise:.0%}", lambda seed, name=name, noise=noise: MadeUp(name, noise, seed)  # type: ignore[misc]
    for name, times in (recorded(path) if path.is_file() else {}).items():
        yield name, lambda seed, times=times: Recorded(times, seed)  # type: ignore[misc]


def replay(path: Path, seeds: int = SEEDS) -> dict[str, dict[str, list[Run]]]:
    """Runs by group and policy, all policies on the same tracks."""
    groups: dict[str, dict[str, list[Run]]] = {}
    for group, make in tracks(path):
        for name, policy in POLICIES.items():
            groups.setdefault(group, {}).setdefault(name, []).extend(policy(make(seed)) for seed in range(seeds))
    return groups


def table(path: Path, seeds: int = SEEDS) -> str:
    lines = [*head("Timings", "Policy", "mean regret", "99th percentile", "pick within 3 %", "all ties within 3 %",
                   "in 5 %", "time")]
    for group, policies in replay(path, seeds).items():
        whole = _array(policies[f"all arms, {LOOKS[-1]} rounds"], "seconds").mean()
        for name, runs in policies.items():
            regret, worst = _array(runs, "regret"), _array(runs, "worst")
            lines.append(f"| {group} | {name} | {regret.mean():.2%} | {np.quantile(regret, 0.99):.1%} | "
                         f"{(regret <= ZONE).mean():.1%} | {(worst <= ZONE).mean():.1%} | "
                         f"{(worst <= 0.05).mean():.1%} | {_array(runs, 'seconds').mean() / whole:.0%} |")
    return "\n".join(lines)


def _array(runs: Sequence[Run], field: str) -> Array:
    return np.array([getattr(run, field) for run in runs])

"""One policy on one load: a cell of a table."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from enginewright.core.scaling import ScaleLimits
from enginewright.core.scaling.needs import Parts
from enginewright.core.spec.scaling_limits import Prefer
from enginewright_simulation.contest import PEERS, TARGETS, WINDOWS, Contest
from enginewright_simulation.curve import of_figures
from enginewright_simulation.policies.enginewright import Enginewright
from enginewright_simulation.results import Figures, figures
from enginewright_simulation.run import Run, Scenario
from enginewright_simulation.scale import scaled
from enginewright_simulation.trace import read_trace
from scaling_study.loads import HELD_OUT, LOADS
from scaling_study.rivals import Trailing, foreseen, told
from scaling_study.tuning import TUNING

ALONE_MS, THROUGHPUT, MOST = 10.0, 20.0, 20
TRACE_SCALE = 5.0
US, QUEUE, HPA, ORACLE = "Enginewright", "queue depth alone", "HPA (4 queued, 300 s)", "oracle"
VARIANTS = {
    US: Parts(),
    "without the forecast": Parts(forecast=False),
    "without the backlog": Parts(backlog=False),
    "without clumps": Parts(dispersion=False),
    "without the floor": Parts(floor=False),
    "without the budget": Parts(budget=False),
    "without latencies": Parts(latency=False),
    "without memory": Parts(memory=False),
    "without the start": Parts(start=False),
}
# What autoscaling.prefer says, and the policy's name; balanced is US.
LEANS: dict[Prefer, str] = {"cost": f"{US}, prefer cost", "latency": f"{US}, prefer latency"}
MADE = LOADS | HELD_OUT | TUNING
# The whole grid of ``enginewright simulate --grid``, by name.
NAMES = {"hpa": "HPA", "keda": "KEDA", "knative": "Knative"}
GRID = {f"{NAMES[peer]} ({target:g} queued, {window:g} s)": (peer, {"target": target, "window": window})
        for peer in PEERS for target in TARGETS for window in WINDOWS}
TOLD = "told what comes within a cold start"
FORESEEN = "told all that comes"
# (seconds of the rate, seconds that a replica is held)
TRAILING = {f"rate of the last {span} s, held {hold} s": (span, hold) for span, hold in ((16, 60), (32, 40), (64, 40))}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """``load`` is a name of :data:`MADE` or the path of a trace, at ``scale`` times its rate, with as many times more
    replicas at most. Replicas do ``speed`` of what was measured. ``slo`` and ``cold`` (the cold start) in seconds; by
    ``percentile`` the policy goes."""

    load: str
    policy: str
    seed: int
    scale: float = 1.0
    speed: float = 1.0
    slo: float = 0.1
    cold: float = 20.0
    percentile: float = 99.0


@lru_cache(maxsize=1)
def arrivals(load: str, seed: int, scale: float) -> Sequence[float]:
    if load in MADE:
        return scaled(MADE[load](random.Random(seed)), scale, seed)  # noqa: S311 - a load, not a secret
    return scaled(read_trace(Path(load)).arrivals, TRACE_SCALE * scale, seed)


def play(cell: Cell) -> Figures:
    return figures(run_of(cell))


def run_of(cell: Cell) -> Run:
    most = round(MOST * max(1.0, cell.scale))
    measured = Scenario(service=of_figures(ALONE_MS, THROUGHPUT), seed=cell.seed, slo=cell.slo, max_replicas=most,
                        cold_start=cell.cold, percentile=cell.percentile)
    true = replace(measured, service=of_figures(ALONE_MS / cell.speed, THROUGHPUT * cell.speed))
    came = arrivals(cell.load, cell.seed, cell.scale)
    return _run(Contest(came, true), came, cell.policy, measured)


def _run(contest: Contest, came: Sequence[float], policy: str, measured: Scenario) -> Run:
    """The scaler knows what was ``measured``, whatever is true."""
    limits = ScaleLimits(max_replicas=measured.max_replicas)
    if policy in VARIANTS:
        return contest.play(Enginewright(limits, measured.measured, VARIANTS[policy]))
    for word, name in LEANS.items():
        if policy == name:
            return contest.play(Enginewright(replace(limits, prefer=word), measured.measured))
    if policy == QUEUE:
        return contest.play(Enginewright(limits, None))
    if policy in GRID:
        return contest.play(contest.peer(*GRID[policy]))
    if policy == TOLD:
        return contest.play(told(came, measured.measured, measured.max_replicas))
    if policy == FORESEEN:
        return contest.play(foreseen(came, measured))
    if policy in TRAILING:
        return contest.play(Trailing(*TRAILING[policy], measured.measured, measured.max_replicas))
    return contest.run(ORACLE)

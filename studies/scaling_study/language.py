"""Language models: demand in work beside the HPA on waiting requests.

Bursts have prompts and answers of log-normal length; a trace brings its own token counts.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from enginewright.core.scaling import Capacity, ScaleLimits
from enginewright.core.spec.engine import TokensSpec
from enginewright_simulation.language import arrivals_of
from enginewright_simulation.policies.base import Policy
from enginewright_simulation.policies.enginewright import Enginewright
from enginewright_simulation.policies.hpa import Hpa, HpaSettings
from enginewright_simulation.results import Figures, figures
from enginewright_simulation.run import Scenario, simulate
from enginewright_simulation.scale import scaled
from enginewright_simulation.sweep import measured
from enginewright_simulation.tokens import Asked, TokenService
from enginewright_simulation.trace import read_trace
from scaling_study.loads import LOADS, bursts
from scaling_study.runs import TRACE_SCALE
from tables import head

COLD, MOST = 60.0, 40
SERVICE = TokenService(step_seconds=0.012, request_seconds=0.0002, input_seconds=0.0001, cache_tokens=200_000)
# Of all requests of the bursts for tensors, which come 30 to 90 times a second, so many are kept.
KEPT = 4
# Median and spread of a prompt's and an answer's length.
PROMPT, ANSWER = (1000.0, 0.8), (150.0, 0.8)
US = "Enginewright"
# By waiting requests for each replica.
HPAS = {f"HPA ({target:g} waiting)": target for target in (4.0, 1.0)}


@dataclass(frozen=True, kw_only=True)
class LanguageCell:
    """``load`` is ``bursts`` or the path of a trace. ``ttft`` and ``tpot`` are the objective's milliseconds; no fewer
    than ``least`` replicas ever run."""

    load: str
    policy: str
    seed: int
    ttft: float = 2000.0
    tpot: float = 100.0
    percentile: float = 95.0
    at_once: int = 256
    least: int = 1


# Each is a change of the cell's defaults.
SETTINGS: tuple[dict[str, Any], ...] = ({}, {"at_once": 64}, {"least": 8}, {"ttft": 1000.0, "tpot": 60.0,
                                                                                "percentile": 99.0})


def language(loads: Sequence[str], seeds: int) -> list[LanguageCell]:
    """Of the made loads, bursts alone."""
    chosen = [*(load for load in loads if load not in LOADS), "bursts"]
    made = [LanguageCell(load=load, policy=policy, seed=seed) for load in chosen for seed in range(1, seeds + 1)
            for policy in (US, *HPAS)]
    return [replace(cell, **settings) for settings in SETTINGS for cell in made]


def play_tokens(cell: LanguageCell) -> Figures:
    came, service = arrivals(cell.load, cell.seed), replace(SERVICE, at_once=cell.at_once)
    asked = TokensSpec(percentile=cell.percentile, ttft_milliseconds=cell.ttft, tpot_milliseconds=cell.tpot)
    capacity = measured(service, [one for one in came if isinstance(one, Asked)], asked, COLD)
    if capacity is None:
        raise ValueError("the replica of the study meets its objective")
    scenario = Scenario(service=service, slo=cell.ttft / 1e3, tpot=cell.tpot / 1e3, percentile=cell.percentile,
                        min_replicas=cell.least, max_replicas=MOST, cold_start=COLD, seed=cell.seed, capacity=capacity)
    return figures(simulate(came, _policy(cell, capacity), scenario))


def _policy(cell: LanguageCell, capacity: Capacity) -> Policy:
    if cell.policy == US:
        return Enginewright(ScaleLimits(min_replicas=cell.least, max_replicas=MOST), capacity)
    return Hpa(HpaSettings(target=HPAS[cell.policy], min_replicas=cell.least, max_replicas=MOST))


@lru_cache(maxsize=1)
def arrivals(load: str, seed: int) -> Sequence[float]:
    if load != "bursts":
        return scaled(arrivals_of(read_trace(Path(load), tokens=True)), TRACE_SCALE, seed)
    draw = random.Random(seed)  # noqa: S311 - a load, not a secret
    return [Asked.at(came, _length(draw, *PROMPT), _length(draw, *ANSWER)) for came in bursts(draw)[::KEPT]]


def _length(draw: random.Random, median: float, spread: float) -> int:
    return min(8000, round(median * draw.lognormvariate(0.0, spread)))


def language_table(cells: Sequence[LanguageCell], found: Mapping[LanguageCell, Figures]) -> str:
    """Means over seeds; replica-seconds are relative to those of the first HPA."""
    base = next(iter(HPAS))
    lines = [*head("Objective", "At once", "Fewest", "Load", "Policy", "Late", f"Replica-seconds, of those of {base}",
                   "Reversals", right=(1, 2, 5, 6, 7))]
    rows: dict[LanguageCell, list[LanguageCell]] = {}
    for cell in cells:
        rows.setdefault(replace(cell, seed=0), []).append(cell)
    for row, mine in rows.items():
        each = [found[cell] for cell in mine]
        spent = sum(one["replica_seconds"] for one in each)
        by_base = sum(found[replace(cell, policy=base)]["replica_seconds"] for cell in mine)
        late = sum(one["slo_violations"] for one in each) / sum(one["requests"] for one in each)
        turns = sum(one["reversals"] for one in each) / len(each)
        asked = f"{row.ttft:g} and {row.tpot:g} ms at p{row.percentile:g}"
        lines.append(f"| {asked} | {row.at_once} | {row.least} | {Path(row.load).stem} | {row.policy} | "
                     f"{100 * late:.2f} % | {spent / by_base:.2f} | {turns:.0f} |")
    return "\n".join([*lines, ""])

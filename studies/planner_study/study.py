"""What is measured, as data."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from enginewright.core.planner.fleet import GPU, Demand, Seat
from enginewright.core.planner.planner import occupied, plan
from enginewright.core.planner.selection import boards_after, seat_groups
from planner_study.baselines import BASELINES, Rule
from planner_study.churn import all_may_move, arrivals, by_planner, churn, decisions, fleet_of, run
from planner_study.instances import problem
from planner_study.optimum import by_cp_sat, by_highs

FIRST_SEED = 2_000_000  # none that the planner was made with
GOAL = 0.02
CHURN = {"gpus": 16, "steps": 300, "load": 0.8}


def planner(demands: Sequence[Demand], gpus: Sequence[GPU]) -> list[Seat]:
    return list(plan(demands, gpus).seats)


def of_random(count: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Each rule on ``count`` random instances beside the optimum."""
    rules: dict[str, Rule] = {"planner": planner, **BASELINES}
    gaps: dict[str, list[float]] = {name: [] for name in rules}
    opened = {"planner": 0, "optimum": 0, "instances": 0}
    unproven = []
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        case = problem(seed)
        best = by_cp_sat(case.gpus, case.demands)
        if not best.proven:
            unproven.append(seed)
        for name, rule in rules.items():
            seats = rule(case.demands, case.gpus)
            gaps[name].append(_gap(_worth(case.demands, seats), best.worth))
            if name == "planner" and gaps[name][-1] == 0 and best.proven:
                opened["planner"] += _opened(case.gpus, seats)
                opened["optimum"] += best.opened
                opened["instances"] += 1
        if (seed + 1) % 100 == 0:
            say(f"{seed + 1 - FIRST_SEED} of {count} instances")
    worst = max(range(count), key=lambda n: gaps["planner"][n])
    return {"instances": count, "first_seed": FIRST_SEED, "unproven": unproven,
            "rules": {name: _summary(found) for name, found in gaps.items()},
            "worst_seed": FIRST_SEED + worst, "gpus_opened_where_worth_is_equal": opened}


def of_check(count: int) -> dict[str, Any]:
    """The two solvers side by side."""
    apart = []
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        case = problem(seed)
        first, second = by_cp_sat(case.gpus, case.demands), by_highs(case.gpus, case.demands)
        if abs(first.worth - second.worth) > 1e-6:
            apart.append(seed)
    return {"instances": count, "apart": apart}


def of_churn(traces: int, moved: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Shares that ran, by rule; each decision beside its optimum; and, for the first ``moved`` traces, what moving
    everything all the time would give."""
    shares: dict[str, list[float]] = {}
    gaps: list[float] = []
    placed = could = 0.0
    free = []
    for trace in range(traces):
        seed = FIRST_SEED + trace
        for name, share in churn(seed, **CHURN).items():  # type: ignore[arg-type]
            shares.setdefault(name, []).append(share)
        fleet = fleet_of(seed, int(CHURN["gpus"]))
        coming = arrivals(seed, fleet, int(CHURN["steps"]), CHURN["load"])
        for decision in decisions(fleet, coming, by_cp_sat):
            gaps.append(_gap(decision.placed, decision.optimum))
            placed, could = placed + decision.placed, could + decision.optimum
        if trace < moved:
            free.append((run(by_planner, fleet, coming), all_may_move(fleet, coming, by_cp_sat)))
        say(f"{trace + 1} of {traces} traces")
    return {
        "traces": traces, **CHURN, "first_seed": FIRST_SEED,
        "share_that_ran": {name: round(statistics.fmean(found), 4) for name, found in shares.items()},
        "decisions": {**_summary(gaps), "count": len(gaps), "of_all_worth": round(1 - placed / could, 5)},
        "if_all_might_move": {"traces": len(free), "planner": round(statistics.fmean(mine for mine, _ in free), 4),
                              "all_may_move": round(statistics.fmean(best for _, best in free), 4)},
    }


def of_time(count: int, gpus: int = 100) -> dict[str, Any]:
    """Milliseconds of one plan, reasons included: the first run of each instance, and the best of three, on the wall
    and of the processor, which neighbours on the machine take less from."""
    load = os.getloadavg()[0]
    clocks = {"wall": time.perf_counter, "processor": time.process_time}
    first: dict[str, list[float]] = {name: [] for name in clocks}
    best: dict[str, list[float]] = {name: [] for name in clocks}
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        case = problem(seed, gpus=gpus)
        runs: dict[str, list[float]] = {name: [] for name in clocks}
        for _ in range(3):
            seat_groups.cache_clear()
            boards_after.cache_clear()
            before = {name: clock() for name, clock in clocks.items()}
            plan(case.demands, case.gpus)
            for name, clock in clocks.items():
                runs[name].append(1e3 * (clock() - before[name]))
        for name, found in runs.items():
            first[name].append(found[0])
            best[name].append(min(found))
    return {"instances": count, "gpus": gpus, "load_when_it_began": load,
            "first_ms": {name: _quantiles(found) for name, found in first.items()},
            "best_of_three_ms": {name: _quantiles(found) for name, found in best.items()}}


def of_large(count: int, gpus: int = 100) -> dict[str, Any]:
    """The gap on fleets of that size."""
    gaps = []
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        case = problem(seed, gpus=gpus)
        best = by_cp_sat(case.gpus, case.demands)
        gaps.append(_gap(_worth(case.demands, planner(case.demands, case.gpus)), best.worth))
    return {"gpus": gpus, "count": count, **_summary(gaps)}


def _worth(demands: Sequence[Demand], seats: Sequence[Seat]) -> float:
    by_name = {demand.name: demand for demand in demands}
    return sum(by_name[seat.demand].worth(by_name[seat.demand].options[seat.option]) for seat in seats)


def _opened(gpus: Sequence[GPU], seats: Sequence[Seat]) -> int:
    then = occupied(gpus, seats)
    return sum(gpu.idle and not after.idle for gpu, after in zip(gpus, then, strict=True))


def _gap(worth: float, best: float) -> float:
    """Share of the optimum that is missing; differences below the solver's rounding are none."""
    return max(0.0, round(1 - worth / best, 6)) if best else 0.0


def _summary(gaps: Sequence[float]) -> dict[str, Any]:
    return {"mean_gap": round(statistics.fmean(gaps), 5), "worst_gap": max(gaps),
            "within_2_percent": sum(gap <= GOAL for gap in gaps), "optimal": sum(gap == 0 for gap in gaps)}


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"median": round(statistics.median(ordered), 2), "p90": round(ordered[int(0.9 * len(ordered))], 2),
            "p99": round(ordered[int(0.99 * len(ordered))], 2), "max": round(ordered[-1], 2)}

"""How close searches come to the best of a recorded grid, and with how many measurements."""

from __future__ import annotations

import itertools
import json
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enginewright_builder.contract import ObjectiveRequest
from enginewright_builder.sweep.objective import score
from enginewright_builder.sweep.result import Point
from grids.grid import Axes, Cell, Grid, medians, read_all
from grids.quick import QuickSearch
from grids.replay import MOST_MEASUREMENTS, achieved, point_of, replay
from grids.simulate import MACHINES, simulated

COMMAND = "make search-study"
# Random searches, and replays in which every answer is one repeat drawn at random.
RANDOM_SEEDS, NOISE_SEEDS = 500, 25
# Grids of each kind of made-up server.
SIMULATED_SEEDS = 6
GOAL = 0.99
# Limits as multiples of the smallest latency in the grid at that percentile.
LIMITS = ((99.0, 1.5), (99.0, 2.0), (99.0, 4.0), (95.0, 2.0), (95.0, 4.0), (90.0, 3.0))
# Beyond any recorded latency, and below: the search then looks for throughput alone, or for latency alone.
NO_LIMIT_MS, OUT_OF_REACH_MS = 1e6, 1e-6

Answer = Callable[[Cell], Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class Goal:
    name: str
    objective: ObjectiveRequest


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Over seeds: shares of the grid's best."""

    mean: float
    p5: float
    least: float
    at_goal: float
    measurements: float

    @classmethod
    def of(cls, shares: Sequence[float], measurements: Sequence[int]) -> Spread:
        ordered = sorted(shares)
        return cls(mean=statistics.fmean(shares), p5=ordered[len(ordered) // 20], least=ordered[0],
                   at_goal=sum(share >= GOAL for share in shares) / len(shares),
                   measurements=statistics.fmean(measurements))


def goals(figures: Mapping[Cell, Mapping[str, float]]) -> list[Goal]:
    """The objectives that a grid is searched for; throughput within a limit is also the lowest cost within it."""
    found = [Goal(name="most throughput", objective=ObjectiveRequest(latency_ms=NO_LIMIT_MS)),
             Goal(name="least p99", objective=ObjectiveRequest(latency_ms=OUT_OF_REACH_MS)),
             Goal(name="least p50", objective=ObjectiveRequest(latency_ms=OUT_OF_REACH_MS, latency_percentile=50.0)),
             Goal(name="knee (no objective given)", objective=ObjectiveRequest())]
    for percentile, factor in LIMITS:
        limit = round(factor * min(one[f"p{percentile:g}_ms"] for one in figures.values()), 3)
        found.append(Goal(name=f"throughput, p{percentile:g} within {limit:.3g} ms",
                          objective=ObjectiveRequest(latency_percentile=percentile, latency_ms=limit)))
    return found


def study_grid(grid: Grid) -> dict[str, Any]:
    figures = {cell: grid.median(cell) for cell in grid.repeats}
    return {"grid": grid.name, "model": grid.model, "hardware": grid.hardware, "recorded": grid.recorded,
            "points": len(grid.repeats), "repeats": statistics.median(map(len, grid.repeats.values())),
            "spread": round(_spread_of_repeats(grid), 4), "notes": grid.notes,
            "objectives": [_study_goal(grid, figures, goal) for goal in goals(figures)]}


def _study_goal(grid: Grid, figures: Mapping[Cell, Mapping[str, float]], goal: Goal) -> dict[str, Any]:
    points = {cell: point_of(cell, one, goal.objective) for cell, one in figures.items()}
    best = max(points, key=lambda cell: score(points[cell], goal.objective))

    def share(cell: Cell) -> float:
        return achieved(points[cell], points[best], goal.objective)

    found = replay(grid.axes, figures.__getitem__, goal.objective)
    chosen, seen = QuickSearch(grid.axes, points.__getitem__, goal.objective).run()
    coarse = coarse_grid(grid.axes)
    few = max(seen[:MOST_MEASUREMENTS], key=lambda cell: score(points[cell], goal.objective))
    at_coarse = max(coarse, key=lambda cell: score(points[cell], goal.objective))
    return {
        "objective": goal.name, "percentile": goal.objective.latency_percentile,
        "limit_ms": goal.objective.latency_ms, "best": _cell_words(best, points[best]),
        "ours": {"share": share(found.chosen), "measurements": len(found.measured),
                 "chosen": _cell_words(found.chosen, points[found.chosen])},
        "random": vars(_random_search(points, share, goal.objective)),
        "coarse_grid": {"share": share(at_coarse), "measurements": len(coarse)},
        "quick": {"share": share(chosen), "measurements": len(seen), "share_of_first_12": share(few)},
        "noise": {"ours": vars(_noisy(grid, goal.objective, share, _ours)),
                  "full_grid": vars(_noisy(grid, goal.objective, share, _exhaustive))}}


def study_simulated(kind: str) -> dict[str, Any]:
    """The search, and the first measurements of the quick one, on ``SIMULATED_SEEDS`` made-up servers of a kind."""
    ours, quick, counts = [], [], []
    for seed in range(SIMULATED_SEEDS):
        grid = simulated(kind, seed)
        figures = {cell: grid.median(cell) for cell in grid.repeats}
        for goal in goals(figures):
            points = {cell: point_of(cell, one, goal.objective) for cell, one in figures.items()}
            best = max(points.values(), key=lambda point: score(point, goal.objective))
            found = replay(grid.axes, figures.__getitem__, goal.objective)
            _, seen = QuickSearch(grid.axes, points.__getitem__, goal.objective).run()
            few = max((points[cell] for cell in seen[:MOST_MEASUREMENTS]), key=lambda one: score(one, goal.objective))
            ours.append(achieved(points[found.chosen], best, goal.objective))
            quick.append(achieved(few, best, goal.objective))
            counts.append(len(found.measured))
    return {"kind": kind, "grids": SIMULATED_SEEDS, "ours": vars(Spread.of(ours, counts)),
            "quick_first_12": vars(Spread.of(quick, [MOST_MEASUREMENTS] * len(quick)))}


def coarse_grid(axes: Axes) -> list[Cell]:
    """Every second value of each axis, from the smallest on: what one measures by hand."""
    thin = Axes(max_batch_sizes=axes.max_batch_sizes[::2], max_queue_delays_us=axes.max_queue_delays_us[::2],
                instance_counts=axes.instance_counts[::2] if len(axes.instance_counts) > 2 else axes.instance_counts,
                concurrencies=axes.concurrencies[::2])
    return thin.cells()


def _random_search(points: Mapping[Cell, Point], share: Callable[[Cell], float],
                   objective: ObjectiveRequest) -> Spread:
    cells, shares = sorted(points), []
    for seed in range(RANDOM_SEEDS):
        picks = random.Random(seed).sample(cells, min(MOST_MEASUREMENTS, len(cells)))  # noqa: S311 - not a secret
        shares.append(share(max(picks, key=lambda cell: score(points[cell], objective))))
    return Spread.of(shares, [MOST_MEASUREMENTS] * RANDOM_SEEDS)


def _noisy(grid: Grid, objective: ObjectiveRequest, share: Callable[[Cell], float],
           search: Callable[[Grid, Answer, ObjectiveRequest], tuple[Cell, int]]) -> Spread:
    """Every answer is one repeat drawn at random, the next one another; what is chosen is valued by the medians."""
    shares, counts = [], []
    for seed in range(NOISE_SEEDS):
        chosen, count = search(grid, drawn(grid, seed), objective)
        shares.append(share(chosen))
        counts.append(count)
    return Spread.of(shares, counts)


def drawn(grid: Grid, seed: int) -> Answer:
    """A repeat of each cell at random, and from the second time on those that followed it, in turn."""
    draw = random.Random(seed)  # noqa: S311 - not a secret
    turns = {}
    for cell in sorted(grid.repeats):
        repeats = list(grid.repeats[cell])
        first = draw.choice(range(len(repeats)))
        turns[cell] = itertools.cycle(repeats[first:] + repeats[:first])
    return lambda cell: next(turns[cell])


def _ours(grid: Grid, answer: Answer, objective: ObjectiveRequest) -> tuple[Cell, int]:
    found = replay(grid.axes, answer, objective)
    return found.chosen, len(found.measured)


def _exhaustive(grid: Grid, answer: Answer, objective: ObjectiveRequest) -> tuple[Cell, int]:
    return max(grid.repeats, key=lambda cell: score(point_of(cell, answer(cell), objective), objective)), len(
        grid.repeats)


def _spread_of_repeats(grid: Grid) -> float:
    """Median over points of (largest − smallest) ÷ median throughput of the repeats: how noisy the record is."""
    return statistics.median((max(one["throughput"] for one in repeats) - min(one["throughput"] for one in repeats))
                             / medians(repeats)["throughput"] for repeats in grid.repeats.values())


def _cell_words(cell: Cell, point: Point) -> dict[str, float]:
    return {**vars(cell.config), "concurrency": cell.concurrency, "throughput": point.throughput,
            "objective_ms": point.objective_ms}


def run(grids: Path, target: Path) -> int:
    """Studies all grids of the folder and writes ``search.json`` and ``search.md``; 1 when a goal is missed."""
    from grids.page import page

    studied = [study_grid(grid) for grid in read_all(grids)]
    if not studied:
        raise ValueError(f"{grids} holds no grid; record one with: python -m grids record")
    cells = [goal for grid in studied for goal in grid["objectives"]]
    missed = [goal for goal in cells if goal["ours"]["share"] < GOAL
              or goal["ours"]["measurements"] > MOST_MEASUREMENTS]
    document = {"command": COMMAND, "goal": {"share": GOAL, "measurements": MOST_MEASUREMENTS},
                "cells": len(cells), "missed": len(missed), "random_seeds": RANDOM_SEEDS, "noise_seeds": NOISE_SEEDS,
                "grids": studied, "simulated": [study_simulated(kind) for kind in MACHINES]}
    target.mkdir(parents=True, exist_ok=True)
    (target / "search.json").write_text(json.dumps(_rounded(document), indent=1, ensure_ascii=False) + "\n",
                                        encoding="utf-8")
    (target / "search.md").write_text(page(document), encoding="utf-8")
    print(f"{len(cells) - len(missed)} of {len(cells)} grid × objective pairs reach {GOAL:.0%} of the best with at "
          f"most {MOST_MEASUREMENTS} measurements")
    return 1 if missed else 0


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return value

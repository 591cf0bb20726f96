"""``docs/benchmarks/search.md``: the study as a page."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tables import head

HEAD = """# Search over batching and instances

Written by `{command}` from the grids in `grids/`; the figures are in `search.json`.

Each grid holds every combination of largest batch, queue delay and instance count, each under several loads, measured
on a real tritonserver several times in random order. A search is replayed on it: it asks for a point, the record
answers with the median of that point's repeats. A point that is asked for again, as its tail is in doubt, counts as
another measurement. **Share** is the objective it reaches ÷ the best of the whole grid.
Throughput within a latency limit is also cost within it: a replica-hour costs the same in every
configuration, so cost per million inferences is its inverse.

- **Ours** is the builder's own search (`sweep/search.py`), the same code that a build runs.
- **Random** measures {most} points drawn without repetition: mean and 5th percentile over {random_seeds:,} seeds.
- **Coarse grid** measures every second value of each axis.
- **Quick** is the quick search of Triton Model Analyzer, a hill climb over largest batch and instances followed by a
  sweep of the load (`studies/grids/quick.py` says what was taken from where): its share in the end, with as many
  measurements as it takes, and after its first {most}.
- **Noise**: the search again, each answer one repeat drawn at random, another one when it asks again ({noise_seeds}
  seeds), its choice valued by the medians; beside it the same for measuring the *whole grid once*, than which no search
  of single measurements can be surer.
"""


def page(document: Mapping[str, Any]) -> str:
    pairs = [goal for grid in document["grids"] for goal in grid["objectives"]]
    most = document["goal"]["measurements"]
    parts = [HEAD.format(command=document["command"], most=most, random_seeds=document["random_seeds"],
                         noise_seeds=document["noise_seeds"]), _summary(document, pairs)]
    parts += [_grid(grid) for grid in document["grids"]]
    parts.append(_simulated(document))
    parts.append("## Again\n\nOne grid is recorded by the command in its file; on a machine that other work shares, "
                 "prefix it with `chrt -r 1` and leave `--pause-seconds` in. "
                 f"`{document['command']}` then writes this page again from all grids in the folder.\n")
    return "\n".join(parts)


def _summary(document: Mapping[str, Any], pairs: Sequence[Mapping[str, Any]]) -> str:
    goal = document["goal"]
    good = document["cells"] - document["missed"]

    def row(name: str, shares: Sequence[float], counts: Sequence[float]) -> str:
        reached = sum(share >= goal["share"] for share in shares)
        return (f"| {name} | {statistics.fmean(shares):.1%} | {min(shares):.1%} | {reached} of {len(shares)} | "
                f"{statistics.fmean(counts):.1f} |")

    rows = [row("ours", [one["ours"]["share"] for one in pairs], [one["ours"]["measurements"] for one in pairs]),
            row("quick", [one["quick"]["share"] for one in pairs], [one["quick"]["measurements"] for one in pairs]),
            row(f"quick, first {goal['measurements']}", [one["quick"]["share_of_first_12"] for one in pairs],
                [min(goal["measurements"], one["quick"]["measurements"]) for one in pairs]),
            row("coarse grid", [one["coarse_grid"]["share"] for one in pairs],
                [one["coarse_grid"]["measurements"] for one in pairs]),
            row("random (mean of seeds)", [one["random"]["mean"] for one in pairs],
                [one["random"]["measurements"] for one in pairs])]
    return "\n".join([
        "## Summary\n",
        f"**{good} of {document['cells']}** pairs of grid and objective reach {goal['share']:.0%} of the best with at "
        f"most {goal['measurements']} measurements.\n",
        *head("Search", "Mean share", "Least share", "Pairs at the goal", "Mean measurements"), *rows,
        ""])


def _simulated(document: Mapping[str, Any]) -> str:
    """Servers that the search was not made for."""
    lines = ["## Made-up servers\n",
             "So that the search is not fitted to the few grids above: random machines in a simulation of Triton's "
             "batcher, request by request (`studies/grids/simulate.py`), each with the same ten objectives. On "
             "`cold gpu` half of all batch sizes stall once for 20 to 80 ms in a short window, as on the H200's "
             "record; a measurement of the stalled point cannot know.\n",
             *head("Machines", "Grids", "Pairs at the goal", "Mean share", "5th percentile", "Mean measurements",
                   "Quick, first 12: at the goal, mean")]
    for one in document["simulated"]:
        ours, quick = one["ours"], one["quick_first_12"]
        lines.append(f"| {one['kind']} | {one['grids']} | {ours['at_goal']:.0%} | {ours['mean']:.1%} | "
                     f"{ours['p5']:.1%} | {ours['measurements']:.1f} | {quick['at_goal']:.0%}, {quick['mean']:.1%} |")
    return "\n".join([*lines, ""])


def _grid(grid: Mapping[str, Any]) -> str:
    device = ", ".join(f"{value} {key}" if key == "cores" else str(value)
                       for key, value in grid["hardware"].items() if key in ("device", "cores"))
    lines = [f"## {grid['model']}\n",
             f"`grids/{grid['grid']}.json`: {grid['points']} points, {grid['repeats']:g} repeats each, on {device}, "
             f"{grid['recorded']}. Throughput of the repeats of one point differs by {grid['spread']:.1%} "
             "(median over points, largest − smallest).", *(f"\n{note}" for note in grid["notes"]), "",
             *head("Objective", "Best of the grid", "Ours: share, measurements", "Random", "Coarse grid",
                   "Quick (first 12)", "Noise: ours / whole grid")]
    lines += [_row(goal) for goal in grid["objectives"]]
    return "\n".join([*lines, ""])


def _row(goal: Mapping[str, Any]) -> str:
    best, ours, quick, noise = goal["best"], goal["ours"], goal["quick"], goal["noise"]
    where = (f"{best['throughput']:,.0f}/s, {best['objective_ms']:.3g} ms: batch {best['max_batch_size']}, "
             f"{best['max_queue_delay_us']} µs, {best['instance_count']} inst., {best['concurrency']} in flight")
    return (f"| {goal['objective']} | {where} | **{ours['share']:.1%}**, {ours['measurements']} | "
            f"{goal['random']['mean']:.1%} (p5 {goal['random']['p5']:.1%}) | "
            f"{goal['coarse_grid']['share']:.1%}, {goal['coarse_grid']['measurements']} | "
            f"{quick['share']:.1%}, {quick['measurements']} ({quick['share_of_first_12']:.1%}) | "
            f"{noise['ours']['mean']:.1%} / {noise['full_grid']['mean']:.1%} |")

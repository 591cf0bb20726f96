"""What each part of the scaler is worth: every part left out in turn, beside HPA and one that knows the future.

``make scaling-study`` rewrites the table in docs/benchmarks/scaling.md; ``TRACE=FILE.csv`` adds a trace of your own at
five times its rate.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from enginewright.core.scaling import ScaleLimits
from enginewright.core.scaling.needs import Parts
from enginewright.simulation.contest import Contest
from enginewright.simulation.curve import of_figures
from enginewright.simulation.policies.enginewright import Enginewright
from enginewright.simulation.results import figures
from enginewright.simulation.run import Run, Scenario
from enginewright.simulation.scale import scaled
from enginewright.simulation.trace import read_trace
from scaling_study.loads import LOADS

VARIANTS = {
    "Enginewright": Parts(),
    "without the forecast": Parts(forecast=False),
    "without the backlog": Parts(backlog=False),
    "without clumps": Parts(clumps=False),
    "without the floor": Parts(floor=False),
}
BEGIN, END = "<!-- table: make scaling-study -->\n", "<!-- end of table -->\n"
PAGE = Path("docs/benchmarks/scaling.md")


def contest(arrivals: Sequence[float], seed: int) -> Mapping[str, Run]:
    scenario = Scenario(service=of_figures(10.0, 20.0), seed=seed)
    found = Contest(arrivals, scenario)
    limits = ScaleLimits(max_replicas=scenario.max_replicas)
    runs = {name: found.play(Enginewright(limits, scenario.measured, parts)) for name, parts in VARIANTS.items()}
    runs["queue depth alone"] = found.play(Enginewright(limits, None, Parts()))
    return runs | {"HPA (4 queued, 300 s)": found.run("hpa"), "oracle": found.run("oracle")}


def rows(load: str, all_runs: Sequence[Mapping[str, Run]]) -> list[str]:
    """Means over seeds."""
    made = []
    best = sum(runs["oracle"].replica_seconds for runs in all_runs)
    for name in all_runs[0]:
        each = [figures(runs[name]) for runs in all_runs]
        late = sum(one["slo_violations"] for one in each) / sum(one["requests"] for one in each)
        cost = sum(one["replica_seconds"] for one in each) / best
        turns = sum(one["reversals"] for one in each) / len(each)
        made.append(f"| {load} | {name} | {100 * late:.2f} % | {cost:.2f} | {turns:.0f} |\n")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--output", type=Path, default=PAGE)
    options = parser.parse_args()
    seeds = range(1, options.seeds + 1)
    made = ["| Load | Policy | Late | Replica-seconds, of the oracle's | Reversals |\n", "|---|---|--:|--:|--:|\n"]
    if options.trace:
        trace = read_trace(options.trace)
        made += rows(options.trace.stem, [contest(scaled(trace.arrivals, 5, seed), seed) for seed in seeds])
    for load, make in LOADS.items():
        made += rows(load, [contest(make(random.Random(seed)), seed) for seed in seeds])  # noqa: S311 - a load, not a secret
    page = options.output.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    options.output.write_text(before + BEGIN + "".join(made) + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()

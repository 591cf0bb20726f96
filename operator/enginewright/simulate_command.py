"""``enginewright simulate``: replays a trace against the operator's scaler and its peers, and prints how each did."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

from enginewright.simulation.contest import NAMES, Contest
from enginewright.simulation.curve import of_figures
from enginewright.simulation.errors import InputError
from enginewright.simulation.results import figures
from enginewright.simulation.run import Scenario
from enginewright.simulation.trace import read_trace, scaled

EXIT_USAGE: Final = 2


def arguments(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--trace", type=Path, required=True, metavar="FILE",
        help="CSV with a TIMESTAMP column, or Prometheus range data as JSON")  # fmt: skip
    add("--service-ms", type=float, metavar="MS", help="what one request alone takes on a replica")
    add("--capacity-rps", type=float, metavar="RPS", help="what one replica answers a second at most")
    add("--slo-ms", type=float, default=100.0, metavar="MS", help="latency objective (default %(default)g)")
    add("--percentile", type=float, default=99.0, metavar="P", help="of the objective (default %(default)g)")
    add("--min", type=int, default=1, metavar="N", help="fewest replicas (default %(default)s)")
    add("--max", type=int, default=20, metavar="N", help="most replicas (default %(default)s)")
    add("--cold-start-seconds", type=float, default=20.0, metavar="S", help="until a replica is ready")
    add("--rate-scale", type=float, default=1.0, metavar="X", help="so many times the requests (default %(default)g)")
    add("--seed", type=int, default=0, metavar="N", help="of all that is drawn by lot (default %(default)s)")
    add("--policies", default="all", metavar="LIST", help=f"all, or some of {','.join(NAMES)}")
    add("--grid", action="store_true", help="also every peer with other targets and windows")
    add("--format", choices=("json", "table", "html"), default="table")
    command.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    """0 when it was simulated, 2 when an input is refused."""
    try:
        answer = _simulate(options)
    except InputError as error:
        print(f"enginewright: {error}", file=sys.stderr)
        return EXIT_USAGE
    print(json.dumps(answer, indent=2))
    return 0


def _simulate(options: argparse.Namespace) -> dict[str, Any]:
    trace = read_trace(options.trace, options.seed)
    arrivals = scaled(trace.arrivals, options.rate_scale, options.seed)
    scenario = Scenario(
        service=of_figures(options.service_ms, options.capacity_rps), slo=options.slo_ms / 1e3,
        percentile=options.percentile, min_replicas=options.min, max_replicas=options.max,
        cold_start=options.cold_start_seconds, seed=options.seed,
    )  # fmt: skip
    names = NAMES if options.policies == "all" else tuple(options.policies.split(","))
    contest = Contest(arrivals, scenario)
    answer: dict[str, Any] = {
        "trace": {"name": trace.name, "requests": len(arrivals), "seconds": round(arrivals[-1], 3)},
        "policies": {name: figures(contest.run(name)) for name in names},
    }
    if options.grid:
        answer["grid"] = [
            {"policy": name, "settings": settings, "slo_violations": len(run.ledger.late),
             "replica_seconds": round(run.replica_seconds, 3)}
            for name, settings, run in contest.grid(names)
        ]  # fmt: skip
    return answer

"""``make reality-check ENGINE=DIR NAME=…``: the same requests to real Triton replicas and to simulated ones.

``ENGINE`` is an engine of a store, as ``enginewright-build`` leaves it, built for as many cores as a replica has here
(with ``taskset``). Its replicas are started on loopback, each on cores of its own, apart from the client. The simulator
takes the time of each batch as measured on such a replica before and after each replay, the rest from the engine's
report. On a machine that other work shares, ``--first`` (as root) puts client and replicas before it. Prints the rows
of one model under one kind of load, writes them into ``reality.json``, and ``reality.md`` again.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.machine import host
from enginewright_builder.load import run_on_time
from enginewright_simulation.report import read_report
from enginewright_simulation.trace import read_trace
from reality.compare import Row, compare, offered, sustained
from reality.page import said, write
from reality.places import Places, places, put_client_first
from reality.replay import Engine, started

# Of what the replicas answer with full batches.
LOADS = (0.25, 0.5, 0.85)


def main() -> int:
    options = _parser().parse_args()
    where = places(sorted(os.sched_getaffinity(0)), options.replicas)
    os.sched_setaffinity(0, where.client)
    if options.first:
        put_client_first()
    study = run_on_time(_study(options, where))
    Console(width=120).print(said(study))
    if options.output:
        write(options.output, study)
    return 0


async def _study(options: argparse.Namespace, where: Places) -> dict[str, Any]:
    service = read_report(options.engine / "build-report.json").service
    trace = read_trace(options.trace).arrivals if options.trace else None
    if trace is not None:
        trace = [time - options.begin for time in trace if time >= options.begin]
    rows: list[Row] = []
    async with started(Engine.of(options.engine), service, where, first=options.first) as replicas:
        here = await replicas.measured()
        for load in options.loads:
            rate = load * sustained(here) * options.replicas
            arrivals = offered(trace, rate, options.seconds, options.seed)
            rows.append(await compare(replicas, load, arrivals, options.repeats, options.seed))
    return {"model": options.name, "command": shlex.join(["make", "reality-check", *_settings(options)]),
            "hardware": host(), "trace": _piece(options), "replicas": options.replicas,
            "cores_of_a_replica": len(where.replicas[0]), "wake_ms": round(here.wake * 1e3, 3),
            "transport_ms": round(here.transport * 1e3, 3),
            "service_ms": {str(batch): round(seconds * 1e3, 3) for batch, seconds in enumerate(here.seconds) if batch},
            "rows": rows}


def _piece(options: argparse.Namespace) -> str:
    if options.trace is None:
        return "Poisson"
    return f"{options.trace.name}, {options.begin:g} to {options.begin + options.seconds:g} s"


def _settings(options: argparse.Namespace) -> list[str]:
    trace = [f"TRACE={options.trace.name}", f"BEGIN={options.begin:g}"] if options.trace else []
    return ["ENGINE=…", f"NAME={options.name}", *trace, f"REPLICAS={options.replicas}", f"SECONDS={options.seconds:g}",
            f"REPEATS={options.repeats}", *(["FIRST=1"] if options.first else [])]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="reality", description=__doc__)
    parser.add_argument("--engine", type=Path, required=True, help="folder of an engine in a store")
    parser.add_argument("--name", required=True, help="of the model, for people")
    parser.add_argument("--trace", type=Path, help="CSV with a TIMESTAMP column; default: Poisson arrivals")
    parser.add_argument("--begin", type=float, default=0.0, help="second of the trace at which to begin")
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS, help="shares of what the replicas can answer")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each load")
    parser.add_argument("--repeats", type=int, default=3, help="of each load")
    parser.add_argument("--first", action="store_true", help="client and replicas before all else on this machine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="folder of reality.json and reality.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())

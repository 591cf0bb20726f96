"""``make reality-check ENGINE=DIR``: the same requests to real Triton replicas and to simulated ones.

``ENGINE`` is an engine of a store, as ``enginewright-build`` leaves it, built for as many cores as a replica has here
(with ``taskset``). Its replicas are started on loopback, each on cores of its own, apart from the client. The simulator
takes the time of each batch as measured on such a replica, the rest from the engine's report. Prints one row for each
load, and writes them with the hardware to ``--output``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from enginewright.simulation.report import read_report
from enginewright.simulation.trace import read_trace
from grids.record import hardware
from reality.compare import Row, compare, measured, offered, places

# Of what one replica answers a second when it is never idle, times the replicas.
LOADS = (0.3, 0.5, 0.7)


def main() -> int:
    options = _parser().parse_args()
    where = places(sorted(os.sched_getaffinity(0)), options.replicas)
    os.sched_setaffinity(0, where.client)
    service = asyncio.run(measured(options.engine, read_report(options.engine / "build-report.json").service, where))
    trace = read_trace(options.trace).arrivals if options.trace else None
    rows = []
    for load in options.loads:
        rate = load * service.capacity * options.replicas
        arrivals = offered(trace, rate, options.seconds, options.seed)
        rows.append(asyncio.run(compare(options.engine, service, arrivals, where, options.seed)))
    _show(rows)
    if options.output:
        found = {"command": shlex.join(["make", "reality-check", *_settings(options)]), "hardware": hardware(()),
                 "trace": options.trace.name if options.trace else "poisson", "replicas": options.replicas,
                 "cores_of_a_replica": len(where.replicas[0]),
                 "service_ms": {str(batch): round(seconds * 1e3, 3) for batch, seconds
                                in enumerate(service.seconds) if batch}, "rows": rows}  # fmt: skip
        options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def _settings(options: argparse.Namespace) -> list[str]:
    trace = [f"TRACE={options.trace.name}"] if options.trace else []
    return ["ENGINE=…", *trace, f"REPLICAS={options.replicas}", f"SECONDS={options.seconds:g}"]


def _show(rows: list[Row]) -> None:
    table = Table("requests/s", "p50, ms", "simulated", "off by", "p95, ms", "simulated", "off by", "answered/s",
                  "simulated", "off by")  # fmt: skip
    for row in rows:
        cells = [f"{row['rate']:.1f}"]
        for name in ("p50_ms", "p95_ms", "throughput"):
            real, simulated = row["real"][name], row["simulated"][name]
            cells += [f"{real:.1f}", f"{simulated:.1f}", f"{simulated / real - 1:+.0%}"]
        table.add_row(*cells)
    Console(width=110).print(table)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="reality", description=__doc__)
    parser.add_argument("--engine", type=Path, required=True, help="folder of an engine in a store")
    parser.add_argument("--trace", type=Path, help="CSV with a TIMESTAMP column; default: Poisson arrivals")
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS, help="shares of what the replicas can answer")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each load")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())

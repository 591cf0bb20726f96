"""``make batching-study``: queue delay and preferred sizes that follow the traffic, beside fixed ones.

In simulation over many seeds, and on a real tritonserver. Each half of docs/benchmarks/batching.json is written again
by the half of the study that was run.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from batching_study import real, shifts, study
from enginewright_builder.load import run_on_time
from grids.record import hardware

OUTPUT = Path("docs/benchmarks/batching.json")
DIGITS = 3
SHIFT_ROUNDS = 3
MODELS = ("onnx", *study.CURVES)


def main() -> None:
    options = _parser().parse_args()
    found = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {}
    if options.seeds:
        found["simulated"] = _simulated(options.seeds, options.phase_seconds, options.phases, options.processes)
        print(json.dumps(found["simulated"]["summary"], ensure_ascii=False, indent=1))
        write(options.output, found)
    if options.shift_seeds:
        found["shifts"] = _shifts(options.shift_seeds, options.phase_seconds, options.processes)
        print(json.dumps(found["shifts"], ensure_ascii=False, indent=1))
        write(options.output, found)
    if options.shift_seconds:
        measured = run_on_time(real.shift("idle device", SHIFT_ROUNDS, options.shift_seconds))
        found["real_shift"] = {"hardware": hardware(()), **measured}
        write(options.output, found)
    for model in options.models if options.rounds else ():
        measured = run_on_time(real.study(model, options.rounds, options.seconds))
        found.setdefault("real", {})[model] = {"hardware": hardware(()), **measured}
        write(options.output, found)


def write(path: Path, found: dict[str, Any]) -> None:
    path.write_text(json.dumps(rounded(found), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _simulated(seeds: int, seconds: float, phases: int, processes: int) -> dict[str, Any]:
    jobs = [(curve, seed, seconds, phases) for seed in range(1, seeds + 1) for curve in study.CURVES]
    with ProcessPoolExecutor(processes) as pool:
        rows = [row for each in pool.map(study.run, jobs) for row in each]
    return {"seeds": seeds, "phase_seconds": seconds, "phases": phases, "alone_ms": study.ALONE * 1e3,
            "load_seconds": study.LOAD_SECONDS, "summary": study.summary(rows),
            "p99_ms": study.by_kind(rows)}


def _shifts(seeds: int, seconds: float, processes: int) -> dict[str, Any]:
    with ProcessPoolExecutor(processes) as pool:
        rows = list(pool.map(shifts.run, shifts.jobs(seeds, seconds)))
    return {"seeds": seeds, "phase_seconds": seconds, "summary": shifts.summary(rows)}


def rounded(value: Any) -> Any:
    """With three digits behind the point."""
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="batching_study", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="simulated; 0 leaves the simulation out")
    parser.add_argument("--phase-seconds", type=float, default=1800.0, help="of each simulated phase")
    parser.add_argument("--phases", type=int, default=4, help="of each seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--shift-seeds", type=int, default=3, help="of each shift by name; 0 leaves these out")
    parser.add_argument("--shift-seconds", type=float, default=900.0,
                        help="of each of two crowds on a real tritonserver; 0 leaves that out")
    parser.add_argument("--rounds", type=int, default=3, help="on a real tritonserver; 0 leaves it out")
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS,
                        help="the small real one, or one that waits for as long as a device of that kind computes")
    parser.add_argument("--seconds", type=float, default=40.0, help="of each real phase")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    return parser


if __name__ == "__main__":
    main()

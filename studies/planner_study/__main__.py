"""Run the planner's study and write its page of figures: ``python -m planner_study --count 1000``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.machine import processor
from planner_study import study
from planner_study.page import page

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="planner_study", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="random instances (default %(default)s)")
    parser.add_argument("--traces", type=int, default=20, help="traces of churn (default %(default)s)")
    parser.add_argument("--moved", type=int, default=4, help="of these beside moving everything (default %(default)s)")
    parser.add_argument("--time-again", action="store_true", help="measure time alone, and keep the other figures")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "benchmarks" / "planner.json")
    options = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    if options.time_again:
        kept = json.loads(options.output.read_text())
        _write(options.output, {**kept, "time": study.of_time(min(200, options.count))})
        return 0
    result: dict[str, Any] = {
        "command": f"make planner-study COUNT={options.count} TRACES={options.traces}",
        "hardware": {**processor(), "load_when_it_began": os.getloadavg()[0]},
        "versions": {"python": platform.python_version(), "ortools": version("ortools"), "scipy": version("scipy")},
        "time": study.of_time(min(200, options.count)),
        "random": study.of_random(options.count, say),
        "large": study.of_large(min(100, options.count)),
        "solvers": study.of_check(min(50, options.count)),
        "churn": study.of_churn(options.traces, min(options.moved, options.traces), say),
    }
    _write(options.output, result)
    return 0


def _write(output: Path, result: dict[str, Any]) -> None:
    output.write_text(json.dumps(result, indent=1) + "\n")
    output.with_suffix(".md").write_text(page(result))


if __name__ == "__main__":
    sys.exit(main())

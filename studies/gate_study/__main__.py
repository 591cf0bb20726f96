"""Run the gate's study and write its page of figures: ``python -m gate_study --count 1000``.

Trials go on until as many count as are asked for; those that do not (a sabotage without effect, an engine that is not
above the bar by what its samples can resolve) are listed, too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from pathlib import Path

from bench.machine import processor
from enginewright_builder.system import limit_threads

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "docs" / "benchmarks" / "gate.json"
_PACKAGES = ("numpy", "scipy", "onnx", "onnxruntime")


def main(words: Sequence[str] | None = None) -> int:
    """0 if no sabotaged engine was admitted."""
    parser = argparse.ArgumentParser(prog="gate_study", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="engines of each side (default %(default)s)")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args(words)
    limit_threads(1)
    from gate_study.study import POPULATION, sabotaged, sound
    from gate_study.tally import tally

    begin = time.monotonic()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = {run.__name__: pool.submit(tally, run, options.count) for run in (sabotaged, sound)}
        sides = {name: one.result() for name, one in running.items()}
    result = {"command": f"make gate-study COUNT={options.count}", "population": POPULATION,
              "hardware": processor(),
              "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in _PACKAGES}},
              "seconds": round(time.monotonic() - begin), **sides}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    admitted, refused = sides["sabotaged"]["passed"], sides["sound"]["counted"] - sides["sound"]["passed"]
    sys.stderr.write(f"{options.count} of each: {admitted} sabotaged engines admitted, {refused} sound ones refused; "
                     f"{options.output}\n")
    return 0 if admitted == 0 else 1


if __name__ == "__main__":
    sys.exit(main())

"""``make bench-gpu``: what one run of the real ``enginewright-build`` ships of each model, beside every other
candidate, exhaustively, and beside the model as people serve it; rebuilds, and Triton's cost.

Writes one JSON file a run; ``python -m bench.page`` merges such files and renders the readable page.
"""

from __future__ import annotations

import argparse
import json
import logging
import shlex
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from bench import cells, product, run, serving
from bench.machine import hardware, versions
from bench.zoo import Entry, entries
from enginewright_builder.contract import DeviceRequest
from enginewright_builder.engine_store.folder import TIMING_CACHES
from enginewright_builder.engines.registry import all_engines

log = logging.getLogger("bench")


def main() -> int:
    given = _parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    result: dict[str, Any] = {"hardware": hardware(), "versions": versions(),
                              "command": command(given),
                              "product": [], "cells": [], "builds": [], "serving": [], "models": [], "failed": []}
    for entry in entries(given.models):
        try:
            _one(entry, given, result)
        except Exception as error:
            traceback.print_exc()
            result["failed"].append({"model": entry.name, "error": f"{type(error).__name__}: {error}"[:2000]})
        _save(result, given.output)
    return 1 if result["failed"] else 0


def _save(result: dict[str, Any], output: Path) -> None:
    output.write_text(json.dumps(result, indent=1) + "\n")


def _one(entry: Entry, given: argparse.Namespace, result: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix=f"bench-{entry.name}-") as folder:
        scratch = Path(folder)
        device = DeviceRequest(accelerator="gpu", products=(result["hardware"]["gpu"].replace(" ", "-"),), gpu_count=1)
        built = product.build(entry, given.inputs, scratch / "product", "gpu", given.budget)
        log.info("%s: enginewright-build published %s after %.0f s", entry.name, built.published.folder.name[:12],
                 built.seconds)
        found = run.benchmark(entry, given.inputs, scratch / "model", built.store / TIMING_CACHES, device,
                              given.seconds_per_model, run.chosen_engines(given.precisions), built.published)
        result["cells"] += found.record["cells"]
        result["models"].append({key: value for key, value in found.record.items() if key != "cells"})
        # What was measured is kept, whatever becomes of the rest.
        result["product"].append(product.row(built, found))
        _save(result, given.output)
        result["product"][-1] |= product.serve(built, found.subject, scratch / "served", gpus=(0,))
        _save(result, given.output)
        if entry.name in given.rebuild.split(","):
            result["builds"].append(run.rebuild(entry, found.subject, scratch, scratch / "cold-caches", device))
        if entry.name in given.serve.split(","):
            result["serving"] += _serving(found, given.keep or scratch)


def _serving(found: run.Found, folder: Path) -> list[dict[str, Any]]:
    engines = {engine.name: engine for engine in all_engines()}
    rows = []
    for batch in (min(cells.BATCHES), max(cells.BATCHES)):
        candidate = found.shipped(batch)
        if candidate.artifact is not None:
            model = found.record["model"]
            rows.append(serving.compare(model, candidate.artifact, engines[candidate.rung.backend],
                                        found.subject.evaluation.request(batch), folder / f"{model}-{batch}"))
    return rows


def command(given: argparse.Namespace) -> str:
    """What repeats this run."""
    settings = {"MODELS": given.models, "PRECISIONS": given.precisions,
                "SECONDS_PER_MODEL": f"{given.seconds_per_model:g}", "BUDGET": str(given.budget or "")}
    return shlex.join(["make", "bench-gpu", *(f"{name}={value}" for name, value in settings.items() if value)])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--inputs", type=Path, default=Path("/tmp/bench-inputs/models"),  # noqa: S108 - unpack.sh's
                        help="folder of model weights that were carried in")
    parser.add_argument("--models", default="", help="names separated by commas; default all")
    parser.add_argument("--precisions", default="", help="of candidates, separated by commas; default all")
    parser.add_argument("--budget", type=int, default=None, help="seconds of enginewright-build (default: its own)")
    parser.add_argument("--rebuild", default="", help="models whose rebuild is timed")
    parser.add_argument("--serve", default="", help="models whose candidates' own way through Triton is taken apart")
    parser.add_argument("--keep", type=Path, help="folder to leave the served model repositories in")
    parser.add_argument("--seconds-per-model", type=float, default=300.0)
    parser.add_argument("--output", type=Path, required=True)
    return parser


if __name__ == "__main__":
    sys.exit(main())

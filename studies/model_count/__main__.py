"""``make model-count``: small models with random weights that nothing here was written for, each from its framework to
an answer of a tritonserver by the builder's own command, or to the word by which it is refused."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.machine import processor
from model_count.page import page

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "docs" / "benchmarks" / "model-count.json"
_PACKAGES = ("torch", "transformers", "onnx", "onnxruntime", "nvidia-pytriton")
# Seconds that a build is given for candidates, and that any process may take.
_BUDGET, _SECONDS = "30", 900


def main(words: Sequence[str] | None = None) -> int:
    """0 where every model is served or refused by name."""
    parser = argparse.ArgumentParser(prog="model_count", description=__doc__)
    parser.add_argument("--models", default="", help="names or parts of names, by commas (default: all)")
    parser.add_argument("--at-once", type=int, default=1, help="builds at a time (default %(default)s)")
    parser.add_argument("--label", default="after", choices=("before", "after"),
                        help="of the builder as it was before it was mended for any of them, or since (default "
                             "%(default)s)")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--make", type=Path, metavar="FOLDER", help="only write the sources, and say where they lie")
    options = parser.parse_args(words)
    if options.make:
        make(options.models, options.make)
        return 0
    with tempfile.TemporaryDirectory(prefix="model-count-") as scratch:
        count(options, Path(scratch))
    result = read(options.output)
    options.output.with_suffix(".md").write_text(page(result), encoding="utf-8")
    return 0 if all(row["outcome"] in ("served", "refused") for row in result[options.label]) else 1


def make(named: str, folder: Path) -> None:
    """Print a line for each model: its row and where its source lies, or why its framework did not answer it."""
    from model_count.table import MODELS

    parts = [part for part in named.split(",") if part]
    for place, one in enumerate(MODELS):
        if parts and not any(part in one.name for part in parts):
            continue
        row: dict[str, Any] = {"name": one.name, "task": one.task, "source": one.source}
        row.update({"stated": one.stated} if one.stated else {})
        target = folder / str(place)
        target.mkdir(parents=True)
        try:
            told = {"row": row, "path": str(one.make(target)), "interface": one.interface}
        except Exception as error:  # frameworks fail in as many ways as there are kinds of them
            told = {"row": {**row, "outcome": "not made", "message": f"{type(error).__name__}: {error}"[:300]}}
        print(json.dumps(told), flush=True)


def count(options: argparse.Namespace, scratch: Path) -> None:
    """Note what becomes of each model. The sources are made first, in a process of their own: PyTorch takes seconds to
    import."""
    code, printed, errors = ran(["model_count", "--models", options.models, "--make", str(scratch)], _SECONDS)
    if code != 0:
        raise SystemExit(f"the sources were not made: {errors[-2000:]}")
    told = [json.loads(line) for line in printed.splitlines() if line.startswith('{"row"')]
    with ThreadPoolExecutor(options.at_once) as pool:
        for running in as_completed([pool.submit(counted, one) for one in told]):
            note(options.output, options.label, running.result())


def counted(told: dict[str, Any]) -> dict[str, Any]:
    """What becomes of one model."""
    if "path" not in told:
        return dict(told["row"])
    with tempfile.TemporaryDirectory(prefix="model-count-store-") as store:
        return {**told["row"], **built(told["path"], Path(store), told["interface"])}


def built(path: str, store: Path, interface: Any) -> dict[str, Any]:
    """The builder's own command, as a user runs it. The source itself may ship: how fast so small models are says
    nothing."""
    words = ["enginewright_builder", "--model", path, "--output", str(store), "--accelerator", "cpu", "--json",
             "--budget-seconds", _BUDGET, "--max-batch-size", "8", "--fallback", "source", "--name", "counted"]
    if interface:
        words += ["--interface", json.dumps(interface)]
    return outcome(*ran(words, _SECONDS))


def outcome(code: int, printed: str, errors: str) -> dict[str, Any]:
    """What a build ended with, of its exit status and what it printed. An error that is not the user's to mend has its
    reason as the outcome."""
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    end = next((line for line in reversed(lines) if line.get("event") == "outcome"), None)
    if end is None:
        return {"outcome": "no outcome", "message": f"exit status {code}: {errors[-300:]}"}
    if end["ok"]:
        return {"outcome": "served", "batch": end["serving"]["max_batch_size"],
                "engine": f"{end['engine']['backend']} {end['engine']['precision']}"}
    error = end["error"]
    return {"outcome": "refused" if error["family"] == "user" else error["reason"],
            **{name: error[name] for name in ("reason", "message", "remedy")}}


def ran(words: Sequence[str], seconds: float) -> tuple[int, str, str]:
    """Exit status, what it printed, and its errors. What it started ends with it, also where its time is over."""
    process = subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, process_group=0)
    try:
        printed, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, errors = process.communicate()
        errors += f"stopped after {seconds:g} s"
    return process.returncode, printed, errors


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def note(path: Path, label: str, row: dict[str, Any]) -> None:
    """Into the file at once: a count that ends early keeps what it has. A model counted again replaces its row."""
    result = read(path) or {"command": "make model-count", "hardware": processor(),
                            "versions": {"python": platform.python_version(),
                                         **{name: metadata.version(name) for name in _PACKAGES}}}
    result[label] = [*(one for one in result.get(label, []) if one["name"] != row["name"]), row]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(row["outcome"], row["name"], row.get("reason", ""), row.get("message", "")[:200], Counter(
        one["outcome"] for one in result[label]), flush=True)


if __name__ == "__main__":
    sys.exit(main())

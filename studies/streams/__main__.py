"""``make streams-study``: chat streams through the Service, by an open loop, while revisions roll out and go back,
replicas go up and down, a node is drained and pods are deleted. Each stream is read to its end: finish reason, mark of
the end, number of tokens."""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.machine import processor
from demo import __main__ as demo
from demo import language_model
from demo.shell import CLUSTER, ROOT, Kube, StepError, run
from rollouts.cluster import MODEL, Corner
from rollouts.load import Load, under_load
from streams import models
from streams.moves import Moves
from streams.summary import StreamSummary

NAMESPACE = "enginewright-streams"
OUTPUT = ROOT / "build" / "streams"
IMAGES = (*demo.ALL_IMAGES, "server-vllm")
# How clients connect: once for each stream, or by connections that they keep and use again, as OpenAI's own client
# does. The second stay with a replica for as long as it lets them.
CLIENTS = {"connection-each": (), "connections-kept": ("--keep-connections",)}
# Poisson arrivals may be fewer than their rate says.
SPARE = 1.03
console = Console(highlight=False, soft_wrap=True)


def main(words: Sequence[str] | None = None) -> int:
    """0 where no stream was cut and no request failed."""
    parser = argparse.ArgumentParser(prog="streams", description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000, help="at least so many streams (default %(default)s)")
    parser.add_argument("--rate", type=float, default=12.0, help="of all clients, a second (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=60.0, help="of load, at most (default %(default)s)")
    parser.add_argument("--output", type=Path, default=OUTPUT / "summary.json")
    parser.add_argument("--keep", action="store_true", help="leave the namespace as it is at the end")
    options = parser.parse_args(words)
    run(CLUSTER, "up", quiet=False, timeout=demo.COLD_SECONDS)
    kube = Kube.of_cluster()
    images = demo.load_images(IMAGES)
    demo.install(kube, images)
    corner, summary = Corner(kube, images["builder"], NAMESPACE), StreamSummary()
    began = time.monotonic()
    try:
        study(corner, summary, options)
    except StepError as failure:
        console.print(f"[bold red]The study stopped:[/] {failure}", markup=True)
        summary.surprises.append(str(failure))
    finally:
        summary.seconds = round(time.monotonic() - began, 1)
        write(summary, options)
        if not options.keep:
            corner.remove()
    console.print_json(data=dataclasses.asdict(summary))
    return 0 if summary.good else 1


def study(corner: Corner, summary: StreamSummary, options: argparse.Namespace) -> None:
    corner.prepare(models.write(OUTPUT / "models"))
    corner.open_store()
    moves = Moves(corner, summary, console, asked=models.spec, replaced_seconds=600, promoted_seconds=1500,
                  # Two cores that start a server have no time left for streams: what is slower then is no fault.
                  analysis={"maxSlowdown": 10, "minRequests": 60})
    moves.build()
    # By the Service's name each connection would also ask DNS, which is another's to answer.
    address = corner.kube.json("get", "service", MODEL, "-n", NAMESPACE)["spec"]["clusterIP"]
    seconds = int(60 * options.minutes) + 600
    loads = [Load(name, ["--url", f"http://{address}:8000", "--model", MODEL, "--jsonl", f"/models/{models.ASKED}",
                         "--exact", "--json", "--rate", str(options.rate / len(CLIENTS)), "--seed", str(seed),
                         "--seconds", str(seconds), *more], language_model.LOAD)
             for seed, (name, more) in enumerate(CLIENTS.items())]
    began = time.monotonic()
    needed = SPARE * options.requests / options.rate
    under_load(corner, loads, lambda: moves.until(lambda: time.monotonic() - began >= needed,
                                                  latest=began + 60 * options.minutes),
               summary.add_streams, seconds=seconds, patience=300)


def write(summary: StreamSummary, options: argparse.Namespace) -> None:
    options.output.parent.mkdir(parents=True, exist_ok=True)
    command = f'make streams-study ARGS="--rate {options.rate:g} --minutes {options.minutes:g}"'
    options.output.write_text(json.dumps({
        "command": command, "commit": _commit(), "hardware": processor(), "rate": options.rate,
        "summary": dataclasses.asdict(summary)}, indent=2) + "\n")


def _commit() -> Any:
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True,
                          check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())

"""``make survive-study``: sequences of steps by seed, several at once, each in a namespace of its own."""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.machine import host
from cluster.bare import running
from survive_study import processes, record
from survive_study.campaign import campaign
from survive_study.lane import BOUND

OUTPUT = Path(__file__).resolve().parents[2] / "build" / "survive.json"


def described(options: argparse.Namespace) -> dict[str, Any]:
    given = (f"--seed {options.seed} --sequences {options.sequences} --steps {options.steps} "
             f"--processes {options.processes} --lanes {options.lanes}")
    return {
        "command": f'make survive-study ARGS="{given} --minutes {options.minutes:g} --bound {options.bound:g}"',
        "recorded": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "hardware": {**host(), "load_at_the_end": os.getloadavg()[0]},
    }


def writing(options: argparse.Namespace, folder: Path) -> Callable[[], dict[str, Any]]:
    """What writes the summary of the sequences that have ended by then. The folder is made at once: a campaign is not
    to end without a place for what it found."""
    options.output.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()

    def write() -> dict[str, Any]:
        told = {**described(options), **record.report(record.kept(folder), time.monotonic() - began, options.bound)}
        temporary = options.output.with_suffix(".tmp")
        temporary.write_text(json.dumps(told, indent=1) + "\n")
        temporary.rename(options.output)
        return told

    return write


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="survive_study", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sequences", type=int, default=20, help="seeds from --seed on (default %(default)s)")
    parser.add_argument("--steps", type=int, default=500, help="of a sequence (default %(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="each with a control plane (default %(default)s)")
    parser.add_argument("--lanes", type=int, default=2, help="sequences at once of a process (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=120,
                        help="begin no sequence later, and end those that run at their next rest (default %(default)s)")
    parser.add_argument("--bound", type=float, default=BOUND, metavar="SECONDS",
                        help="in which everything comes to rest (default %(default)s)")
    parser.add_argument("--shrink", type=int, default=12, metavar="TRIES",
                        help="how often a sequence that fails is played again to shorten it (default %(default)s)")
    parser.add_argument("--refused", type=int, default=0, help="show so many of what the apiserver refused")
    parser.add_argument("--replay", type=json.loads, metavar="STEPS", help="those that a failure was shrunk to")
    parser.add_argument("--folder", type=Path, help="for logs, and for what there was at each alarm")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    return parser.parse_args(arguments)


def main() -> int:
    options = parsed()
    # Stopped by a time limit or in the background, it stops what it started, as after Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    for name in ("aiohttp.server", "asyncio"):  # an operator that is killed hangs up
        logging.getLogger(name).setLevel(logging.CRITICAL)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="survive-"))
    print(f"logs are in {folder}", flush=True)
    write = writing(options, folder)
    if options.processes > 1:
        processes.run(options, folder, write)
    else:
        with running(folder / "control-plane", controllers=True) as kubeconfig:
            asyncio.run(campaign(kubeconfig, folder, options, write))
    told = write()
    print(json.dumps(told))
    return 1 if told["alarms"] or told["broke"] else 0


if __name__ == "__main__":
    sys.exit(main())

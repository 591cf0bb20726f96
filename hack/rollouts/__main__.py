"""``make e2e-rollout``: what does a rollout cost those who send requests? Nothing may."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable

from rich.console import Console

from demo import __main__ as demo
from demo import traffic
from demo.shell import CLUSTER, ROOT, Kube, StepError, run
from rollouts import models
from rollouts.cluster import MODEL, NAMESPACE, Corner
from rollouts.drill import Drill
from rollouts.summary import Summary

OUTPUT = ROOT / "build" / "rollout"
BAD = ("slow", "wrong", "crashing", "unrecorded")
LOAD = "load"
LONGEST = 3 * 3600

console = Console(highlight=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="rollouts", description=__doc__)
    parser.add_argument("--equal", type=int, default=20, help="sound candidates (default %(default)s)")
    parser.add_argument("--bad", type=int, default=20, help="bad ones, of all kinds in turn (default %(default)s)")
    parser.add_argument("--faults", type=lambda text: text.split(","), default=BAD, metavar="NAME[,NAME…]",
                        help=f"kinds of bad candidates (default {','.join(BAD)})")
    parser.add_argument("--kills", type=int, default=10, help="replicas killed (default %(default)s)")
    parser.add_argument("--requests", type=int, default=200_000, help="at least so many (default %(default)s)")
    parser.add_argument("--rate", type=float, default=100.0, help="requests a second (default %(default)s)")
    parser.add_argument("--max-surge", type=int, default=1, help="spec.rollout.maxSurge (default %(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the namespace as it is at the end")
    options = parser.parse_args()
    run(CLUSTER, "up", quiet=False, timeout=1800)
    kube = Kube.of_cluster()
    images = demo.load_images()
    demo.install(kube, images)
    corner = Corner(kube, images["builder"])
    try:
        summary = drill(corner, options)
    except StepError as failure:
        console.print(f"[bold red]The drill stopped:[/] {failure}", markup=True)
        return 1
    finally:
        if not options.keep:
            corner.remove()
    console.print_json(data=vars(summary))
    return 0 if summary.good else 1


def drill(corner: Corner, options: argparse.Namespace) -> Summary:
    """Runs it all under load; the summary is written whatever happens."""
    summary, began = Summary(), time.monotonic()
    corner.prepare(models.write(OUTPUT / "models"))
    corner.open_store()
    moves = Drill(corner, summary, console, max_surge=options.max_surge)
    try:
        moves.build()
        with_load(corner, options, summary, lambda: sequence(moves, options))
    finally:
        summary.seconds = round(time.monotonic() - began, 1)
        summary.write(OUTPUT / "summary.json")
    return summary


def with_load(corner: Corner, options: argparse.Namespace, summary: Summary,
              work: Callable[[], None]) -> None:
    """Runs ``work`` while requests keep coming, and counts them."""
    began = time.monotonic()
    arguments = ["--url", f"{MODEL}.{NAMESPACE}.svc:8001", "--model", MODEL, "--rate", str(options.rate),
                 "--seconds", str(LONGEST), "--retries", "5", "--json",
                 "--inputs", "/models/evaluation.npz"]
    traffic.start(corner.kube, NAMESPACE, LOAD, corner.builder, arguments, deadline=LONGEST + 60)
    corner.kube("wait", "-n", NAMESPACE, "pod", "-l", f"job-name={LOAD}", "--for=condition=Ready", "--timeout=90s")
    try:
        work()
        left = options.requests / options.rate - (time.monotonic() - began) + 5
        if left > 5:
            console.print(f"  load goes on for {left:.0f} s, until there were {options.requests:,} requests")
            time.sleep(left)
    finally:
        traffic.stop(corner.kube, NAMESPACE, LOAD)
        summary.add_load(traffic.finish(corner.kube, NAMESPACE, LOAD, timeout=120))


def sequence(moves: Drill, options: argparse.Namespace) -> None:
    """Good and bad candidates in turn, with kills, a drain and scaling between them."""
    faults = itertools.islice(itertools.cycle(options.faults), options.bad)
    for index, fault in enumerate(itertools.zip_longest(range(options.equal), faults)):
        good, bad = fault
        if good is not None:
            moves.promote()
        if bad is not None:
            moves.refuse(bad)
        if index < options.kills:
            moves.kill(abruptly=index % 2 == 1)
        if index == 0:
            moves.scale(moves.replicas + 1)
            moves.scale(moves.replicas - 1)
            moves.drain()


if __name__ == "__main__":
    sys.exit(main())

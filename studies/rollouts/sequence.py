"""The order of a drill: good and bad candidates in turn, with kills, a drain and scaling between them, under load."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from rollouts import models
from rollouts.cluster import MODEL, NAMESPACE, Corner
from rollouts.drill import Drill
from rollouts.load import Load, under_load
from rollouts.summary import Summary

FAULTS = ("slow", "wrong", "crashing", "unrecorded")
LOAD = "load"
# More tries of a request that no server took, over 25 s. For so long a busy node may send connections to a replica that
# was killed: until the kubelet sees it, says so, and the endpoints follow.
RETRIES = 9
LONGEST = 3 * 3600


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How many of each; ``requests`` is the least, ``rate`` in requests a second. ``analysis`` seconds of each rollout
    at the least; ``tries_again`` is the drill's."""

    equal: int = 20
    bad: int = 20
    kills: int = 10
    requests: int = 200_000
    rate: float = 100.0
    max_surge: int = 1
    analysis: int = 20
    tries_again: int = 0
    faults: Sequence[str] = FAULTS


def drill(corner: Corner, wanted: Wanted, output: Path, console: Console) -> Summary:
    """Runs it all under load; the summary is written whatever happens."""
    summary, began = Summary(), time.monotonic()
    corner.prepare(models.write(output / "models"))
    corner.open_store()
    moves = Drill(corner, summary, console, max_surge=wanted.max_surge, analysis_seconds=wanted.analysis,
                  tries_again=wanted.tries_again)
    try:
        moves.build()
        with_load(moves, wanted, lambda: sequence(moves, wanted))
    finally:
        summary.seconds = round(time.monotonic() - began, 1)
        summary.write(output / "summary.json")
    return summary


def with_load(moves: Drill, wanted: Wanted, work: Callable[[], None]) -> None:
    """Runs ``work`` while requests keep coming, and counts them."""
    arguments = ["--url", f"{MODEL}.{NAMESPACE}.svc:8001", "--model", MODEL, "--rate", str(wanted.rate),
                 "--min-requests", str(wanted.requests), "--seconds", str(LONGEST), "--retries", str(RETRIES),
                 "--json", "--inputs", "/models/evaluation.npz"]

    def worked() -> None:
        work()
        moves.console.print(f"  load goes on until there were {wanted.requests:,} requests")

    under_load(moves.corner, [Load(LOAD, arguments)], worked, lambda _, result: moves.summary.add_load(result),
               seconds=LONGEST, patience=wanted.requests / wanted.rate + 120)


def sequence(moves: Drill, wanted: Wanted) -> None:
    """Good and bad candidates in turn, with kills, a drain and scaling between them."""
    faults = itertools.islice(itertools.cycle(wanted.faults), wanted.bad)
    for index, fault in enumerate(itertools.zip_longest(range(wanted.equal), faults)):
        good, bad = fault
        if good is not None:
            moves.promote()
        if bad is not None:
            moves.refuse(bad)
        if index < wanted.kills:
            moves.kill(abruptly=index % 2 == 0)
        if index == 0:
            moves.scale(moves.replicas + 1)
            moves.scale(moves.replicas - 1)
            moves.drain()

"""Several processes, each with a control plane, seeds and a folder of its own: the proxies, nodes and oracles of one
process share one core."""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

LOOK = 5.0
# By then a process has stopped its control plane.
GRACE = 30.0


def shares(first: int, count: int, processes: int) -> list[tuple[int, int]]:
    """The first seed and the number of seeds of each process, none empty."""
    size, more = divmod(count, processes)
    found, start = [], first
    for number in range(processes):
        mine = size + (number < more)
        if mine:
            found.append((start, mine))
        start += mine
    return found


def run(options: argparse.Namespace, folder: Path, write: Callable[[], object]) -> None:
    """Returns when all have ended; ``write`` is called meanwhile."""
    started = [_start(options, folder / f"process-{number}", *share) for number, share in
               enumerate(shares(options.seed, options.sequences, options.processes))]
    try:
        for one in started:
            while not _ended(one):
                write()
    finally:
        _stop(started)


def _start(options: argparse.Namespace, folder: Path, seed: int, sequences: int) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True)
    words = {"seed": seed, "sequences": sequences, "folder": folder, "output": folder / "summary.json",
             **{name: getattr(options, name) for name in ("steps", "lanes", "minutes", "bound", "shrink", "refused")}}
    arguments = [f"--{name}={value}" for name, value in words.items()]
    return subprocess.Popen([sys.executable, "-m", "survive_study", *arguments], start_new_session=True)


def _ended(one: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        one.wait(LOOK)
    return one.returncode is not None


def _stop(started: Sequence[subprocess.Popen[bytes]]) -> None:
    for one in started:
        one.terminate()
    for one in started:
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.wait(GRACE)

"""Run the soak: ``make soak-study``. It writes build/soak.json, of which docs/benchmarks/soak.json is a copy.

Some objects stay and serve, and they and their children are changed many times a second, mostly as a kubelet and
controllers change them. At a lower rate others are made, changed, lose pods and are deleted. It goes on until the
operator has seen so many events, and for so many minutes at least. What it holds then, with nothing left but the
objects that stay, is compared with what it held after the first tenth.

Real: etcd, the apiserver, the controller manager and ``enginewright run`` with the rights that the chart grants. Acted:
containers, by writes to the pods' status. It runs in a network namespace of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import functools
import itertools
import json
import os
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from attack.eyes import cpu_seconds
from attack.rows import watching
from bench.machine import processor
from scale_study.actor import Actor
from scale_study.place import enter, place
from scale_study.settled import at_once, until
from soak_study.changes import Changes
from soak_study.lives import FIELDS, Lives, Seen
from soak_study.meters import PORT, Held, Reading, at_rest, read, record_of
from soak_study.pace import paced
from support.apiserver import NAMESPACE, Models, manifest, model
from support.operators import operating

RESULT: Final = Path(__file__).resolve().parents[2] / "build" / "soak.json"
SPACE: Final = "soak"
RESYNC: Final = 60.0
# What was deleted is remembered for a while, and scrapers end when their next reading is due.
REST: Final = 2 * RESYNC
WARM: Final = 0.1
GROWTH: Final = 1.05
CONNECTIONS: Final = 4
COUNTED: Final = ("tasks", "threads", "series", "remembered", "objects")
CHANGES_AT_ONCE: Final = 8
PATIENCE: Final = 300.0
PERIOD: Final = 5.0
# Of what is read, so much is written down: a reading a minute.
EACH: Final = 12
Found = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak_study", description=__doc__)
    parser.add_argument("--events", type=int, default=100_000, help="of the operator's watches (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=60.0, help="at least, without rests (default %(default)s)")
    parser.add_argument("--stay", type=int, default=20, help="objects that stay (default %(default)s)")
    parser.add_argument("--changes", type=float, default=20.0,
                        help="of these and their children, a second (default %(default)s)")
    parser.add_argument("--lives", type=float, default=5.0, help="of other objects, a minute (default %(default)s)")
    parser.add_argument("--at-once", type=int, default=10, help="of these at a time (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    enter("soak_study")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    found: Found = {
        "recorded": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "hardware": processor(),
        "command": f'make soak-study ARGS="{shlex.join(sys.argv[1:])}"',
        "readings": []}
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as scratch:
        asyncio.run(_run(options, found, Path(scratch)))
    print(json.dumps(found["growth"]))
    return 0 if found["flat"] else 1


async def _run(options: argparse.Namespace, found: Found, folder: Path) -> None:
    async with place(folder) as at:
        await at.kube._json("create", NAMESPACE, NAMESPACE.path(None), body=manifest("v1", "Namespace", SPACE))
        models, seen = Models(at.kube, SPACE), Seen()
        await models.claims()
        arguments = (f"--kubeconfig={at.operators}", f"--metrics-port={PORT}", f"--resync={RESYNC:g}",
                     f"--leader-lease={SPACE}/enginewright", "--log-level=WARNING")
        async with (
            Actor(at.kube, folder).running(at.kubeconfig),
            watching(at.kubeconfig, "optimisedmodels", FIELDS, seen.take),
            operating(arguments, folder / "operator.log") as process,
        ):
            await models.create(model("seed"))
            await until(lambda: seen.ready.get("seed", False), PATIENCE, "the first model serves")
            lives, names = Lives(models, seen, options.seed), [f"stays-{number}" for number in range(1, options.stay)]
            await at_once([functools.partial(lives.begin, name) for name in names])
            await _soak(options, found, lives, Changes(models, frozenset({"seed", *names}), options.seed), process)


async def _soak(options: argparse.Namespace, found: Found, lives: Lives, changes: Changes, process: int) -> None:
    began = time.monotonic()

    def tell(name: str, one: Reading) -> Reading:
        found["readings"].append(record_of(name, one))
        found.update(seconds=round(time.monotonic() - began), load=round(os.getloadavg()[0], 1),
                     operator_cpu_s=round(cpu_seconds(process), 1), lives=lives.ended, changes_of_lives=lives.changed,
                     changes=dict(changes.made.most_common()), refused=lives.refused + changes.refused)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(found, indent=1) + "\n")
        return one

    async def phase(part: float) -> Reading:
        """Until the operator has seen this ``part`` of the events, in that of the minutes; what it holds when all but
        the objects that stay have gone."""
        latest = await read(process)
        wanted: float = latest.events + options.events * part
        until: float = time.monotonic() + 60.0 * options.minutes * part

        async def follow() -> None:
            nonlocal latest
            for number in itertools.count(1):
                await asyncio.sleep(PERIOD)
                latest = await read(process)
                if number % EACH == 0:
                    tell("busy", latest)

        def enough() -> bool:
            return latest.events >= wanted and time.monotonic() >= until

        following = asyncio.create_task(follow())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(paced(60.0 / options.lives, options.at_once, enough, lives.one))
                group.create_task(paced(1.0 / options.changes, CHANGES_AT_ONCE, enough, changes.one))
        finally:
            following.cancel()
        await asyncio.sleep(REST)
        return await at_rest(process)

    await changes.look()
    before = tell("at rest", await phase(WARM))
    after = await phase(1.0 - WARM)
    found["growth"] = after.held.beside(before.held)
    found["flat"] = flat(before.held, after.held)
    tell("at rest", after)


def flat(before: Held, after: Held) -> bool:
    """Memory may be 5 % more, and a few connections may be kept for the next call; of all else nothing more may be
    there."""
    return (after.rss_mb <= GROWTH * before.rss_mb and after.files <= before.files + CONNECTIONS
            and all(getattr(after, name) <= getattr(before, name) for name in COUNTED))


if __name__ == "__main__":
    sys.exit(main())

"""Run the soak: ``make soak-study``. It writes build/soak.json, of which docs/benchmarks/soak.json is a copy.

Objects are made, changed, lose pods and are deleted, until the operator has seen so many events. What it holds then,
with nothing left but one object, is compared with what it held after the first tenth of them.

Real: etcd, the apiserver, the controller manager and ``enginewright run`` with the rights that the chart grants. Acted:
containers, by writes to the pods' status. It runs in a network namespace of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
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

from attack.rows import watching
from bench.machine import processor
from scale_study.actor import Actor
from scale_study.place import enter, place
from scale_study.settled import until
from soak_study.lives import FIELDS, Lives, Seen
from soak_study.meters import PORT, Held, Reading, at_rest, read, record_of
from support.apiserver import NAMESPACE, Models, manifest, model
from support.operators import operating

RESULT: Final = Path(__file__).resolve().parents[2] / "build" / "soak.json"
SPACE: Final = "soak"
RESYNC: Final = 60.0
# What was deleted is remembered for a while, and scrapers end when their next reading is due.
REST: Final = 2 * RESYNC
WARM: Final = 10
GROWTH: Final = 1.05
CONNECTIONS: Final = 4
COUNTED: Final = ("tasks", "threads", "series", "remembered", "objects")
PERIOD: Final = 5.0
# Of what is read, so much is written down: a reading a minute.
EACH: Final = 12
Found = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak_study", description=__doc__)
    parser.add_argument("--events", type=int, default=100_000, help="of the operator's watches (default %(default)s)")
    parser.add_argument("--at-once", type=int, default=10, help="objects that live at a time (default %(default)s)")
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
            await until(lambda: seen.ready.get("seed", False), 120.0, "the first model serves")
            await _soak(options, found, Lives(models, seen, options.seed), process)


async def _soak(options: argparse.Namespace, found: Found, lives: Lives, process: int) -> None:
    began = time.monotonic()

    def tell(name: str, one: Reading) -> Reading:
        found["readings"].append(record_of(name, one))
        found.update(seconds=round(time.monotonic() - began), load=round(os.getloadavg()[0], 1), lives=lives.ended,
                     changes=lives.changed)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(found, indent=1) + "\n")
        return one

    async def phase(events: int) -> Reading:
        """Until the operator has seen so many ``events``; what it holds when all has gone."""
        latest = await read(process)

        async def follow() -> None:
            nonlocal latest
            for number in itertools.count(1):
                await asyncio.sleep(PERIOD)
                latest = await read(process)
                if number % EACH == 0:
                    tell("busy", latest)

        following = asyncio.create_task(follow())
        try:
            await lives.until(lambda: latest.events >= events, options.at_once)
        finally:
            following.cancel()
        await asyncio.sleep(REST)
        return await at_rest(process)

    before = tell("at rest", await phase(options.events // WARM))
    after = await phase(options.events)
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

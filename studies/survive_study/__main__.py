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
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.bare import running
from enginewright.clients.credentials import load_configuration
from enginewright.clients.kube import KubeClient
from enginewright_builder.system import available_cpus, cpu_name, memory_bytes
from support.apiserver import install_crd
from support.control_plane import operator_credentials
from survive_study import shrink
from survive_study.lane import BOUND, Told, lane
from survive_study.operators import Zygote, zygote
from survive_study.steps import Step, from_json, sequence

OUTPUT = Path(__file__).resolve().parents[2] / "build" / "survive.json"
REST_EVERY = 6


class Campaign:
    """``minutes`` is how long new sequences are begun."""

    def __init__(self, kube: KubeClient, source: Zygote, operators: Path, folder: Path,
                 options: argparse.Namespace) -> None:
        self._kube, self._source, self._operators, self._folder = kube, source, operators, folder
        self._options = options
        self._number = 0
        self._began = time.monotonic()
        self.found: dict[int, Told] = {}
        self.shrunk: dict[int, list[Step]] = {}

    async def play(self, seed: int, steps: Sequence[Step]) -> Told:
        self._number += 1
        name = f"survive-{self._number}"
        async with lane(self._kube, self._source, self._operators, self._folder / name, name, seed,
                        bound=self._options.bound) as one:
            return await one.run(steps, rest_every=REST_EVERY)

    async def run(self) -> None:
        until = time.monotonic() + self._options.minutes * 60
        seeds = list(range(self._options.seed, self._options.seed + self._options.sequences))

        async def work() -> None:
            while seeds and time.monotonic() < until:
                await self._one(seeds.pop(0))

        await asyncio.gather(*(work() for _ in range(self._options.lanes)))

    def write(self) -> dict[str, Any]:
        """After each sequence, so that what was done is known where the next does not end."""
        told = {**described(self._options), **report(self.found, time.monotonic() - self._began, self._options.bound)}
        self._options.output.write_text(json.dumps(told, indent=1) + "\n")
        return told

    async def _one(self, seed: int) -> None:
        steps = sequence(seed, self._options.steps)
        told = await self.play(seed, steps)
        self.found[seed] = told
        await asyncio.to_thread(self.write)
        print(f"seed {seed}: {told.steps} steps, {told.kills} kills, {told.faults} faults, {told.rests} rests, slowest "
              f"{told.slowest_rest:.1f} s, {told.deaths} deaths, {len(told.alarms)} alarms", flush=True)
        for alarm in told.alarms:
            print(f"  {alarm}", flush=True)
        print(f"  done {dict(told.done)}; refused {len(told.refused)}", flush=True)
        for line in sorted(set(told.refused))[:self._options.refused]:
            print(f"    {line[:300]}")
        if told.alarms and self._options.shrink:
            async def fails(some: Sequence[Step]) -> bool:
                return bool((await self.play(seed, some)).alarms)

            self.shrunk[seed] = await shrink.shrunk(steps[:told.steps], fails, self._options.shrink)
            print(f"  shrunk to {json.dumps([step.as_json() for step in self.shrunk[seed]])}", flush=True)


def described(options: argparse.Namespace) -> dict[str, Any]:
    given = f"--seed {options.seed} --sequences {options.sequences} --steps {options.steps} --lanes {options.lanes}"
    return {
        "command": f'make survive-study ARGS="{given} --minutes {options.minutes:g} --bound {options.bound:g}"',
        "recorded": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "hardware": {"device": cpu_name(), "cores": available_cpus(), "memory_gib": round(memory_bytes() / 2**30),
                     "load_at_the_end": os.getloadavg()[0]},
    }


def report(found: dict[int, Told], seconds: float, bound: float) -> dict[str, Any]:
    told = list(found.values())
    fields = {name for one in told for name in one.fields}
    return {
        "steps": sum(one.steps for one in told), "kills": sum(one.kills for one in told),
        "ended_by_themselves": sum(one.deaths for one in told), "faults": sum(one.faults for one in told),
        "rests": sum(one.rests for one in told),
        "slowest_rest_s": round(max((one.slowest_rest for one in told), default=0), 1), "bound_s": bound,
        "fields_changed": len(fields), "alarms": sum(len(one.alarms) for one in told), "seconds": round(seconds),
        "done": dict(sorted(sum((one.done for one in told), Counter()).items())), "seeds": sorted(found),
    }


async def study(kubeconfig: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    await install_crd(kubeconfig)
    operators = await operator_credentials(kubeconfig)
    async with KubeClient(await load_configuration(str(kubeconfig))) as kube, zygote() as source:
        campaign = Campaign(kube, source, operators, folder, options)
        if options.replay:
            campaign.found[options.seed] = await campaign.play(options.seed, list(map(from_json, options.replay)))
            print(campaign.found[options.seed])
        else:
            await campaign.run()
        return await asyncio.to_thread(campaign.write)


def main() -> int:
    parser = argparse.ArgumentParser(prog="survive_study", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sequences", type=int, default=20, help="seeds from --seed on (default %(default)s)")
    parser.add_argument("--steps", type=int, default=500, help="of a sequence (default %(default)s)")
    parser.add_argument("--lanes", type=int, default=2, help="sequences at once (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=120, help="begin no sequence later (default %(default)s)")
    parser.add_argument("--bound", type=float, default=BOUND, metavar="SECONDS",
                        help="in which everything comes to rest (default %(default)s)")
    parser.add_argument("--shrink", type=int, default=12, metavar="TRIES",
                        help="how often a sequence that fails is played again to shorten it (default %(default)s)")
    parser.add_argument("--refused", type=int, default=0, help="show so many of what the apiserver refused")
    parser.add_argument("--replay", type=json.loads, metavar="STEPS", help="those that a failure was shrunk to")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    # Stopped by a time limit or in the background, it stops what it started, as after Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    for name in ("aiohttp.server", "asyncio"):  # an operator that is killed hangs up
        logging.getLogger(name).setLevel(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="survive-"))
    print(f"logs are in {folder}", flush=True)
    with running(folder / "control-plane", controllers=True) as kubeconfig:
        told = asyncio.run(study(kubeconfig, folder, options))
    print(json.dumps(told))
    return 1 if told["alarms"] else 0


if __name__ == "__main__":
    sys.exit(main())

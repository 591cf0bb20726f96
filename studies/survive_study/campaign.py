"""Sequences on one control plane, several at once, each in a namespace of its own."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from enginewright.clients.credentials import load_configuration
from enginewright.clients.kube import KubeClient
from support.apiserver import install_crd
from support.control_plane import operator_credentials
from survive_study import record, shrink
from survive_study.lane import lane
from survive_study.operators import Zygote, zygote
from survive_study.record import Told
from survive_study.steps import Step, from_json, sequence

REST_EVERY = 6


class Campaign:
    """After ``options.minutes`` no sequence is begun, and those that run end with their next rest. ``write`` is called
    after each sequence."""

    def __init__(self, kube: KubeClient, source: Zygote, operators: Path, folder: Path,
                 options: argparse.Namespace, write: Callable[[], object]) -> None:
        self._kube, self._source, self._operators, self._folder = kube, source, operators, folder
        self._options, self._write = options, write
        self._number = 0
        self._until = time.monotonic() + options.minutes * 60

    async def play(self, seed: int, steps: Sequence[Step], *, until: float) -> Told:
        self._number += 1
        name = f"survive-{self._number}"
        async with lane(self._kube, self._source, self._operators, self._folder / name, name, seed,
                        bound=self._options.bound) as one:
            return await one.run(steps, rest_every=REST_EVERY, until=until)

    async def run(self) -> None:
        seeds = list(range(self._options.seed, self._options.seed + self._options.sequences))

        async def work() -> None:
            while seeds and time.monotonic() < self._until:
                await self._one(seeds.pop(0))

        await asyncio.gather(*(work() for _ in range(self._options.lanes)))

    async def replay(self) -> None:
        told = await self.play(self._options.seed, list(map(from_json, self._options.replay)), until=self._until)
        self._say(told)

    async def _one(self, seed: int) -> None:
        """Where the study itself fails, its record says so, and no other sequence ends."""
        steps = sequence(seed, self._options.steps)
        try:
            told = await self.play(seed, steps, until=self._until)
        except Exception:  # of whatever kind
            told = Told(seed, broke=traceback.format_exc())
        self._say(told)
        if told.alarms and self._options.shrink:
            async def fails(some: Sequence[Step]) -> bool:
                return bool((await self.play(seed, some, until=float("inf"))).alarms)

            cut = await shrink.shrunk(steps[:told.steps], fails, self._options.shrink)
            print(f"  shrunk to {json.dumps([step.as_json() for step in cut])}", flush=True)

    def _say(self, told: Told) -> None:
        record.keep(self._folder, told)
        self._write()
        print(f"seed {told.seed}: {told.steps} steps, {told.kills} kills, {told.faults} faults, {told.rests} rests, "
              f"slowest {told.slowest_rest:.1f} s, {told.deaths} deaths, {len(told.alarms)} alarms", flush=True)
        for line in (*told.alarms, *told.broke.splitlines()):
            print(f"  {line}", flush=True)
        print(f"  done {dict(told.done)}; refused {len(told.refused)}", flush=True)
        for line in sorted(set(told.refused))[:self._options.refused]:
            print(f"    {line[:300]}")


async def campaign(kubeconfig: Path, folder: Path, options: argparse.Namespace, write: Callable[[], object]) -> None:
    await install_crd(kubeconfig)
    operators = await operator_credentials(kubeconfig)
    async with KubeClient(await load_configuration(str(kubeconfig))) as kube, zygote() as source:
        one = Campaign(kube, source, operators, folder, options, write)
        await (one.replay() if options.replay else one.run())

"""What it costs to read the queues of all replicas, and how soon a queue that breaches its target is answered."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp

from attack.eyes import Scales, watching_scales
from enginewright.clients.kube import KubeClient
from scale_study.meters import Meters, Reading
from scale_study.pages import pages
from scale_study.settled import at_once
from support.apiserver import Models

TARGET: Final = 4
SCALING: Final = {"minReplicas": 1, "maxReplicas": 3, "algorithm": "queue", "targetQueueDepth": TARGET}
SECONDS: Final = 60.0
# So many objects breach at one moment, so many times; how long an answer may take before it counts as missed.
AT_ONCE: Final = 50
TIMES: Final = 4
PATIENCE: Final = 30.0
SETTLE: Final = 10.0
READ: Final = 'enginewright_scrapes_total{result="ok",source="direct"}'


async def scraped(kubeconfig: Path, kube: KubeClient, objects: Sequence[tuple[str, str]],
                  addresses: Mapping[str, str], meters: Meters, patience: float) -> dict[str, Any]:
    """``objects`` (namespace, name), each with one replica, are made to scale by their queues. ``addresses`` maps pods
    to where their metrics are read."""
    async with pages() as wait, watching_scales(kubeconfig) as scales:
        await at_once([functools.partial(Models(kube, namespace).patch, {"spec": {"autoscaling": SCALING}}, name)
                       for namespace, name in objects])
        deadline = time.monotonic() + patience
        while await _figure(meters.port, "enginewright_scrapers") < len(objects):
            if time.monotonic() > deadline:
                raise RuntimeError(f"after {patience:g} s not every replica is read")
            await asyncio.sleep(1.0)
        await asyncio.sleep(SETTLE)
        before, read = await meters.read(), await _figure(meters.port, READ)
        await asyncio.sleep(SECONDS)
        used, read = (await meters.read()).since(before), await _figure(meters.port, READ) - read
        left = [name for _, name in objects]
        random.Random(7).shuffle(left)  # noqa: S311
        first, rest = left[:TIMES * AT_ONCE], left[TIMES * AT_ONCE:]
        told = await _breaches(first, addresses, wait, scales, meters)
        alone = await _breaches(rest, addresses, wait, scales, meters, alone=True) if rest else {}
    return {"replicas": len(objects), "period_s": round(len(objects) * SECONDS / read, 2),
            "cpu_share": round(used.cpu["operator"] / SECONDS, 3), "writes": used.writes, **told, "alone": alone}


async def _breaches(names: Sequence[str], addresses: Mapping[str, str], wait: Any, scales: Scales, meters: Meters, *,
                    alone: bool = False) -> dict[str, Any]:
    """Seconds from each breach to the write of a second replica, and what was used of each moment until the last of
    these writes. ``alone``: the controllers stand still meanwhile, so that what follows from a write, which other
    machines do in a cluster, takes nothing from those that wait."""
    waits, used, left = list[float](), list[Reading](), list(names)
    for _ in range(min(TIMES, math.ceil(len(left) / AT_ONCE))):
        chosen, left = left[:AT_ONCE], left[AT_ONCE:]
        places = {name: address for name in chosen for pod, address in addresses.items()
                  if pod.startswith(f"{name}-") and pod.count("-") == name.count("-") + 3}
        with meters.stopped("kube-controller-manager") if alone else contextlib.nullcontext():
            before, began = await meters.read(), time.monotonic()
            wait(dict.fromkeys(places.values(), 2 * TARGET))
            while time.monotonic() < began + PATIENCE and any((name, 2) not in scales.first for name in chosen):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            used.append((await meters.read()).since(before))
        waits += [scales.first.get((name, 2), math.inf) - began for name in chosen]
        wait(dict.fromkeys(places.values(), 0))
        await asyncio.sleep(SETTLE)
    return {**figures(waits), **costs(used, len(waits))}


def figures(waits: Sequence[float]) -> dict[str, Any]:
    told = sorted(wait for wait in waits if wait != math.inf)
    at = {f"{name}_s": round(told[min(len(told) - 1, int(share * len(told)))], 2) if told else None
          for name, share in (("p50", 0.5), ("p99", 0.99))}
    return {"breaches": len(waits), "at_once": AT_ONCE, "without_answer": len(waits) - len(told), **at}


def costs(used: Sequence[Reading], breaches: int) -> dict[str, Any]:
    """For each of ``breaches``: milliseconds of CPU by program, and calls to the apiserver by verb and kind."""
    programs = sorted(used[0].cpu) if used else []
    calls = sum((one.calls for one in used), Counter[tuple[str, str]]())
    return {"cpu_ms_a_breach": {name: round(1000 * sum(one.cpu[name] for one in used) / breaches, 1)
                                for name in programs},
            "calls_a_breach": {" ".join(call): round(count / breaches, 2) for call, count in calls.most_common()}}


async def _figure(port: int, series: str) -> float:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"{series} ")), 0.0)

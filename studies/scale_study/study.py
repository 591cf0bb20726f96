"""One size: the objects are made at once, and every one is followed until its model serves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from attack.rows import Row, watching
from enginewright.clients.kube import KubeClient
from scale_study.actor import Actor
from scale_study.meters import Meters, rss_mb
from scale_study.record import Tell
from scale_study.scraped import scraped
from scale_study.settled import at_once, until
from support.apiserver import NAMESPACE, Models, manifest, model
from support.operators import operating

PORT: Final = 8080
# The chart's default.
RESYNC: Final = 300.0
# A resync spreads its passes over a quarter of its period, and the comparison of memory comes 30 s after it.
SPREAD: Final = 80.0
READY: Final = ('{.metadata.namespace} {.metadata.name} {.status.conditions[?(@.type=="Ready")].status} '
                '{.status.source.digest}')


@dataclass
class Seen:
    """When, on the monotonic clock, each object was first seen as ready and each Deployment was first seen at all."""

    ready: dict[tuple[str, str], float] = field(default_factory=dict)
    deployments: dict[tuple[str, str], float] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)

    def take_model(self, row: Row) -> None:
        namespace, name, ready, digest = row
        if ready == "True":
            self.ready.setdefault((namespace, name), time.monotonic())
            self.digests[namespace] = digest

    def take_deployment(self, row: Row) -> None:
        self.deployments.setdefault((row[0], row[1]), time.monotonic())


async def study(kubeconfig: Path, operators: Path, records: Path, folder: Path, kube: KubeClient, n: int,
                spaces: int, patience: float, tell: Tell, *, reads: bool = True) -> None:
    """``n`` objects in ``spaces`` namespaces, in each of which the engine is on record. ``tell`` gets what is found as
    soon as it is; with ``reads`` the queues of all are read at last."""
    names = [f"scale-{number}" for number in range(spaces)]
    for name in names:
        await kube._json("create", NAMESPACE, NAMESPACE.path(None), body=manifest("v1", "Namespace", name))
        await Models(kube, name).claims()
    seen = Seen()
    arguments = (f"--kubeconfig={operators}", f"--metrics-port={PORT}", f"--resync={RESYNC:g}",
                 f"--leader-lease={names[0]}/enginewright", "--log-level=WARNING")
    actor = Actor(kube, folder)
    async with (
        actor.running(kubeconfig),
        watching(kubeconfig, "optimisedmodels", READY, seen.take_model),
        watching(kubeconfig, "deployments", "{.metadata.namespace} {.metadata.name}", seen.take_deployment),
        operating(arguments, folder / "operator.log") as process,
    ):
        for name in names:
            await Models(kube, name).create(model("seed"))
        await until(lambda: len(seen.ready) == spaces, 120.0 + spaces, "the first model of each namespace serves")
        meters = Meters(records, process, PORT)
        tell(await _make(kube, names, n, seen, meters, patience))
        tell({**await _at_rest(meters), "operator_rss_mb": round(rss_mb(process))})
        if reads:
            tell({"scraped": await scraped(kubeconfig, kube, wanted(names, n), actor.addresses, meters, patience)})


def wanted(names: Sequence[str], n: int) -> list[tuple[str, str]]:
    """Namespaces and names of the objects."""
    return [(names[number % len(names)], f"m-{number}") for number in range(n)]


async def _make(kube: KubeClient, names: Sequence[str], n: int, seen: Seen, meters: Meters, patience: float
                ) -> dict[str, Any]:
    before, began = await meters.read(), time.monotonic()
    created: dict[tuple[str, str], float] = {}

    async def make(namespace: str, name: str) -> None:
        source = {"uri": "pvc://models/minilm", "digest": seen.digests[namespace]}
        await Models(kube, namespace).create(model(name, source=source))
        created[namespace, name] = time.monotonic()

    objects = wanted(names, n)
    await at_once([lambda one=one: make(*one) for one in objects])  # type: ignore[misc]
    last_created = max(created.values())
    await until(lambda: len(seen.deployments) >= n + len(names), patience, "every object has a Deployment")
    last_deployment = max(seen.deployments.values())
    await until(lambda: all(one in seen.ready for one in objects), patience, "every object is Ready")
    used = (await meters.read()).since(before)
    waits = sorted(seen.ready[one] - created[one] for one in objects)
    return {
        "created_per_s": round(n / (last_created - began), 1),
        "deployments_per_s": round(n / (last_deployment - began), 1),
        "ready_s": round(max(seen.ready[one] for one in objects) - began, 1),
        "status_p99_s": round(waits[int(0.99 * (len(waits) - 1))], 1),
        "apiserver_cpu_s": round(used.cpu["kube-apiserver"], 1), "etcd_cpu_s": round(used.cpu["etcd"], 1),
        "operator_cpu_s": round(used.cpu["operator"], 1), "requests": used.requests,
        "requests_by_kind": used.by_kind, "looks": dict(sorted(used.looks.items())),
    }


async def _at_rest(meters: Meters) -> dict[str, Any]:
    """Over one whole period, in which there is one resync and one comparison of what is remembered: all reads are
    theirs. The one before, which finds what has just been made, is over. The writes are renewals of the Lease."""
    await _next_resync()
    await asyncio.sleep(SPREAD)
    before = await meters.read()
    await asyncio.sleep(RESYNC)
    used = (await meters.read()).since(before)
    return {
        "idle": {"seconds": RESYNC, "writes": used.writes, "requests_per_s": round(used.calls.total() / RESYNC, 2),
                 "cpu_share": round(used.cpu["operator"] / RESYNC, 3)},
        "resync": {"requests": used.calls.total() - used.writes,
                   "apiserver_cpu_s": round(used.cpu["kube-apiserver"], 1)},
    }


async def _next_resync() -> None:
    before = await _resyncs()
    deadline = time.monotonic() + 2 * RESYNC
    while await _resyncs() <= before:
        if time.monotonic() > deadline:
            raise RuntimeError("the operator does not resync")
        await asyncio.sleep(1.0)


async def _resyncs() -> float:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{PORT}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith('enginewright_resyncs_total{result="ok"}'))

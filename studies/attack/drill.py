"""The drill: sets the stage, breaches honest models one after the other in each act, and measures what comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from attack.cast import Cast, Model
from attack.eyes import Scales, cpu_seconds, forget_peak, peak_mib, watching_lease, watching_scales, work
from attack.replicas import Honest, serving
from enginewright.clients.errors import ClientError
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import OPTIMISED_MODEL, POD
from enginewright.core import labels
from support.apiserver import Models, model
from support.fake_kubelet import BEAT, Act, FakeKubelet, beat
from support.operators import operating

TARGET: Final = 4
LEASE_NAME: Final = "enginewright"
# In the network of the drill nothing else listens there.
METRICS_PORT: Final = 8080
# How long a breach may stay without an answer before it counts as missed.
PATIENCE: Final = 20.0
SETTLE: Final = 10.0


@dataclass(frozen=True)
class ActOfDrill:
    """``page`` bytes is what hostile replicas answer, 0: they behave."""

    name: str
    page: int


ACTS: Final = (
    ActOfDrill("no attack", 0),
    ActOfDrill("pages of 4 MiB", 4 << 20),
    ActOfDrill("pages of 250 KiB, all of it wanted lines", 250 << 10),
)


@dataclass
class SlowKubelet(FakeKubelet):
    """Gives pods the addresses of the cast, looks less often, so that its looks do not load the apiserver, and tends
    many pods at once: the controllers take a node for lost that sends no heartbeat for 40 s."""

    cast: dict[str, Model] = field(default_factory=dict)
    given: Counter[str] = field(default_factory=Counter)
    pause: float = 1.0

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for do, pause in ((lambda: beat(self.kube, self.node), lambda: BEAT), (self._tend_all, lambda: self.pause)):
                group.create_task(self._again_and_again(do, pause))

    async def _again_and_again(self, do: Callable[[], Awaitable[None]], pause: Callable[[], float]) -> None:
        while True:
            try:
                await do()
            except ClientError as error:
                print(f"the kubelet looks again: {error}", flush=True)
            await asyncio.sleep(pause())

    async def _tend_all(self) -> None:
        few = asyncio.Semaphore(16)

        async def tend(pod: Object) -> None:
            async with few:
                with contextlib.suppress(ClientError):  # the next look is a second away
                    await self._tend(pod)

        await asyncio.gather(*(tend(pod) for pod in await self.kube.list_all(POD, self.namespace)))

    def _serving(self, pod: Object, container: str, act: Act) -> Object:
        name, owner = pod["metadata"]["name"], pod["metadata"]["labels"][labels.MODEL]
        if name not in self.addresses:
            self.addresses[name] = self.cast[owner].address(self.given[owner])
            self.given[owner] += 1
        return super()._serving(pod, container, act)


@contextlib.asynccontextmanager
async def hostile(cast: Cast) -> AsyncIterator[Callable[[int], Any]]:
    """Gives what sets the size of their pages and returns what they have served until then."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "attack.replicas", *map(str, asdict(cast).values()), env=dict(os.environ),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin
    assert process.stdout
    given, told = process.stdin, process.stdout

    async def set_page(size: int) -> dict[str, int]:
        given.write(b"%d\n" % size)
        served: dict[str, int] = json.loads(await told.readline())
        return served

    try:
        assert (await told.readline()).strip() == b"ready", "hostile replicas did not start"
        yield set_page
    finally:
        process.kill()
        await process.wait()


async def set_up(models: Models, cast: Cast, patience: float) -> None:
    """All objects, until each of them serves."""
    for one in cast.models:
        scaling = {"minReplicas": one.replicas, "maxReplicas": one.replicas + 4, "algorithm": "queue",
                   "targetQueueDepth": TARGET}
        await models.create(model(one.name, autoscaling=scaling, rollout={"analysis": {"seconds": 0}}))
    deadline = time.monotonic() + patience
    while waiting := await _not_ready(models):
        if time.monotonic() > deadline:
            raise RuntimeError(f"not ready after {patience:g} s: {waiting[:5]} and {max(0, len(waiting) - 5)} more")
        await asyncio.sleep(3.0)


async def _not_ready(models: Models) -> list[str]:
    found = await models.kube.list_all(OPTIMISED_MODEL, models.namespace)
    return [one["metadata"]["name"] for one in found
            if not any((entry["type"], entry["status"]) == ("Ready", "True")
                       for entry in (one.get("status") or {}).get("conditions", ()))]


async def breaches(cast: Cast, honest: Honest, scales: Scales, replicas: int, seconds: float, seed: int) -> list[float]:
    """Seconds from each breach to the write of ``replicas``, infinite where none came. The moments are random."""
    chance = random.Random(seed)  # noqa: S311
    chosen = [one for one in cast.models if one.kind == "honest"]
    chance.shuffle(chosen)
    moments = sorted(chance.uniform(0, seconds) for _ in chosen)
    began, breached = time.monotonic(), {}
    for one, moment in zip(chosen, moments, strict=True):
        await asyncio.sleep(max(0.0, began + moment - time.monotonic()))
        breached[one.name] = time.monotonic()
        honest.queued[one.address(0)] = TARGET * replicas
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends and any((name, replicas) not in scales.first for name in breached):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    return [scales.first.get((name, replicas), float("inf")) - at for name, at in breached.items()]


def figures(waits: Sequence[float]) -> dict[str, Any]:
    told = sorted(wait for wait in waits if wait != float("inf"))
    at = {name: round(told[min(len(told) - 1, int(share * len(told)))], 3) if told else None
          for name, share in (("p50", 0.5), ("p95", 0.95), ("max", 1.0))}
    return {"breaches": len(waits), "without_answer": len(waits) - len(told), "within_2_s": sum(t <= 2 for t in told),
            "seconds_to_scale": at}


async def drill(kubeconfig: Path, operators: Path, kube: KubeClient, namespace: str, folder: Path, cast: Cast,
                seconds: float) -> dict[str, Any]:
    models, honest = Models(kube, namespace), Honest()
    await models.claims()
    arguments = (f"--kubeconfig={operators}", f"--namespace={namespace}", f"--metrics-port={METRICS_PORT}",
                 f"--leader-lease={namespace}/{LEASE_NAME}")
    kubelet = SlowKubelet(kube, namespace, folder, cast={one.name: one for one in cast.models})
    async with (
        serving(cast.addresses("honest"), honest.answer), hostile(cast) as set_page, kubelet.running(),
        operating(arguments, folder / "operator.log") as process,
        watching_scales(kubeconfig) as scales,
    ):
        began = time.monotonic()
        await set_up(models, cast, patience=600.0)
        kubelet.pause = 5.0
        print(f"{len(cast.models)} models serve after {time.monotonic() - began:.0f} s", flush=True)
        acts = []
        for number, act in enumerate(ACTS):
            before = await set_page(act.page)
            await asyncio.sleep(SETTLE)
            forget_peak(process)
            started, used, done = time.monotonic(), cpu_seconds(process), await work(METRICS_PORT)
            async with watching_lease(kube, namespace, LEASE_NAME) as lease:
                waits = await breaches(cast, honest, scales, number + 2, seconds, seed=number)
                await asyncio.sleep(max(0.0, started + seconds - time.monotonic()))
            lasted = time.monotonic() - started
            served = {key: value - before.get(key, 0) for key, value in (await set_page(act.page)).items()}
            acts.append({
                "act": act.name, "seconds": round(lasted, 1), **figures(waits), "operator_peak_mib": peak_mib(process),
                "operator_cpu_share": round((cpu_seconds(process) - used) / lasted, 3),
                "lease": {"holders": len(lease.holders), "transitions": lease.transitions, "looks": lease.looks,
                          "longest_since_renewal_seconds": round(lease.lag, 2)},
                "operator": (await work(METRICS_PORT)).since(done), "hostile": served,
                "load": os.getloadavg()[0],
            })
            print(json.dumps(acts[-1]), flush=True)
        return {"acts": acts}

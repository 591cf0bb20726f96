"""Two operators, of which one is paused with SIGSTOP while its writes are on their way, and woken when the other has
decided otherwise: nothing that the other decided is undone.

Both are processes that reach a real apiserver through a proxy, which holds writes up and tells which arrived.
``make two-operators-study`` pauses fifty times, for 60 s each, and prints the figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from aiohttp import web

from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import DEPLOYMENT, SERVICE
from enginewright.core import labels
from support.apiserver import NAMESPACE, Models, eventually, manifest, model
from support.fake_kubelet import FakeKubelet, Script
from support.faulty import Fault, FaultyProxy
from support.operators import OperatorProcess

T = TypeVar("T")
PAUSES: Final = int(os.environ.get("ENGINEWRIGHT_PAUSES", "1"))
# In namespaces beside each other.
PAIRS: Final = int(os.environ.get("ENGINEWRIGHT_PAIRS", "1"))
# A pause lasts this long at least, and until the other operator has decided.
SECONDS: Final = float(os.environ.get("ENGINEWRIGHT_PAUSE_SECONDS", "0"))
# Many pairs share the machine: who waits looks seldom.
PATIENCE: Final = 900.0
PERIOD: Final = 0.5
OLD, NEW = (f"sha256:{digit * 64}" for digit in "cd")
# Which write of the paused operator is late, by model.
LATE: Final[dict[str, Callable[[web.Request], bool]]] = {
    "routed": lambda request: request.method == "PATCH" and "/services/" in request.path,
    "scaled": lambda request: request.path.endswith("/scale"),
    "removed": lambda request: request.method == "DELETE" and "/deployments/" in request.path,
}


def late(request: web.Request) -> Fault:
    return "hold" if any(f"/{name}" in request.path and of(request) for name, of in LATE.items()) else "pass"


@dataclass
class Contestant:
    """An operator behind its own proxy. ``said`` reads what it has logged since it was last started."""

    proxy: FaultyProxy
    process: OperatorProcess
    log: Path

    def said(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    @property
    def leads(self) -> bool:
        return any(line["event"] == "leads" for line in self.said())

    @property
    def stands_by(self) -> bool:
        return any(line["event"] == "stands by" for line in self.said())

    async def start(self) -> None:
        self.log.write_text("")
        self.proxy.choose = lambda _: "pass"
        # What is still held belongs to the process before.
        self.proxy.held, self.proxy.late, self.proxy.released = [], [], asyncio.Event()
        await self.process.start()

        async def stands_by() -> bool:
            return self.stands_by

        await eventually(stands_by, PATIENCE, PERIOD)


class EndedError(Exception):
    """The operator that was to be paused has lost its Lease before, as it may on a busy machine: no pause to count."""


@dataclass
class Pair:
    """Two operators of one namespace, and a user. An operator that ends by itself is started again, as by a kubelet."""

    models: Models
    script: Script
    contestants: list[Contestant]
    paused: Contestant | None = None

    async def until(self, probe: Callable[[], Awaitable[T]]) -> T:
        async def alive_and_so() -> T:
            for one in self.contestants:
                if one.process.gone and one is not self.paused:
                    assert any("is lost" in line for line in one.log.read_text().splitlines()), one.log.read_text()
                    await one.start()
            return await probe()

        return await eventually(alive_and_so, PATIENCE, PERIOD)

    async def sure(self, name: str, revision: str = "", replicas: int = 1) -> str:
        """Waits until one revision alone serves the newest spec, of that name if one is given; gives its name."""

        async def serves() -> str:
            ready = await self.models.condition("Ready", name)
            assert ready.get("status") == "True", (name, ready)
            stable = str((await self.models.get(name))["status"]["rollout"]["stable"])
            service = await self.models.kube.get(SERVICE, self.models.namespace, name)
            assert service["spec"]["selector"].get(labels.REVISION) == stable == (revision or stable), (name, stable)
            assert await self._deployments(name) == {f"{name}-{stable}": replicas}, (name, stable)
            return stable

        return await self.until(serves)

    async def _deployments(self, name: str) -> dict[str, int]:
        found = await self.models.kube.list_all(DEPLOYMENT, self.models.namespace, labels=f"{labels.MODEL}={name}")
        return {raw["metadata"]["name"]: raw["spec"]["replicas"] for raw in found}

    async def decided(self) -> dict[str, object]:
        """What routes traffic, and each of its writes: a Service's version and a Deployment's generation tell of one
        even where it wrote what was there."""
        kube, namespace = self.models.kube, self.models.namespace
        services = {raw["metadata"]["name"]: (raw["metadata"]["resourceVersion"], raw["spec"]["selector"])
                    for raw in await kube.list_all(SERVICE, namespace)}
        deployments = {raw["metadata"]["name"]: (raw["metadata"]["uid"], raw["metadata"]["generation"])
                       for raw in await kube.list_all(DEPLOYMENT, namespace)}
        return {**services, **deployments}

    async def wish(self, name: str, digest: str, replicas: int = 1) -> None:
        self.script.models[name].digest = digest
        spec = {"replicas": replicas, "source": {"uri": f"pvc://models/{digest[-4:]}"}}
        await self.models.patch({"spec": spec}, name)

    async def pause(self) -> Counter[str]:
        replicas = {"routed": 1, "scaled": 2, "removed": 1}
        for name, number in replicas.items():
            await self.wish(name, OLD, number)
        old = {name: await self.sure(name, replicas=number) for name, number in replicas.items()}

        async def one_leads() -> bool:
            return any(one.leads for one in self.contestants)

        await self.until(one_leads)
        first, second = sorted(self.contestants, key=lambda one: not one.leads)
        # The user wishes, and the first operator's writes are on their way.
        first.proxy.choose = late
        await self.wish("routed", NEW)
        await self.wish("scaled", OLD, replicas=3)
        await self.wish("removed", NEW)

        async def under_way() -> bool:
            if first.process.gone:
                raise EndedError
            assert all(any(f"/{name}" in held for held in first.proxy.held) for name in LATE), first.proxy.held
            return True

        await eventually(under_way, PATIENCE, PERIOD)
        first.process.send(signal.SIGSTOP)
        self.paused = first
        stopped = asyncio.get_running_loop().time()

        # The second one takes over and carries that out; then the user wishes otherwise, and it does that as well.
        async def taken_over() -> bool:
            return second.leads

        await self.until(taken_over)
        await self.sure("scaled", replicas=3)
        for name in ("routed", "removed"):
            assert await self.sure(name) != old[name]
        await self.wish("routed", OLD)
        await self.wish("scaled", OLD, replicas=2)
        await self.wish("removed", OLD)
        await self.sure("scaled", old["scaled"], replicas=2)
        for name in ("routed", "removed"):
            await self.sure(name, old[name])
        await asyncio.sleep(max(0.0, stopped + SECONDS - asyncio.get_running_loop().time()))

        # What is late arrives, and the first one wakes.
        decided, wrote = await self.decided(), len(first.proxy.wrote)
        first.proxy.choose = lambda _: "pass"
        first.proxy.released.set()

        async def arrived() -> bool:
            return len(first.proxy.late) == len(first.proxy.held)

        await eventually(arrived, PATIENCE, PERIOD)
        first.process.send(signal.SIGCONT)
        assert await first.process.ended(PATIENCE) == 1
        counted = count(first, decided, await self.decided(), first.proxy.wrote[wrote:])
        self.paused = None
        await first.start()
        return counted


def count(first: Contestant, decided: dict[str, object], found: dict[str, object], wrote: list[str]) -> Counter[str]:
    undone = [name for name in decided.keys() | found.keys() if decided.get(name) != found.get(name)]
    others = [path for path in wrote if "/leases/" not in path]
    fenced = sum("not sent: this operator" in str(line.get("error")) for line in first.said())
    assert not undone, (undone, decided, found)
    assert not others, others
    assert set(first.proxy.late) <= {404, 409}, first.proxy.late
    statuses = {f"answered {status}": times for status, times in Counter(first.proxy.late).items()}
    return Counter(pauses=1, undone=len(undone), late=len(first.proxy.late), fenced=fenced, **statuses)


@contextlib.asynccontextmanager
async def pair(kube: KubeClient, kubeconfig: Path, folder: Path) -> AsyncIterator[Pair]:
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    await kube._json("create", NAMESPACE, NAMESPACE.path(None), body=manifest("v1", "Namespace", namespace))
    models = Models(kube, namespace)
    await models.claims()
    script = Script(models={name: Script(digest=OLD) for name in LATE})
    folder = folder / namespace
    async with contextlib.AsyncExitStack() as stack:
        folder.mkdir()
        await stack.enter_async_context(FakeKubelet(kube, namespace, folder, script, period=PERIOD).running())
        contestants = []
        for number in range(2):
            mine, proxy = folder / str(number), FaultyProxy()
            mine.mkdir()
            through = await stack.enter_async_context(proxy.running(kubeconfig, mine))
            process = OperatorProcess(through, namespace, mine / "log", f"{namespace}/enginewright")
            one = Contestant(proxy, process, mine / "log")
            await one.start()
            stack.push_async_callback(process.kill)
            contestants.append(one)
        for name in LATE:
            await models.create(model(name, replicas=1, rollout={"analysis": {"seconds": 0}},
                                      source={"uri": f"pvc://models/{OLD[-4:]}"}))
        yield Pair(models, script, contestants)


async def test_a_paused_operator_undoes_nothing(kube: KubeClient, operator_kubeconfig: Path, tmp_path: Path) -> None:
    counted: Counter[str] = Counter()

    async def several(number: int) -> None:
        async with pair(kube, operator_kubeconfig, tmp_path) as two:
            left = len(range(number, PAUSES, PAIRS))
            while left:
                try:
                    counted.update(await two.pause())
                except EndedError:
                    counted.update(discarded=1)
                    continue
                left -= 1
                # Figures for people (make two-operators-study).
                print(", ".join(f"{name}: {count}" for name, count in sorted(counted.items())), flush=True)

    async with asyncio.TaskGroup() as group:
        for number in range(PAIRS):
            group.create_task(several(number))
    assert counted["pauses"] == PAUSES
    assert counted["late"] >= len(LATE) * PAUSES

"""Finding 11 on a real apiserver: the operator's process is killed after each write of a rollback in turn. What made it
refuse the revision is gone by then, so that only status can tell the next process of it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from enginewright.clients.errors import NotFoundError
from enginewright.clients.resources import DEPLOYMENT
from enginewright.core import labels
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.faulty import Fault, FaultyProxy, is_write
from support.operators import OperatorProcess

MOST_WRITES = 12


@dataclass
class Limit:
    """Lets ``left`` writes of the operator pass, then none any more; None: all. Events come after the pass, and the
    Lease is renewed whenever its time has come."""

    left: int | None = None
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, request: web.Request) -> Fault:
        beside = "/events" in request.path or request.path.endswith("/leases/enginewright")
        if self.left is None or beside or not is_write(request):
            return "pass"
        if not self.left:
            self.reached.set()
            return "hang"
        self.left -= 1
        return "pass"

    def lift(self) -> None:
        self.left = None


async def revisions(models: Models, name: str) -> set[str]:
    """Of its Deployments that stay."""
    found = await models.kube.list_all(DEPLOYMENT, models.namespace, labels=f"{labels.MODEL}={name}")
    return {raw["metadata"]["labels"][labels.REVISION] for raw in found if not raw["metadata"].get("deletionTimestamp")}


async def candidate(models: Models, kubelet: FakeKubelet, name: str, old: str) -> str:
    """The new revision, when its replica has been given to a node and is held there."""

    async def starts() -> str:
        found = await revisions(models, name) - {old}
        assert any(pod.startswith(f"{name}-{new}-") for pod in kubelet.started for new in found)
        (new,) = found
        return new

    return await eventually(starts)


async def given_up(models: Models, name: str) -> str:
    rollout = (await models.get(name))["status"].get("rollout") or {}
    return str((rollout.get("rolledBack") or {}).get("revision", ""))


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen", "Recreate"])
async def test_11_the_operator_is_killed_after_each_write_of_a_rollback(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet, tmp_path: Path, strategy: str
) -> None:
    limit = Limit()
    async with FaultyProxy(choose=limit).running(operator_kubeconfig, tmp_path) as through:
        killed = 0
        async with OperatorProcess(through, namespace, tmp_path / "operator.log").running() as operator:
            for number in range(1, MOST_WRITES):
                if not await one_rollback(operator, models, kubelet, limit, f"m{number}", number, strategy):
                    break
                killed += 1
    assert killed, "the refusal is one write, and the way back another"


async def one_rollback(
    operator: OperatorProcess, models: Models, kubelet: FakeKubelet, limit: Limit, name: str, writes: int,
    strategy: str,
) -> bool:
    """Whether the operator was killed in it: after ``writes`` writes, if there were more."""
    kubelet.script.server = "succeed"
    await models.create(model(name, rollout={"strategy": strategy, "analysis": {"seconds": 0}},
                              engine={"maxBatchSize": 8}))
    old = await models.served(name)
    kubelet.script.server = "hold-new"
    await models.patch({"spec": {"engine": {"maxBatchSize": 16}}}, name)
    new = await candidate(models, kubelet, name, old)
    limit.reached.clear()
    limit.left = writes

    async def over() -> bool:
        # Each time: the kubelet may still be about to say that the pod waits. The pod may go meanwhile.
        with contextlib.suppress(NotFoundError):
            await kubelet.crash(new)
        back = await revisions(models, name) == {old} and await given_up(models, name) == new
        return limit.reached.is_set() or back

    await eventually(over)
    killed = limit.reached.is_set()
    await operator.kill()
    limit.lift()
    acted_on = await given_up(models, name) == new or new not in await revisions(models, name)
    if acted_on:
        # Nothing shows any more why it was refused: a process that did not know would promote it.
        kubelet.script.server = "succeed"
    started = {pod for pod in kubelet.started if pod.startswith(f"{name}-{new}-")}
    await operator.start()
    if not acted_on:
        await kubelet.crash(new)
    await models.wait("RolloutComplete", "False", "RolledBack", name=name)
    kubelet.script.server = "succeed"

    async def is_back() -> bool:
        return await revisions(models, name) == {old}

    await eventually(is_back)
    await models.wait("Available", "True", "ServingPrevious", name=name)
    told = (await models.get(name))["status"]
    assert (told["rollout"]["rolledBack"]["revision"], told["rollout"]["rolledBack"]["reason"]) == (new, "Crashing")
    assert [(entry["revision"], entry["outcome"]) for entry in told["revisions"]] == [
        (new, "RolledBack"), (old, "Serving")]
    if acted_on:
        assert {pod for pod in kubelet.started if pod.startswith(f"{name}-{new}-")} == started, "it was tried again"
    await models.delete(name)
    return killed

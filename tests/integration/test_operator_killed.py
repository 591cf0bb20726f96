"""kill -9 at every stage: the next operator carries on from what it sees, and nothing is done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginewright.clients.resources import DEPLOYMENT, JOB
from enginewright.core import labels
from enginewright_builder.contract import Progress, dumps
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.operators import OperatorProcess

MINE = f"{labels.MODEL}=minilm"
# What holds the world still at a stage, and the reason of Ready that tells that it is reached.
STAGES = {
    "resolving": ("resolve", "Resolving"),
    "building": ("build", "Building"),
    "starting replicas": ("server", "Progressing"),
}


@pytest.mark.parametrize("stage", STAGES)
async def test_killed(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet, tmp_path: Path, stage: str
) -> None:
    step, reason = STAGES[stage]
    setattr(kubelet.script, step, "hold")
    kubelet.logs["build"] = dumps(Progress(step="export", fraction=0.1)) + "\n"
    operator = OperatorProcess(operator_kubeconfig, namespace, tmp_path / "operator.log")
    async with operator.running():
        await models.create(model())
        await models.wait("Ready", "False", reason)

        async def pod_runs() -> bool:
            return any(name.startswith("minilm") for name in kubelet.started)

        await eventually(pod_runs)
        assert await operator.kill() == -9
        setattr(kubelet.script, step, "succeed")
        await operator.start()
        await models.wait("Ready", "True")
    assert sorted(name.split("-")[1] for name in await models.names(JOB, MINE)) == ["build", "image", "resolve"]
    assert len(await models.names(DEPLOYMENT, MINE)) == 1
    assert (kubelet.count("resolve"), kubelet.count("build")) == (1, 1)


async def test_killed_in_a_rollout(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet, tmp_path: Path
) -> None:
    operator = OperatorProcess(operator_kubeconfig, namespace, tmp_path / "operator.log")
    async with operator.running():
        await models.create(model(rollout={"analysis": {"seconds": 0}}))
        await models.wait("Ready", "True")
        (old,) = await models.names(DEPLOYMENT, MINE)
        kubelet.script.server = "hold-new"
        kubelet.script.digest = f"sha256:{'c' * 64}"
        await models.patch({"spec": {"source": {"uri": "pvc://models/minilm-v2"}}})

        async def both_run() -> bool:
            return len(await models.names(DEPLOYMENT, MINE)) == 2

        await eventually(both_run)
        assert await operator.kill() == -9
        await operator.start()
        kubelet.script.server = "succeed"
        await models.wait("Ready", "True")
    (new,) = await models.names(DEPLOYMENT, MINE)
    assert new != old
    assert (kubelet.count("resolve"), kubelet.count("build")) == (2, 2)


async def test_killed_while_scaling_up(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet, tmp_path: Path
) -> None:
    operator = OperatorProcess(operator_kubeconfig, namespace, tmp_path / "operator.log")
    async with operator.running():
        await models.create(model())
        await models.wait("Ready", "True")
        kubelet.script.server = "hold-new"
        await models.patch({"spec": {"replicas": 3}})

        async def scaled() -> bool:
            (deployment,) = await models.kube.list_all(DEPLOYMENT, models.namespace, labels=MINE)
            return bool(deployment["spec"]["replicas"] == 3)

        await eventually(scaled)
        assert await operator.kill() == -9
        await operator.start()
        kubelet.script.server = "succeed"
        await models.wait("Ready", "True")
    assert (await models.get())["status"]["readyReplicas"] == 3
    assert kubelet.count("build") == 1


async def test_stopped_politely_it_ends_with_0(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet, tmp_path: Path
) -> None:
    operator = OperatorProcess(operator_kubeconfig, namespace, tmp_path / "operator.log")
    async with operator.running():
        await models.create(model())
        await models.wait("Ready", "True")
        assert await operator.kill(15) == 0

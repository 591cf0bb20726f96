"""Going back to a kept revision, and another scaler, on a real apiserver with real controllers."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginewright.clients.kube import MERGE, Object
from enginewright.clients.resources import CONFIG_MAP, DEPLOYMENT, POD, Resource
from enginewright.core import labels
from enginewright.plugin.wishes import promote
from enginewright.runtime import Operator
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.operators import embedded

QUICK = {"strategy": "BlueGreen", "analysis": {"seconds": 0}, "scaleDownDelaySeconds": 0}
KEPT = f"{labels.MODEL}=minilm,{labels.COMPONENT}={labels.COMPONENT_REVISION}"
MINE = f"{labels.MODEL}=minilm"
REPLICA_SET = Resource("apps/v1", "ReplicaSet", "replicasets")


async def template(models: Models) -> Object:
    (name,) = await models.names(DEPLOYMENT, MINE)
    found: Object = (await models.kube.get(DEPLOYMENT, models.namespace, name))["spec"]["template"]
    return found


async def annotate(models: Models, key: str, value: str | None) -> None:
    await models.patch({"metadata": {"annotations": {key: value}}})


async def test_back_and_forth_without_a_build(operator: Operator, models: Models, kubelet: FakeKubelet) -> None:
    await models.create(model(rollout=QUICK, engine={"maxBatchSize": 8}))
    first, pods = await models.served(), await template(models)
    await models.patch({"spec": {"engine": {"maxBatchSize": 16}, "serving": {"image": "example/server:2"}}})
    second = await models.served()
    assert second != first
    assert await models.names(CONFIG_MAP, KEPT) == sorted([f"minilm-{first}", f"minilm-{second}"])
    builds = kubelet.count("build")

    await annotate(models, labels.ROLLBACK_TO, first)
    told = await models.wait("Ready", "False", "Pinned")
    assert f"kubectl annotate om minilm {labels.ROLLBACK_TO}-" in told["message"]
    assert await template(models) == pods
    revisions = (await models.get())["status"]["revisions"]
    assert [(entry["revision"], entry["outcome"]) for entry in revisions] == [
        (first, "Serving"), (second, "Superseded")]

    await annotate(models, labels.ROLLBACK_TO, None)
    await models.wait("Ready", "True")
    assert await models.names(DEPLOYMENT, MINE) == [f"minilm-{second}"]
    assert kubelet.count("build") == builds


@pytest.mark.parametrize("held", [False, True], ids=["pods go", "pods stay"])
async def test_a_retry_that_comes_before_the_operator_sees_a_rollout_fail_is_not_used_up(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet, held: bool
) -> None:
    """The user has seen the replicas end; the operator, which is away here, counts the failure later. With ``held`` the
    garbage collector cannot remove what the failed try leaves behind, as when it has much to do."""
    async with embedded(operator_kubeconfig, namespace):
        await models.create(model(rollout=QUICK, engine={"maxBatchSize": 8}))
        first = await models.served()
        kubelet.script.server = "hold"
        await models.patch({"spec": {"engine": {"maxBatchSize": 16}}})
        second = await eventually(lambda: _rollout(models, "candidate"))
        assert isinstance(second, str)
        crashed = await models.starting(second)
    await kubelet.crash(second)
    await annotate(models, labels.RETRY, "1")
    if held:
        await _keep(models, second, ["example.com/held"])
    async with embedded(operator_kubeconfig, namespace):
        await models.others(second, crashed)
        assert not held or crashed in await models.names(POD, f"{labels.REVISION}={second}")
        kubelet.script.server = "succeed"
        await models.wait("Ready", "True")
        if held:
            await _keep(models, second, None)
        await models.gone(POD, crashed)
        assert await models.served() == second != first


async def _keep(models: Models, revision: str, finalizers: list[str] | None) -> None:
    """Of ``revision`` the ReplicaSet that is there, or is on its way out: its pods go after it."""
    found = await models.kube.list_all(REPLICA_SET, models.namespace, labels=f"{labels.REVISION}={revision}")
    for one in found:
        if finalizers or one["metadata"].get("finalizers"):
            path = REPLICA_SET.path(models.namespace, one["metadata"]["name"])
            await models.kube._json("patch", REPLICA_SET, path, body={"metadata": {"finalizers": finalizers}},
                                    content_type=MERGE)


async def _rollout(models: Models, field: str) -> object:
    found = (await models.get())["status"]["rollout"].get(field)
    assert found, f"no {field}"
    return found


async def test_recreate_goes_back_by_itself(operator: Operator, models: Models, kubelet: FakeKubelet) -> None:
    await models.create(model(rollout={"strategy": "Recreate"}, engine={"maxBatchSize": 8}))
    first, pods = await models.served(), await template(models)
    kubelet.script.server = "crash"
    await models.patch({"spec": {"engine": {"maxBatchSize": 16}}})
    await models.wait("RolloutComplete", "False", "RolledBack")
    kubelet.script.server = "succeed"
    await models.wait("Available", "True", "ServingPrevious")
    told = await models.condition("RolloutComplete")
    assert told["reason"] == "RolledBack"
    rollout = (await models.get())["status"]["rollout"]
    assert rollout["rolledBack"]["reason"] == "Crashing"
    assert await models.names(DEPLOYMENT, MINE) == [f"minilm-{first}"]
    assert await template(models) == pods


async def test_a_spec_that_changes_in_recreates_gap_brings_back_what_served(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    await models.create(model(rollout={"strategy": "Recreate"}, engine={"maxBatchSize": 8}))
    first, pods = await models.served(), await template(models)
    kubelet.script.server = "hold"
    await models.patch({"spec": {"engine": {"maxBatchSize": 16}}})
    await models.wait("RolloutComplete", "False", "Progressing")
    assert f"minilm-{first}" not in await models.names(DEPLOYMENT, MINE)
    kubelet.script.build = "hold"
    await models.patch({"spec": {"engine": {"maxBatchSize": 32}}})

    async def alone() -> bool:
        return await models.names(DEPLOYMENT, MINE) == [f"minilm-{first}"]

    await eventually(alone)
    kubelet.script.server = "succeed"
    await models.wait("Available", "True", "ServingPrevious")
    assert (await models.condition("RolloutComplete"))["reason"] == "WaitingForEngine"
    assert await template(models) == pods
    kubelet.script.build = "succeed"
    await models.wait("Ready", "True")
    assert await models.names(DEPLOYMENT, MINE) != [f"minilm-{first}"]


async def test_recreate_waits_to_be_approved_and_its_way_back_does_not(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    asks = {"strategy": "Recreate", "autoPromote": False}
    await models.create(model(rollout=asks, engine={"maxBatchSize": 8}))
    first, pods = await models.served(), await template(models)
    await models.patch({"spec": {"engine": {"maxBatchSize": 16}}})
    told = await models.wait("Ready", "False", "WaitingForPromotion")
    assert "kubectl optimisedmodel promote minilm" in told["message"]
    await models.wait("Available", "True", "ServingPrevious")

    before = await models.kube.get(DEPLOYMENT, models.namespace, f"minilm-{first}")
    await models.kube.delete(DEPLOYMENT, models.namespace, f"minilm-{first}")

    async def made_again() -> bool:
        assert await models.names(DEPLOYMENT, MINE) == [f"minilm-{first}"]
        found = await models.kube.get(DEPLOYMENT, models.namespace, f"minilm-{first}")
        assert found["metadata"]["uid"] != before["metadata"]["uid"]
        return bool(found["status"].get("readyReplicas") == 1)

    await eventually(made_again)
    assert await template(models) == pods
    await models.wait("Available", "True", "ServingPrevious")
    await models.wait("RolloutComplete", "False", "WaitingForPromotion")

    kubelet.script.server = "crash"
    wish, _ = promote(await models.get())
    (second,) = wish.values()
    await annotate(models, labels.PROMOTE, second)
    await models.wait("RolloutComplete", "False", "RolledBack")
    kubelet.script.server = "succeed"
    await models.wait("Available", "True", "ServingPrevious")
    assert await models.names(DEPLOYMENT, MINE) == [f"minilm-{first}"]
    assert (await models.get())["status"]["rollout"]["rolledBack"]["revision"] == second

    await annotate(models, labels.RETRY, "again")
    assert await models.served() == second


async def test_an_unknown_revision_is_said_and_changes_nothing(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    await models.create(model(rollout=QUICK))
    first = await models.served()
    await annotate(models, labels.ROLLBACK_TO, "0123abcd")
    told = await models.wait("RolloutComplete", "False", "RollbackTargetUnknown")
    assert f"kept are {first}" in told["message"]
    assert await models.names(DEPLOYMENT, MINE) == [f"minilm-{first}"]


async def test_another_scaler_is_put_back_once_and_then_said(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    await models.create(model(rollout=QUICK))
    name = f"minilm-{await models.served()}"
    path = DEPLOYMENT.path(models.namespace, name, "scale")

    async def scale(replicas: int) -> None:
        await models.kube._json("patch", DEPLOYMENT, path, query={"fieldManager": "somebody"},
                                body={"spec": {"replicas": replicas}}, content_type="application/merge-patch+json")

    async def replicas() -> int:
        return int((await models.kube.get(DEPLOYMENT, models.namespace, name))["spec"]["replicas"])

    async def put_back() -> bool:
        return await replicas() == 1

    await scale(3)
    await eventually(put_back)
    await scale(4)
    told = await models.wait("ScalingActive", "False", "ReplicasContested")
    assert "Field manager somebody" in told["message"]
    assert await replicas() == 4
    await annotate(models, labels.RETRY, "now")
    await models.wait("ScalingActive", "True", "Manual")
    await eventually(put_back)  # after status: what is decided is written before what acts on it

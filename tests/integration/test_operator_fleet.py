"""One model over two classes of devices, on a real apiserver with real controllers: only containers are acted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from enginewright.clients.errors import RefusedError
from enginewright.clients.kube import Object
from enginewright.clients.resources import (
    DEPLOYMENT,
    ENDPOINT_SLICE,
    JOB,
    OPTIMISED_MODEL,
    POD,
    SERVICE,
)
from enginewright.core import labels
from enginewright.runtime import Operator
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet, Script

H100 = "NVIDIA-H100-80GB-HBM3"
GPU = {"name": "gpu", "gpu": {"product": H100}}
CPU = {"name": "cpu", "accelerator": "cpu", "nodeSelector": {"pool": "general"}}
SLICE = {"name": "slice", "gpu": {"product": H100}, "mig": {"profile": "1g.10gb"}}
QUICK = {"analysis": {"seconds": 0}}
FLEET = f"{labels.FLEET}=minilm"


def fleet(*classes: dict[str, Any]) -> Object:
    return model(placement={"classes": list(classes)}, rollout=QUICK)


async def stable(models: Models) -> dict[str, str]:
    """Revisions by object, of all classes."""
    found = await models.kube.list_all(OPTIMISED_MODEL, models.namespace, labels=FLEET)
    return {one["metadata"]["name"]: one["status"]["rollout"]["stable"] for one in found}


async def answering(models: Models) -> set[str]:
    """Pods that the fleet's Service leads to."""
    slices = await models.kube.list_all(
        ENDPOINT_SLICE, models.namespace, labels="kubernetes.io/service-name=minilm")
    return {endpoint["targetRef"]["name"] for piece in slices for endpoint in piece.get("endpoints") or ()
            if endpoint["conditions"].get("ready") and not endpoint["conditions"].get("terminating")}


async def pod_of_build(models: Models, name: str) -> Object:
    (job,) = await models.kube.list_all(JOB, models.namespace, labels=f"{labels.MODEL}={name},{labels.STEP}=build")
    pod: Object = job["spec"]["template"]["spec"]
    return pod


async def test_an_engine_for_each_class_is_built_on_it_and_all_serve_behind_one_service(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    await models.create(fleet(GPU, CPU))
    await models.wait("Ready", "True", "Serving")
    gpu, cpu = await pod_of_build(models, "minilm-gpu"), await pod_of_build(models, "minilm-cpu")
    assert gpu["nodeSelector"]["nvidia.com/gpu.product"] == H100
    assert gpu["initContainers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert cpu["nodeSelector"] == {"pool": "general"}
    assert kubelet.count("build") == 2

    service = await models.kube.get(SERVICE, models.namespace, "minilm")
    assert service["spec"]["selector"] == labels.fleet_selector("minilm")
    pods = await models.kube.list_all(POD, models.namespace, labels=FLEET)
    assert {pod["metadata"]["labels"][labels.MODEL] for pod in pods} == {"minilm-gpu", "minilm-cpu"}
    assert await answering(models) == {pod["metadata"]["name"] for pod in pods}
    for pod in pods:
        # Clients ask every class for the same model.
        mounts = [mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]]
        assert "/models/minilm" in mounts

    status = (await models.get())["status"]
    assert {row["name"]: (row["model"], row["ready"], row["precision"]) for row in status["classes"]} == {
        "gpu": ("minilm-gpu", "True", "int8"), "cpu": ("minilm-cpu", "True", "int8")}
    assert (status["replicas"], status["readyReplicas"]) == (2, 2)
    assert "selector" not in status


async def test_deletion_takes_all_classes_along(operator: Operator, models: Models, kubelet: FakeKubelet) -> None:
    await models.create(fleet(GPU, CPU))
    await models.wait("Ready", "True")
    await models.delete()
    for name in ("minilm", "minilm-gpu", "minilm-cpu"):
        await models.gone(OPTIMISED_MODEL, name)

    async def nothing_is_left() -> bool:
        for resource in (JOB, POD, DEPLOYMENT, SERVICE):
            assert await models.names(resource, labels.MODEL) == []
        return True

    await eventually(nothing_is_left)

    async def forgotten() -> bool:
        return (len(operator.known), len(operator.signals)) == (0, 0)

    await eventually(forgotten)


async def test_a_new_revision_is_promoted_in_all_classes_or_in_none(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    await models.create(fleet(GPU, CPU))
    await models.wait("Ready", "True")
    old = await stable(models)

    kubelet.script.models["minilm-gpu"] = Script(build="hold")
    await models.patch({"spec": {"engine": {"maxBatchSize": 8}}})
    told = await models.wait("RolloutComplete", "False", "WaitingForClasses")
    assert told["message"].startswith("Proven in cpu, and promoted in all classes together: until ")
    assert (await models.get("minilm-cpu"))["status"]["rollout"]["step"] == "WaitingForPromotion"
    assert await stable(models) == old

    kubelet.script.models["minilm-gpu"] = Script(build="user-error")
    told = await models.wait("RolloutComplete", "False", "RolledBack")
    assert "(DigestMismatch): Class gpu: " in told["message"]

    async def only_the_old_ones_run() -> bool:
        found = await models.names(DEPLOYMENT, f"{labels.COMPONENT}={labels.COMPONENT_SERVER}")
        return found == sorted(f"{name}-{revision}" for name, revision in old.items())

    await eventually(only_the_old_ones_run)
    assert await stable(models) == old
    assert (await models.condition("Available"))["status"] == "True"

    # A spec that the class can do is tried in all of them.
    del kubelet.script.models["minilm-gpu"]
    await models.patch({"spec": {"engine": {"maxBatchSize": 16}}})
    await models.wait("Ready", "True", "Serving")
    new = await stable(models)
    assert all(new[name] != old[name] for name in old)


@contextlib.asynccontextmanager
async def always_answered(models: Models, least: int = 1) -> AsyncIterator[None]:
    """The Service has ``least`` replicas to send requests to at each look from beginning to end."""
    looks: list[int] = []
    done = asyncio.Event()

    async def look() -> None:
        while not done.is_set():
            looks.append(len(await answering(models)))
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as group:
        group.create_task(look())
        try:
            yield
        finally:
            done.set()
    assert looks
    assert min(looks) >= least


async def test_a_class_goes_when_its_successor_serves(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    await models.create(fleet(CPU, SLICE))
    await models.wait("Ready", "True")
    kubelet.script.models["minilm-gpu"] = Script(build="hold")
    async with always_answered(models):
        await models.patch({"spec": {"placement": {"classes": [CPU, GPU]}}})
        await models.wait("EngineBuilt", "False", "Building")
        assert await models.names(OPTIMISED_MODEL) == ["minilm", "minilm-cpu", "minilm-gpu", "minilm-slice"]
        kubelet.script.models["minilm-gpu"].build = "succeed"
        await models.gone(OPTIMISED_MODEL, "minilm-slice")
        await models.wait("Ready", "True", "Serving")
    assert await models.names(OPTIMISED_MODEL) == ["minilm", "minilm-cpu", "minilm-gpu"]

    async def the_pods_are_gone() -> bool:
        return await models.names(POD, f"{labels.MODEL}=minilm-slice,{FLEET}") == []

    await eventually(the_pods_are_gone)
    assert [row["name"] for row in (await models.get())["status"]["classes"]] == ["cpu", "gpu"]


async def test_without_a_replica_to_spare_one_class_answers_while_the_other_starts(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    rollout = {**QUICK, "maxSurge": 0}
    await models.create(model(placement={"classes": [GPU, CPU]}, rollout=rollout))
    await models.wait("Ready", "True")
    old = await stable(models)
    kubelet.script.build = "hold"  # until it was seen that it is not ready
    async with always_answered(models):
        await models.patch({"spec": {"engine": {"maxBatchSize": 8}}})
        await models.wait("Ready", "False")
        kubelet.script.build = "succeed"
        await models.wait("Ready", "True", "Serving")
    new = await stable(models)
    assert all(new[name] != old[name] for name in old)


async def test_with_recreate_a_class_stops_when_all_have_an_engine_and_the_others_answer(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    await models.create(model(placement={"classes": [GPU, CPU]}, rollout={"strategy": "Recreate"}))
    await models.wait("Ready", "True")
    old, before = await stable(models), await answering(models)
    kubelet.script.models["minilm-gpu"] = Script(build="hold")
    async with always_answered(models):
        await models.patch({"spec": {"engine": {"maxBatchSize": 8}}})
        told = await models.wait("RolloutComplete", "False", "WaitingForClasses")
        assert told["message"].startswith(
            "Strategy Recreate, one class after the other, cpu can stop and start again: ")
        assert await answering(models) == before
        kubelet.script.models["minilm-gpu"].build = "succeed"
        await models.wait("Ready", "True", "Serving")
    new = await stable(models)
    assert all(new[name] != old[name] for name in old)


async def test_what_a_class_carried_is_made_up_for_before_it_goes(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    """Three replicas answer whenever one looks, until the one that leaves stops."""
    scaled = {"maxReplicas": 4, "algorithm": "queue"}
    await models.create(model(placement={"classes": [GPU, CPU, SLICE]}, rollout=QUICK, autoscaling=scaled))
    await models.wait("Ready", "True")
    async with always_answered(models, least=3):
        await models.patch({"spec": {"placement": {"classes": [CPU, SLICE]}}})
        await models.gone(OPTIMISED_MODEL, "minilm-gpu")
        await models.wait("Ready", "True", "Serving")
    status = (await models.get())["status"]
    assert status["internal"]["handover"]["classes"] == ["gpu"]
    assert {row["name"]: row["leastReplicas"] for row in status["classes"]} == {"cpu": 2, "slice": 1}
    assert (await models.get("minilm-cpu"))["metadata"]["annotations"][labels.LEAST_REPLICAS] == "2"


async def test_an_object_of_a_class_is_the_fleets(operator: Operator, models: Models, kubelet: FakeKubelet) -> None:
    """One that is deleted comes back, and what is changed in one is changed back; so is the Service."""
    await models.create(fleet(GPU, CPU))
    await models.wait("Ready", "True")
    before = (await models.get("minilm-cpu"))["metadata"]["uid"]
    await models.delete("minilm-cpu")

    async def is_back() -> bool:
        found = await models.kube.list_all(OPTIMISED_MODEL, models.namespace, labels=FLEET)
        return any(one["metadata"]["name"] == "minilm-cpu" and one["metadata"]["uid"] != before for one in found)

    await eventually(is_back)
    await models.wait("Ready", "True")
    await models.patch({"spec": {"replicas": 3}}, "minilm-cpu")

    async def is_put_right() -> bool:
        return bool((await models.get("minilm-cpu"))["spec"]["replicas"] == 1)

    await eventually(is_put_right)
    await models.patch({"metadata": {"labels": {labels.FLEET: None}}}, "minilm-cpu")

    async def is_labelled() -> bool:
        return bool((await models.get("minilm-cpu"))["metadata"]["labels"].get(labels.FLEET) == "minilm")

    await eventually(is_labelled)
    await models.wait("Ready", "True")
    await models.kube.patch(SERVICE, models.namespace, "minilm", {"spec": {"selector": {labels.MODEL: "minilm-cpu"}}})

    async def leads_to_all() -> bool:
        service = await models.kube.get(SERVICE, models.namespace, "minilm")
        return bool(service["spec"]["selector"] == labels.fleet_selector("minilm"))

    await eventually(leads_to_all)
    await models.wait("Ready", "True")


async def test_a_fleet_that_was_deleted_without_its_classes_takes_them_up_again(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    """As ``kubectl delete --cascade=orphan`` does; no replica is exchanged."""
    await models.create(fleet(GPU, CPU))
    await models.wait("Ready", "True")
    serving, uid = await answering(models), (await models.get("minilm-cpu"))["metadata"]["uid"]
    orphan = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"}
    await models.kube._json("delete", OPTIMISED_MODEL, OPTIMISED_MODEL.path(models.namespace, "minilm"), body=orphan)
    await models.gone(OPTIMISED_MODEL, "minilm")
    assert "ownerReferences" not in (await models.get("minilm-cpu"))["metadata"]
    again = await models.create(fleet(GPU, CPU))
    await models.wait("Ready", "True", "Serving")
    cpu = (await models.get("minilm-cpu"))["metadata"]
    assert cpu["uid"] == uid
    assert [owner["uid"] for owner in cpu["ownerReferences"]] == [again["metadata"]["uid"]]
    assert await answering(models) == serving
    assert kubelet.count("build") == 2


async def test_a_name_that_somebody_has_is_left_to_them(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    theirs = await models.create(model("minilm-cpu", suspend=True))
    await models.create(fleet(GPU, CPU))
    told = await models.wait("Ready", "False", "NameTaken")
    assert "OptimisedModel minilm-cpu is there already" in told["message"]
    assert (await models.get("minilm-cpu"))["metadata"]["generation"] == theirs["metadata"]["generation"]
    await models.delete("minilm-cpu")
    await models.wait("Ready", "True", "Serving")


async def test_a_model_does_not_become_a_fleet_nor_a_fleet_a_model(models: Models) -> None:
    await models.create(model())
    with pytest.raises(RefusedError, match="create another object, and delete this one when that one serves"):
        await models.patch({"spec": {"placement": {"accelerator": None, "classes": [GPU, CPU]}}})
    await models.create({**fleet(GPU, CPU), "metadata": {"name": "fleet"}})
    with pytest.raises(RefusedError, match="cannot be added to an object or removed"):
        await models.patch({"spec": {"placement": {"classes": None}}}, "fleet")
    with pytest.raises(RefusedError, match="NAME-CLASS names an object of its own"):
        await models.create({**fleet(GPU, CPU), "metadata": {"name": "a" * 37}})

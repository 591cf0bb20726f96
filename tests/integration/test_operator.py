"""The whole way on a real apiserver with real controllers: only containers are acted."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginewright.clients.kube import MERGE, Object
from enginewright.clients.resources import (
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    ENDPOINT_SLICE,
    EVENT,
    JOB,
    LEASE,
    OPTIMISED_MODEL,
    POD,
    SERVICE,
    Resource,
)
from enginewright.core import labels
from enginewright.runtime import Operator
from enginewright_builder.contract import ErrorReport, Outcome, Progress, dumps
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.operators import embedded, nothing_is_written, settled

MINE = f"{labels.MODEL}=minilm"
ENGINES = f"{labels.ENGINE}=true"
QUICK = {"strategy": "Canary", "analysis": {"seconds": 0}}


async def test_from_a_manifest_to_replicas(operator: Operator, models: Models, kubelet: FakeKubelet) -> None:
    await models.create(model())
    ready = await models.wait("Ready", "True", "Serving")
    assert ready["observedGeneration"] == 1
    status = (await models.get())["status"]
    assert {entry["type"]: entry["status"] for entry in status["conditions"]} == dict.fromkeys(
        ("Ready", "Available", "SourceResolved", "EngineBuilt", "AccuracyVerified", "ObjectiveMet",
         "RolloutComplete", "ScalingActive"), "True",
    )
    assert (status["replicas"], status["engine"]["precision"]) == (1, "int8")
    assert status["engine"]["fingerprint"] == status["fingerprint"]
    assert status["candidates"][0]["serves"] == [1, 8, 32]
    assert status["summary"]["ships"] == "onnxruntime int8-dynamic"
    assert len(await models.names(JOB, MINE)) == 3
    assert len(await models.names(CONFIG_MAP, ENGINES)) == 1
    assert len(await models.names(DEPLOYMENT, MINE)) == 1

    async def told() -> bool:
        """Events come after the status that they are about."""
        events = await models.kube.list_all(EVENT, models.namespace)
        said = [f"{event['reason']}: {event['message']}" for event in events
                if event["involvedObject"]["kind"] == labels.KIND]
        return all(any(f"{reason}: " in one for one in said) for reason in ("Resolved", "Built", "Serving"))

    await eventually(told)


async def test_deletion_leaves_the_engine_and_nothing_else(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    """The garbage collector is real: whatever lacks an owner reference would stay."""
    await models.create(model())
    await models.wait("Ready", "True")
    about = {"namespace": models.namespace, "optimisedmodel": "minilm", "type": "Ready", "status": "True",
             "reason": "Serving"}

    def series() -> float | None:
        return operator.metrics.registry.get_sample_value("enginewright_condition", about)

    assert series() == 1
    await models.delete()
    await models.gone(OPTIMISED_MODEL, "minilm")

    async def no_series_is_left() -> bool:
        return series() is None

    await eventually(no_series_is_left)

    async def only_the_record_is_left() -> bool:
        for resource in (JOB, POD, DEPLOYMENT, SERVICE, DISRUPTION_BUDGET, ENDPOINT_SLICE):
            assert await models.names(resource, MINE) == []
        assert await models.names(CONFIG_MAP, f"{labels.MANAGED_BY}={labels.PRODUCT}") == engines
        return True

    engines = await models.names(CONFIG_MAP, ENGINES)
    assert len(engines) == 1
    await eventually(only_the_record_is_left)

    async def forgotten() -> bool:
        """The operator hears of it in its own time."""
        return (len(operator.known), len(operator.signals)) == (0, 0)

    await eventually(forgotten)


async def test_an_object_that_is_made_again_takes_the_engine_without_building(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    await models.create(model())
    await models.wait("Ready", "True")
    await models.delete()
    await models.gone(OPTIMISED_MODEL, "minilm")
    await models.create(model())
    await models.wait("Ready", "True")
    assert (await models.get())["status"]["engine"]["cacheHit"] is True
    assert kubelet.count("build") == 1


async def test_a_source_that_is_named_by_its_digest_is_not_looked_at_again(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    await models.create(model())
    await models.wait("Ready", "True")
    first = (await models.get())["status"]["source"]
    await models.create(model("second", source={"uri": "pvc://models/minilm", "digest": first["digest"]}))
    await models.wait("Ready", "True", name="second")
    assert (kubelet.count("resolve"), kubelet.count("build")) == (1, 1)
    second = (await models.get("second"))["status"]
    assert {key: value for key, value in second["source"].items() if key != "key"} == {
        key: value for key, value in first.items() if key != "key"}
    assert second["engine"]["cacheHit"] is True


async def test_what_was_left_without_an_owner_is_no_obstacle_to_an_object_of_that_name(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    """As ``kubectl delete --cascade=orphan`` leaves it. The Deployment is taken over: no replica is exchanged."""
    await models.create(model())
    await models.wait("Ready", "True")
    (before,) = await models.kube.list_all(DEPLOYMENT, models.namespace, labels=MINE)
    orphan = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"}
    await models.kube._json("delete", OPTIMISED_MODEL, OPTIMISED_MODEL.path(models.namespace, "minilm"), body=orphan)
    await models.gone(OPTIMISED_MODEL, "minilm")
    again = await models.create(model())
    await models.wait("Ready", "True", "Serving")
    (after,) = await models.kube.list_all(DEPLOYMENT, models.namespace, labels=MINE)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["template"] == before["spec"]["template"]
    (kept,) = await models.kube.list_all(CONFIG_MAP, models.namespace,
                                         labels=f"{MINE},{labels.COMPONENT}={labels.COMPONENT_REVISION}")
    for owned in (after, kept):
        assert [owner["uid"] for owner in owned["metadata"]["ownerReferences"]] == [again["metadata"]["uid"]]
    assert kubelet.count("build") == 1


async def test_a_kept_revision_that_lost_its_owner_gets_it_back(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    """Else it would stay when the object goes, and no way back would find it."""
    made = await models.create(model())
    await models.wait("Ready", "True")
    marks = f"{MINE},{labels.COMPONENT}={labels.COMPONENT_REVISION}"
    (name,) = await models.names(CONFIG_MAP, marks)
    await models.kube._json("patch", CONFIG_MAP, CONFIG_MAP.path(models.namespace, name),
                            body={"metadata": {"ownerReferences": None}}, content_type=MERGE)

    async def owned() -> bool:
        (kept,) = await models.kube.list_all(CONFIG_MAP, models.namespace, labels=marks)
        owners = kept["metadata"].get("ownerReferences") or ()
        return [owner["uid"] for owner in owners] == [made["metadata"]["uid"]]

    await eventually(owned)


async def test_a_quiet_world_is_not_written_to(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    async with embedded(operator_kubeconfig, namespace, resync=0.5) as operator:
        await models.create(model())
        await models.wait("Ready", "True")
        await nothing_is_written(operator, models)


async def test_no_pod_starts_where_no_replica_is_wanted(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    """A Deployment without ``replicas`` gets one from the apiserver, before anybody can scale it."""
    async with embedded(operator_kubeconfig, namespace, resync=0.5) as operator:
        await models.create(model(replicas=0))
        await models.wait("RolloutComplete", "True", "Complete")
        await settled(operator)
        assert await models.names(POD, f"{MINE},{labels.COMPONENT}={labels.COMPONENT_SERVER}") == []
        assert await models.names(DEPLOYMENT, MINE) == []
        await models.patch({"spec": {"replicas": 2}})
        await models.wait("Ready", "True", "Serving")
        (deployment,) = await models.kube.list_all(DEPLOYMENT, models.namespace, labels=MINE)
        assert deployment["spec"]["replicas"] == 2


@pytest.mark.parametrize("chosen", [DEPLOYMENT, SERVICE], ids=lambda resource: resource.kind)
async def test_a_deleted_child_comes_back(
    operator: Operator, models: Models, kubelet: FakeKubelet, chosen: Resource
) -> None:
    await models.create(model())
    await models.wait("Ready", "True")
    (name,) = await models.names(chosen, MINE)
    before = await models.kube.get(chosen, models.namespace, name)
    await models.kube.delete(chosen, models.namespace, name)

    async def is_back() -> bool:
        found = await models.kube.list_all(chosen, models.namespace, labels=MINE)
        return [(name, True)] == [
            (again["metadata"]["name"], again["metadata"]["uid"] != before["metadata"]["uid"]) for again in found
        ]

    await eventually(is_back)
    await models.wait("Ready", "True")


async def test_a_child_that_somebody_edited_is_left_alone_where_it_is_not_ours(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    await models.create(model())
    await models.wait("Ready", "True")
    (name,) = await models.names(DEPLOYMENT, MINE)
    await models.kube.patch(DEPLOYMENT, models.namespace, name, {"metadata": {"labels": {"team": "inference"}}})
    await models.patch({"spec": {"replicas": 2}})
    await models.wait("Ready", "True")
    deployment = await models.kube.get(DEPLOYMENT, models.namespace, name)
    assert deployment["metadata"]["labels"]["team"] == "inference"
    assert deployment["spec"]["replicas"] == 2
    managers = {entry["manager"] for entry in deployment["metadata"]["managedFields"]}
    assert {labels.FIELD_MANAGER, labels.FIELD_MANAGER_SCALER} <= managers


async def test_scaling_by_the_scale_subresource(operator: Operator, models: Models, kubelet: FakeKubelet) -> None:
    """What kubectl scale and other autoscalers do."""
    await models.create(model())
    await models.wait("Ready", "True")
    path = OPTIMISED_MODEL.path(models.namespace, "minilm", "scale")
    await models.kube._json(
        "patch", OPTIMISED_MODEL, path, body={"spec": {"replicas": 3}}, content_type="application/merge-patch+json"
    )

    async def scaled() -> bool:
        scale: Object = await models.kube._json("get", OPTIMISED_MODEL, path)
        assert scale["status"]["selector"] == labels.as_selector(labels.model_selector("minilm"))
        return bool(scale["status"]["replicas"] == 3)

    await eventually(scaled)
    await models.wait("Ready", "True")


async def test_what_an_object_left_of_another_engine_is_stopped(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    """Its pods bear the labels that the Service selects, and would answer with another model forever. They serve until
    the new engine does."""
    await models.create(model(rollout=QUICK))
    await models.wait("Ready", "True")
    (old,) = await models.names(DEPLOYMENT, MINE)
    orphan = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"}
    await models.kube._json("delete", OPTIMISED_MODEL, OPTIMISED_MODEL.path(models.namespace, "minilm"), body=orphan)
    await models.gone(OPTIMISED_MODEL, "minilm")
    kubelet.script.build = "hold"
    kubelet.script.digest = f"sha256:{'c' * 64}"
    again = await models.create(model(source={"uri": "pvc://models/minilm-v2"}, rollout=QUICK))
    await models.wait("EngineBuilt", "False", "Building")
    serving = await models.kube.get(DEPLOYMENT, models.namespace, old)
    assert [owner["uid"] for owner in serving["metadata"]["ownerReferences"]] == [again["metadata"]["uid"]]
    assert serving["spec"]["replicas"] == 1
    kubelet.script.build = "succeed"
    await models.wait("Ready", "True")

    async def alone() -> bool:
        return await models.names(DEPLOYMENT, MINE) != [] and old not in await models.names(DEPLOYMENT, MINE)

    await eventually(alone)
    owned = [*await models.kube.list_all(JOB, models.namespace, labels=MINE),
             *await models.kube.list_all(DEPLOYMENT, models.namespace, labels=MINE)]
    assert [item["metadata"]["name"] for item in owned if not item["metadata"].get("ownerReferences")] == []


async def test_the_lease_of_a_build_that_an_object_left_is_given_up(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    """Its holder is gone for good: else it would stay, and keep its engine from ever being collected."""
    kubelet.script.build = "hold"
    await models.create(model(rollout=QUICK))
    await models.wait("EngineBuilt", "False", "Building")
    (left,) = await models.names(LEASE, MINE)
    orphan = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"}
    await models.kube._json("delete", OPTIMISED_MODEL, OPTIMISED_MODEL.path(models.namespace, "minilm"), body=orphan)
    await models.gone(OPTIMISED_MODEL, "minilm")
    kubelet.script.build = "succeed"
    kubelet.script.digest = f"sha256:{'c' * 64}"
    await models.create(model(source={"uri": "pvc://models/minilm-v2"}, rollout=QUICK))
    await models.wait("Ready", "True")
    await models.gone(LEASE, left)


async def test_progress_of_a_build_comes_from_its_log(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.build = "hold"
    kubelet.logs["prove"] = "warming up\n" + dumps(Progress(step="sweep", fraction=0.5, detail="batch 8")) + "\n"
    await models.create(model())

    async def told() -> bool:
        build = (await models.get()).get("status", {}).get("build", {})
        return (build.get("step"), build.get("percent")) == ("sweep", 50)

    await eventually(told)
    kubelet.script.build = "succeed"
    await models.wait("Ready", "True")


async def test_an_outcome_is_taken_from_the_log_when_the_termination_message_was_lost(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    error = ErrorReport(family="user", reason="PickleRefused", message="it is a pickle", remedy="use safetensors")
    kubelet.script.resolve = "silent-error"
    kubelet.logs["resolve"] = "Traceback\n" + Outcome(kind="resolve", ok=False, error=error).to_json() + "\n"
    await models.create(model())
    told = await models.wait("SourceResolved", "False", "PickleRefused")
    assert "use safetensors" in told["message"]


async def test_a_new_source_rolls_out_beside_the_old_engine(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    await models.create(model(rollout=QUICK))
    await models.wait("Ready", "True")
    (old,) = await models.names(DEPLOYMENT, MINE)
    kubelet.script.build = "hold"
    kubelet.script.digest = f"sha256:{'c' * 64}"
    await models.patch({"spec": {"source": {"uri": "pvc://models/minilm-v2"}}})
    await models.wait("EngineBuilt", "False", "Building")
    assert (await models.condition("Available"))["status"] == "True"
    kubelet.script.build = "succeed"
    await models.wait("Ready", "True")
    (new,) = await models.names(DEPLOYMENT, MINE)
    assert new != old
    assert await models.names(CONFIG_MAP, ENGINES) != []

"""What goes wrong on the user's side, and what they are told. Nothing is started that cannot succeed."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from enginewright.clients.errors import RefusedError
from enginewright.clients.resources import DEPLOYMENT, EVENT, JOB, SERVICE, Resource
from enginewright.core import labels
from enginewright.core.plan import Plan
from enginewright.runtime import Operator
from support.apiserver import Models, claim_manifest, eventually, manifest, model
from support.fake_kubelet import FakeKubelet
from support.operators import embedded

QUOTA = Resource("v1", "ResourceQuota", "resourcequotas")
MINE = f"{labels.MODEL}=minilm"
RESOLVING = f"{MINE},{labels.STEP}={labels.COMPONENT_RESOLVE}"


async def test_the_apiserver_refuses_what_its_rules_can_see(models: Models) -> None:
    with pytest.raises(RefusedError, match=r"remove spec.replicas to let the load decide"):
        await models.create(model(replicas=2, autoscaling={"maxReplicas": 3}))


@pytest.mark.parametrize(
    ("spec", "expected", "cure"),
    [
        ({"accuracy": {"maxLoss": 0.9}}, "spec.accuracy.maxLoss", {"accuracy": None}),
        ({"placement": {"accelerator": "gpu", "gpu": {"product": "NVIDIA-A30"}, "mig": {"profile": "1g.10gb"}}},
         "spec.placement.mig.profile", {"placement": {"mig": None}}),
    ],
)
async def test_the_operator_says_what_rules_cannot_see_and_starts_nothing(
    operator: Operator, models: Models, spec: dict[str, Any], expected: str, cure: dict[str, Any]
) -> None:
    await models.create(model(**spec))
    told = await models.wait("Ready", "False", "InvalidSpec")
    assert expected in told["message"]
    assert await models.names(JOB, MINE) == []
    await models.patch({"spec": cure})
    await models.wait("Ready", "False", "Resolving")


async def test_a_missing_volume_is_named_and_its_appearance_noticed_at_once(
    operator: Operator, models: Models, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: there is no pass that would look again by itself."""
    for step in ("source", "engine.obtain", "engine.build", "report"):
        # By name, because in the package a step's function hides its module.
        monkeypatch.setattr(sys.modules[f"enginewright.core.decide.{step}"], "LOOK_AGAIN", 3600.0)
    await models.delete_claim("models")
    await models.create(model())
    told = await models.wait("Ready", "False", "VolumeMissing")
    assert "PersistentVolumeClaim models" in told["message"]
    assert await models.names(JOB, RESOLVING) == []
    await models.kube.create(claim_manifest("models"), namespace=models.namespace)
    await models.wait("SourceResolved", "True")


async def test_a_users_error_waits_for_the_user(operator: Operator, models: Models, kubelet: FakeKubelet) -> None:
    kubelet.script.resolve = "user-error"
    await models.create(model())
    told = await models.wait("SourceResolved", "False", "DigestMismatch")
    assert "the source is not what its digest says" in told["message"]
    assert kubelet.count("resolve") == 1
    kubelet.script.resolve = "succeed"
    await models.patch({"metadata": {"annotations": {labels.RETRY: "1"}}})
    await models.wait("Ready", "True")
    assert kubelet.count("resolve") == 2


@pytest.mark.parametrize(("step", "told"), [("resolve", "SourceResolved"), ("build", "EngineBuilt")])
async def test_a_retry_that_comes_before_the_failure_is_counted_is_not_used_up(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet, step: str, told: str
) -> None:
    """The user has seen the pod's end; the operator, which is away here, counts the failure later."""
    setattr(kubelet.script, step, "hold")
    async with embedded(operator_kubeconfig, namespace):
        await models.create(model())
        (job,) = await eventually(lambda: _some(models, step))
    setattr(kubelet.script, step, "user-error")
    await eventually(lambda: _failed(models, job))
    await models.patch({"metadata": {"annotations": {labels.RETRY: "1"}}})
    setattr(kubelet.script, step, "succeed")
    async with embedded(operator_kubeconfig, namespace):
        await models.wait("Ready", "True")
    assert (await models.condition(told))["status"] == "True"
    assert kubelet.count(step) == 2


async def _some(models: Models, step: str) -> list[str]:
    found = await models.names(JOB, f"{MINE},{labels.STEP}={step}")
    assert found, f"no {step} Job"
    return found


async def _failed(models: Models, job: str) -> bool:
    conditions = (await models.kube.get(JOB, models.namespace, job)).get("status", {}).get("conditions", ())
    return any((entry["type"], entry["status"]) == ("Failed", "True") for entry in conditions)


async def test_an_image_that_cannot_be_pulled_is_told_while_it_waits(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.build = "pull-error"
    await models.create(model())
    told = await models.wait("EngineBuilt", "False", "ImagePullFailed")
    assert "nowhere/builder:1" in told["message"]
    kubelet.script.build = "succeed"
    await models.wait("Ready", "True")
    assert kubelet.count("build") == 1


async def test_a_build_that_ran_out_of_memory_is_told(operator: Operator, models: Models, kubelet: FakeKubelet) -> None:
    kubelet.script.build = "out-of-memory"
    await models.create(model())

    async def told() -> bool:
        return "memory" in (await models.condition("EngineBuilt")).get("message", "")

    await eventually(told)
    assert await models.names(DEPLOYMENT, MINE) == []


async def test_a_build_that_ran_out_of_time_is_told_and_not_tried_again(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.build = "out-of-time"
    await models.create(model())
    told = await models.wait("EngineBuilt", "False", "BuildDeadlineExceeded")
    assert "did not finish in time; raise spec.engine.buildBudgetSeconds" in told["message"]

    async def stopped() -> bool:
        return not any("-build-" in name for name in await models.names(JOB, MINE))

    await eventually(stopped)
    assert kubelet.count("build") == 1
    kubelet.script.build = "succeed"
    await models.patch({"spec": {"engine": {"buildBudgetSeconds": 7200}}})
    await models.wait("Ready", "True")
    assert kubelet.count("build") == 2


async def test_what_the_cluster_forbids_is_told_and_tried_again(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    body = manifest("v1", "ResourceQuota", "none", spec={"hard": {"count/jobs.batch": "0"}})
    await models.kube._json("create", QUOTA, QUOTA.path(models.namespace), body=body)

    async def in_force() -> bool:
        found = await models.kube._json("get", QUOTA, QUOTA.path(models.namespace, "none"))
        return bool(found.get("status", {}).get("hard"))

    await eventually(in_force)
    await models.create(model())
    told = await models.wait("Ready", "False", "ApiRefused")
    assert "exceeded quota: none" in told["message"]

    async def event() -> bool:
        said = await models.kube.list_all(EVENT, models.namespace)
        return any(one["reason"] == "ApiRefused" and one["type"] == "Warning" for one in said)

    await eventually(event)
    await models.kube.delete(QUOTA, models.namespace, "none")
    await models.wait("Ready", "True")


async def test_a_defect_is_told_counted_and_survived(operator: Operator, models: Models, kubelet: FakeKubelet) -> None:
    reconciler = operator.loop._reconciler
    whole = reconciler._parts

    def broken(*_: object) -> Plan:
        raise ZeroDivisionError("division by zero")

    reconciler._parts = dataclasses.replace(whole, decide=broken)
    await models.create(model())

    async def told() -> bool:
        conditions = (await models.get()).get("status", {}).get("conditions", [{}])
        return (conditions[0].get("type"), conditions[0].get("reason")) == ("Ready", "OperatorError")

    await eventually(told)

    async def counted() -> bool:
        return bool(operator.metrics.passes.labels("bug")._value.get() >= 1)

    await eventually(counted)
    reconciler._parts = whole
    await models.patch({"metadata": {"annotations": {"nudge": "1"}}})
    await models.wait("Ready", "True")


async def test_an_engine_that_replicas_refuse_is_built_again(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.server = "refuse-engine"
    await models.create(model())

    async def rebuilt() -> bool:
        return kubelet.count("build") >= 2

    await eventually(rebuilt)
    kubelet.script.server = "succeed"
    await models.wait("Ready", "True")


async def test_a_replica_with_another_tensorrt_is_told_and_nothing_is_built_anew(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.server = "misfit"
    await models.create(model(placement={"accelerator": "gpu", "gpu": {"product": "NVIDIA-H200"}}))
    told = await models.wait("Ready", "False", "TensorRTVersionMismatch")
    assert "refuses the engine before loading it: the engine was built with TensorRT 10.6.0" in told["message"]
    kubelet.script.server = "succeed"
    await models.wait("Ready", "True")
    assert kubelet.count("build") == 1


async def test_a_service_of_somebody_else_is_not_taken_over(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    spec = {"selector": {"app": "legacy"}, "ports": [{"port": 80}]}
    path = SERVICE.path(models.namespace)
    body = manifest("v1", "Service", "minilm", spec=spec)
    await models.kube._json("create", SERVICE, path, query={"fieldManager": "legacy-team"}, body=body)
    await models.create(model())
    told = await models.wait("Ready", "False", "ApiRefused")
    assert "Service minilm is there already and has another owner" in told["message"]
    kept = await models.kube.get(SERVICE, models.namespace, "minilm")
    assert kept["spec"]["selector"] == {"app": "legacy"}
    assert "ownerReferences" not in kept["metadata"]
    await models.kube.delete(SERVICE, models.namespace, "minilm")
    await models.wait("Ready", "True")


async def test_a_build_for_which_no_node_has_room_is_mended_in_the_spec_alone(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.build = "unschedulable"
    await models.create(model(engine={"resources": {"limits": {"memory": "900Gi"}}}))
    await models.wait("EngineBuilt", "False", "Unschedulable")
    await models.patch({"spec": {"engine": {"resources": {"limits": {"memory": "2Gi"}}}}})

    async def made_anew() -> bool:
        jobs = await models.kube.list_all(JOB, models.namespace)
        builds = [job for job in jobs if "-build-" in job["metadata"]["name"]]
        containers = [job["spec"]["template"]["spec"]["containers"][0] for job in builds]
        return [container["resources"]["limits"]["memory"] for container in containers] == ["2Gi"]

    await eventually(made_anew)
    kubelet.script.build = "succeed"
    await models.wait("Ready", "True")


async def test_a_pod_template_that_the_apiserver_refuses_is_told(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    volume: dict[str, Any] = {"name": "CA", "configMap": {"name": "company-ca"}}
    spec = {"priorityClassName": "system-cluster-critical", "volumes": [volume]}
    template: dict[str, Any] = {"metadata": {"labels": {"team": "search"}}, "spec": spec}
    await models.create(model(engine={"podTemplate": template}))
    told = await models.wait("Ready", "False", "ApiRefused")
    assert '.name: Invalid value: "CA"' in told["message"]
    assert await models.names(JOB, RESOLVING) == []
    volume["name"] = "ca"
    await models.patch({"spec": {"engine": {"podTemplate": template}}})
    await models.wait("Ready", "True")
    for name in await models.names(JOB, MINE):
        job = await models.kube.get(JOB, models.namespace, name)
        assert job["metadata"]["labels"]["team"] == "search"
        assert job["spec"]["template"]["spec"]["priorityClassName"] == "system-cluster-critical"

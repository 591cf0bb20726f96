"""The quality monitor on a real apiserver: its container, condition QualityHeld, its figures, and the way back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from enginewright.clients.resources import DEPLOYMENT, ENDPOINT_SLICE, POD, SERVICE
from enginewright.core import labels
from enginewright.core.labels import QUALITY_PORT
from enginewright.core.manifests.service import mirror_name
from enginewright_builder.contract import QualityReport
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.operators import Scores, embedded

MIRROR = mirror_name("minilm")


async def containers(models: Models) -> dict[str, list[str]]:
    """By revision."""
    mine = labels.as_selector(labels.model_selector("minilm"))
    found = await models.kube.list_all(DEPLOYMENT, models.namespace, labels=mine)
    return {one["metadata"]["labels"][labels.REVISION]: [container["name"] for container in
            one["spec"]["template"]["spec"]["containers"]] for one in found}


async def test_off_there_is_no_monitor_and_no_condition(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    async with embedded(operator_kubeconfig, namespace, quality=Scores(samples=5000, mean=0.0)):
        await models.create(model())
        await models.wait("Ready", "True", "Serving")
        assert list((await containers(models)).values()) == [["server"]]
        said = (await models.get())["status"]
        assert "QualityHeld" not in {entry["type"] for entry in said["conditions"]}
        assert "quality" not in said


async def test_what_live_answers_say_and_the_way_back(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    scores = Scores(samples=100)
    async with embedded(operator_kubeconfig, namespace, quality=scores, resync=1.0):
        await models.create(model(quality={"rollback": True}))
        await models.wait("Ready", "True", "Serving")
        [(first, names)] = (await containers(models)).items()
        assert names == ["server", "quality"]
        await models.wait("QualityHeld", "Unknown", "Measuring")
        scores.samples = 1000
        await models.wait("QualityHeld", "True", "Agreeing")
        told: dict[str, Any] = (await models.get())["status"]["quality"]
        assert (told["revision"], told["samples"], told["agreement"]) == (first, 1000, 1.0)
        assert told["required"] <= told["low"] < 1.0

        second = await replaced(models, first)
        scores.mean = 0.5
        await models.wait("RolloutComplete", "False", "RolledBack")
        await eventually(lambda: alone(models, first))
        given_up = (await models.get())["status"]["rollout"]["rolledBack"]
        assert (given_up["revision"], given_up["reason"]) == (second, "QualityDrifted")
        assert "have drifted" in given_up["message"]


async def replaced(models: Models, first: str) -> str:
    """By the revision that comes of another spec, when that serves alone."""
    await models.patch({"spec": {"engine": {"maxBatchSize": 4}, "rollout": {"analysis": {"seconds": 0}}}})

    async def another() -> str:
        stable = (await models.get())["status"]["rollout"].get("stable", "")
        return str(stable) if stable != first and len(await containers(models)) == 1 else ""

    second = await eventually(another)
    await models.wait("Ready", "True", "Serving")
    return second


async def alone(models: Models, revision: str) -> bool:
    status = (await models.get())["status"]
    return list(await containers(models)) == [revision] and status["rollout"]["stable"] == revision


async def test_a_retry_that_comes_before_a_way_back_is_seen_to_fail_tries_it_once_more(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    scores = Scores(samples=1000)
    async with embedded(operator_kubeconfig, namespace, quality=scores, resync=1.0):
        await models.create(model(quality={"rollback": True}))
        first = await models.served()
        await replaced(models, first)
        kubelet.script.server = "hold-new"
        scores.mean = 0.5
        failed = await models.starting(first)
        await models.patch({"metadata": {"annotations": {labels.RETRY: "1"}}})
        await kubelet.crash(first)
        await models.others(first, failed)
        kubelet.script.server = "succeed"
        await eventually(lambda: alone(models, first))


@dataclass
class Mirrors(Scores):
    """Every monitor reports so many requests that ``targets`` answered as well, and their mean score."""

    targets: tuple[str, ...] = ()
    mirrored: int = 0
    agreement: float = 1.0

    async def report(self, address: str, port: int = QUALITY_PORT) -> QualityReport:
        return replace(await super().report(address, port), targets=self.targets, mirrored=self.mirrored,
                       agreed=self.mirrored * self.agreement)


async def test_live_requests_are_sent_to_the_candidate_while_it_is_analysed(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    """By a Service without an address of its own, which leads to it alone; the figures roll it back."""
    told = Mirrors()
    rollout = {"analysis": {"seconds": 600, "mirror": True}}
    async with embedded(operator_kubeconfig, namespace, quality=told, resync=1.0):
        await models.create(model(quality={}, rollout=rollout))
        await models.wait("Ready", "True", "Serving")
        first = (await models.get())["status"]["rollout"]["stable"]
        assert MIRROR not in await models.names(SERVICE)
        await models.patch({"spec": {"engine": {"maxBatchSize": 4}}})

        async def behind() -> set[str]:
            slices = await models.kube.list_all(
                ENDPOINT_SLICE, models.namespace, labels=f"kubernetes.io/service-name={MIRROR}")
            return {address for piece in slices for endpoint in piece.get("endpoints") or ()
                    if endpoint["conditions"].get("ready") for address in endpoint["addresses"]}

        addresses = await eventually(behind)
        service = await models.kube.get(SERVICE, models.namespace, MIRROR)
        candidate = service["spec"]["selector"][labels.REVISION]
        assert (service["spec"]["clusterIP"], candidate != first) == ("None", True)
        pods = await models.kube.list_all(POD, models.namespace, labels=f"{labels.REVISION}={candidate}")
        assert addresses == {pod["status"]["podIP"] for pod in pods}
        monitor = pods[0]["spec"]["containers"][1]
        env = {entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in monitor["env"]}
        assert env["POD_NAMESPACE"] == "metadata.namespace"
        assert f"--mirror={MIRROR}" in monitor["args"]

        told.targets, told.mirrored, told.agreement = tuple(addresses), 20, 0.4
        said = await models.wait("RolloutComplete", "False", "RolledBack")
        assert "(OutputsDiffer): Its answers to live requests are not the stable revision's: 20 " in said["message"]
        figures = (await models.get())["status"]["rollout"]["analysis"]
        assert (figures["mirrored"], figures["agreement"]) == (20, 0.4)
        await models.gone(SERVICE, MIRROR)
        assert (await models.get())["status"]["rollout"]["stable"] == first

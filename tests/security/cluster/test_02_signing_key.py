"""Finding 2: the key that engines are signed with is made by an operator that may create Secrets and read none.

The operator works with the chart's rights on a real kube-apiserver.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from enginewright.clients.credentials import load_configuration
from enginewright.clients.errors import RefusedError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import JOB, Resource
from enginewright.core import labels
from support.apiserver import Models, model
from support.fake_kubelet import FakeKubelet
from support.operators import embedded

SECRET = Resource("v1", "Secret", "secrets")
NAME = "enginewright-engine-signing"


async def jobs(kube: KubeClient, namespace: str, step: str) -> list[dict[str, Any]]:
    return await kube.list_all(JOB, namespace, labels=f"{labels.STEP}={step}")


def mounts_the_key(job: dict[str, Any]) -> bool:
    volumes = job["spec"]["template"]["spec"]["volumes"]
    return any((volume.get("secret") or {}).get("secretName") == NAME for volume in volumes)


async def test_it_is_there_before_the_first_build_and_stays(
        operator_kubeconfig: Path, kube: KubeClient, namespace: str, models: Models, kubelet: FakeKubelet) -> None:
    async with embedded(operator_kubeconfig, namespace) as operator:
        await models.create(model(name="first"))
        await models.wait("Ready", "True", name="first")
        made = await kube.get(SECRET, namespace, NAME)
        await models.create(model(name="second", engine={"maxBatchSize": 7}))
        await models.wait("Ready", "True", name="second")
        calls = operator.metrics.api_seconds.collect()
        codes = {(sample.labels["resource"], sample.labels["verb"], sample.labels["code"])
                 for metric in calls for sample in metric.samples if sample.labels.get("resource") == "secrets"}
    assert made["type"] == "Opaque"
    assert made["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "enginewright"
    assert set(made["data"]) == {"key"}
    assert (await kube.get(SECRET, namespace, NAME))["data"] == made["data"], "a second build leaves it as it is"
    assert codes == {("secrets", "create", "201"), ("secrets", "create", "409")}
    builds = await jobs(kube, namespace, "build")
    assert len(builds) == 2
    assert all(map(mounts_the_key, builds))
    assert not any(map(mounts_the_key, await jobs(kube, namespace, "resolve")))


async def test_one_that_was_deleted_is_made_again_with_another_key_before_the_next_build(
        operator_kubeconfig: Path, kube: KubeClient, namespace: str, models: Models, kubelet: FakeKubelet) -> None:
    async with embedded(operator_kubeconfig, namespace):
        await models.create(model(name="first"))
        await models.wait("Ready", "True", name="first")
        before = await kube.get(SECRET, namespace, NAME)
        await kube.delete(SECRET, namespace, NAME)
        await models.create(model(name="second", engine={"maxBatchSize": 7}))
        await models.wait("Ready", "True", name="second")
        assert (await kube.get(SECRET, namespace, NAME))["data"] != before["data"]


async def test_the_operator_cannot_read_it(operator_kubeconfig: Path, kube: KubeClient, namespace: str) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME}, "stringData": {"key": "k" * 64}}
    await kube._json("create", SECRET, SECRET.path(namespace), body=secret)
    async with KubeClient(await load_configuration(str(operator_kubeconfig))) as operator:
        for attempt in (operator.get(SECRET, namespace, NAME), operator.list_all(SECRET, namespace),
                        operator.patch(SECRET, namespace, NAME, {"stringData": {"key": "mine" * 16}}),
                        operator.delete(SECRET, namespace, NAME)):
            with pytest.raises(RefusedError, match="forbidden"):
                await attempt

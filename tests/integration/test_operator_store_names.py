"""Other names for the same bucket, on a real apiserver: its own Deployment controller exchanges the pods."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from enginewright.clients.kube import Object
from enginewright.clients.resources import DEPLOYMENT, POD, Resource
from enginewright.core import labels
from enginewright.runtime import Operator
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.operators import embedded

ACCOUNT = Resource("v1", "ServiceAccount", "serviceaccounts")
BUCKET = "s3://engines/team-a"


@pytest.fixture
async def operator(operator_kubeconfig: Path, namespace: str) -> AsyncIterator[Operator]:
    async with embedded(operator_kubeconfig, namespace) as running:
        yield running


def names_of(pod: Any) -> tuple[str, str]:
    (variables,) = pod["initContainers"][0].get("envFrom") or [{"secretRef": {"name": ""}}]
    return variables["secretRef"]["name"], pod["serviceAccountName"]


async def test_pods_are_exchanged_for_other_names_and_nothing_is_built(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "writer"}}
    await models.kube._json("create", ACCOUNT, ACCOUNT.path(models.namespace), body=account)
    store = {"uri": BUCKET, "credentialsFrom": {"name": "old"}, "serviceAccountName": "writer"}
    await models.create(model(store=store))
    revision = await models.served()
    # What is None goes.
    await models.patch({"spec": {"store": {"credentialsFrom": {"name": "new"}, "serviceAccountName": None}}})

    async def exchanged() -> bool:
        pods = await models.kube.list_all(POD, models.namespace, labels=labels.REVISION)
        living: list[Object] = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        return [names_of(pod["spec"]) for pod in living] == [("new", "default")]

    await eventually(exchanged)
    (deployed,) = await models.kube.list_all(DEPLOYMENT, models.namespace, labels=labels.REVISION)
    assert names_of(deployed["spec"]["template"]["spec"]) == ("new", "default")
    assert await models.served() == revision
    assert kubelet.count("build") == 1

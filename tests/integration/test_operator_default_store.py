"""Objects that name no store, on a real apiserver: the operator's setting says where their engines are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from enginewright.clients.resources import DEPLOYMENT, JOB
from enginewright.core import labels
from enginewright.core.config import DefaultStore, OperatorConfig
from enginewright.runtime import Operator
from support.apiserver import Models, model
from support.fake_kubelet import FakeKubelet
from support.operators import embedded

BUCKET = "s3://engines/all"
AT_ONCE = {"analysis": {"seconds": 0}}


@pytest.fixture
async def operator(operator_kubeconfig: Path, namespace: str) -> AsyncIterator[Operator]:
    config = OperatorConfig(default_store=DefaultStore(uri=BUCKET, secret="engine-bucket"))
    async with embedded(operator_kubeconfig, namespace, config=config) as running:
        yield running


def secrets(pod: dict[str, Any]) -> set[str]:
    """That containers of ``pod`` have as variables."""
    containers = [*pod.get("initContainers", ()), *pod["containers"]]
    return {one["secretRef"]["name"] for container in containers for one in container.get("envFrom", ())}


async def test_the_default_store_is_that_of_objects_that_name_none(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    await models.create(model(rollout=AT_ONCE))
    await models.create(model("own", rollout=AT_ONCE, store={"uri": "pvc://enginewright-store"}))
    for name in ("minilm", "own"):
        await models.wait("Ready", "True", "Serving", name=name)
    assert "store" not in (await models.get())["spec"], "the object stays as its author wrote it"

    found = {}
    for name, uri in (("minilm", BUCKET), ("own", "pvc://enginewright-store")):
        for resource in (JOB, DEPLOYMENT):
            for one in await models.kube.list_all(resource, models.namespace, labels=f"{labels.MODEL}={name}"):
                if stores := {one["metadata"]["annotations"].get(labels.STORE_URI)} - {None}:
                    assert stores == {uri}
                    found[name, resource.kind] = secrets(one["spec"]["template"]["spec"])
    assert found == {("minilm", "Job"): {"engine-bucket"}, ("minilm", "Deployment"): {"engine-bucket"},
                     ("own", "Job"): set(), ("own", "Deployment"): set()}

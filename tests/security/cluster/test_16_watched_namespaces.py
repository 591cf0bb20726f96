"""An operator of two namespaces, with the chart's Roles there: it works in both, and elsewhere it reaches nothing."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import CONFIG_MAP, DEPLOYMENT, JOB, LEASE, OPTIMISED_MODEL, SERVICE
from support.apiserver import NAMESPACE, Models, manifest, model
from support.fake_kubelet import FakeKubelet
from support.installed import ACCOUNT, SYSTEM, install
from support.kubectl import Kubectl
from support.operators import embedded


async def another(kube: KubeClient) -> Models:
    name = f"t-{uuid.uuid4().hex[:8]}"
    await kube._json("create", NAMESPACE, NAMESPACE.path(None), body=manifest("v1", "Namespace", name))
    made = Models(kube, name)
    await made.claims()
    return made


async def test_it_works_in_two_and_touches_nothing_elsewhere(
    control_plane: Path, kube: KubeClient, namespace: str, models: Models, kubelet: FakeKubelet, tmp_path: Path
) -> None:
    second, foreign = await another(kube), await another(kube)
    account = install(control_plane, {"watchNamespaces": [namespace, second.namespace]}, tmp_path)
    await foreign.create(model())
    before = await foreign.versions(OPTIMISED_MODEL)
    logs = tmp_path / "second"
    logs.mkdir()
    async with (FakeKubelet(kube, second.namespace, logs).running(),
                embedded(account, namespace, others=[second.namespace]) as operator):
        for one in (models, second):
            await one.create(model())
        for one in (models, second):
            await one.wait("Ready", "True")
            await one.delete()
            await one.gone(OPTIMISED_MODEL, "minilm")
        answers = {(sample.labels["resource"], sample.labels["code"])
                   for metric in operator.metrics.api_seconds.collect() for sample in metric.samples}
    assert not [answer for answer in answers if answer[1] == "403"], "it asked for what it may not have"
    assert await foreign.versions(OPTIMISED_MODEL) == before, "not even a status"
    for kind in (JOB, DEPLOYMENT, SERVICE, LEASE):
        assert await foreign.names(kind) == []
    assert await foreign.names(CONFIG_MAP, "app.kubernetes.io/part-of=enginewright") == []


@pytest.mark.parametrize("values", [{}, {"replicas": 2}], ids=["one", "several"])
def test_its_roles_reach_no_other_namespace(
    control_plane: Path, namespace: str, tmp_path: Path, values: dict[str, Any]
) -> None:
    account = install(control_plane, {"watchNamespaces": [namespace], **values}, tmp_path)

    def may(where: str) -> set[str]:
        """Verbs and resources of the apiserver's own answer, without what everybody who is known may do."""
        listed = Kubectl(account, where)("auth", "can-i", "--list", "--no-headers").splitlines()
        everybody = ("selfsubject", "[", "/")
        return {line.split()[0] for line in listed if line.strip() and not line.strip().startswith(everybody)}

    assert "jobs.batch" in may(namespace)
    assert may("default") == set()
    assert may("kube-system") == set()
    assert may(SYSTEM) <= {"leases.coordination.k8s.io"}
    assert ACCOUNT not in Kubectl(control_plane)("get", "clusterrolebindings", "-o", "name")

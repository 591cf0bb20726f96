"""Builds on spot nodes, on a real apiserver with the real Job controller: a node that is taken back fails nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from enginewright.clients.resources import JOB, POD
from enginewright.core import labels
from enginewright.core.config import SPOT_LABELS, OperatorConfig
from enginewright.runtime import Operator
from support.apiserver import Models, model
from support.fake_kubelet import FakeKubelet
from support.operators import embedded

SPOT = {"accelerator": "cpu", "spot": {"builds": "Prefer"}}
BUILDS = f"{labels.STEP}=build"


@pytest.fixture
async def operator(operator_kubeconfig: Path, namespace: str) -> AsyncIterator[Operator]:
    """Under which a Job may fail not once."""
    async with embedded(operator_kubeconfig, namespace, config=OperatorConfig(job_backoff_limit=0)) as running:
        yield running


async def test_a_build_whose_node_is_taken_back_goes_on_and_nothing_is_counted(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.build = "taken-back"
    await models.create(model(placement=SPOT, rollout={"analysis": {"seconds": 0}}))

    await models.wait("EngineBuilt", "False", "BuildRetrying")
    kubelet.script.build = "succeed"
    await models.wait("Ready", "True", "Serving")
    (job,) = await models.kube.list_all(JOB, models.namespace, labels=BUILDS)
    assert job["metadata"]["name"].endswith("-1"), "one attempt"
    assert kubelet.count("build") > 1, "of more than one pod"
    build = (await models.get())["status"].get("build", {})
    assert not {"failures", "attempts", "failure"} & build.keys()

    pod = job["spec"]["template"]["spec"]
    wishes = pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert {one["preference"]["matchExpressions"][0]["key"] for one in wishes} == set(SPOT_LABELS)
    assert {one["key"] for one in pod["tolerations"]} >= set(SPOT_LABELS)
    (replica,) = await models.kube.list_all(
        POD, models.namespace, labels=f"{labels.COMPONENT}={labels.COMPONENT_SERVER}")
    assert not {one.get("key") for one in replica["spec"]["tolerations"]} & set(SPOT_LABELS)

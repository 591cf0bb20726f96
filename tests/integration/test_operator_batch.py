"""A data set that is run through an engine, on a real apiserver with the real Job controller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from enginewright.clients.errors import ClientError
from enginewright.clients.resources import DEPLOYMENT, JOB, SERVICE
from enginewright.core import labels
from enginewright.core.config import SPOT_LABELS, OperatorConfig, Prices
from enginewright.runtime import Operator
from support.apiserver import Models, eventually, model
from support.fake_kubelet import ROWS, FakeKubelet
from support.operators import embedded

SPOT = {"accelerator": "cpu", "spot": {"replicas": "Require"}}
BATCH: dict[str, Any] = {"input": {"uri": "pvc://models/rows.npz"}, "output": {"uri": "pvc://models/answers"},
                         "shards": 3, "parallelism": 2}
RUNS = f"{labels.STEP}=batch"


def a_run(**changes: Any) -> dict[str, Any]:
    return model(placement=SPOT, batch=BATCH, **changes)


async def several(kubelet: FakeKubelet) -> bool:
    """Whether more pods have begun than there are shards."""
    return kubelet.count("batch") > int(BATCH["shards"])


async def seen(models: Models, generation: int) -> bool:
    return bool((await models.get())["status"]["observedGeneration"] == generation)


@pytest.fixture
async def operator(operator_kubeconfig: Path, namespace: str) -> AsyncIterator[Operator]:
    """Under which a Job may fail not once."""
    config = OperatorConfig(job_backoff_limit=0, prices=Prices(currency="EUR", per_hour={"cpu": 0.5}))
    async with embedded(operator_kubeconfig, namespace, config=config) as running:
        yield running


async def test_nodes_are_taken_back_and_the_run_completes_and_is_not_begun_again(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.batch = "taken-back"
    await models.create(a_run())
    await models.wait("Ready", "False", "BatchRunning")
    await eventually(lambda: several(kubelet))
    kubelet.script.batch = "succeed"
    await models.wait("Ready", "True", "BatchComplete")
    told = (await models.get())["status"]["batch"]
    assert (told["shards"], told["completed"], told["rows"], told["rowsCompleted"]) == (3, 3, ROWS, ROWS)
    assert {"failed", "failure"} & told.keys() == set()

    (job,) = await models.kube.list_all(JOB, models.namespace, labels=RUNS)
    assert job["metadata"]["name"] == told["job"]
    assert {one["key"] for one in job["spec"]["template"]["spec"]["tolerations"]} >= set(SPOT_LABELS)
    mine = f"{labels.MODEL}={(await models.get())['metadata']['name']}"
    assert await models.kube.list_all(DEPLOYMENT, models.namespace, labels=mine) == []
    assert await models.kube.list_all(SERVICE, models.namespace, labels=mine) == []

    started = kubelet.count("batch")
    await models.kube.delete(JOB, models.namespace, job["metadata"]["name"])
    await models.patch({"spec": {"engine": {"maxBatchSize": 8}}})
    generation = (await models.get())["metadata"]["generation"]
    await eventually(lambda: seen(models, generation))
    await models.wait("Ready", "True", "BatchComplete")
    assert await models.kube.list_all(JOB, models.namespace, labels=RUNS) == []
    assert kubelet.count("batch") == started


async def test_bad_input_is_told_and_tried_again_when_the_user_says_so(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.batch = "user-error"
    await models.create(a_run())
    await models.wait("Ready", "False", "BatchFailed")
    failure = (await models.get())["status"]["batch"]["failure"]
    assert failure["reason"] == "BatchInputInvalid"
    assert "spec.batch.input.uri: sample 7: x holds NaN" in failure["message"]
    kubelet.script.batch = "succeed"
    await models.patch({"metadata": {"annotations": {labels.RETRY: "1"}}})
    await models.wait("Ready", "True", "BatchComplete")


@pytest.mark.parametrize(("beside", "field"), [
    ({"replicas": 2}, "spec.replicas"), ({"objective": {"latency": {"milliseconds": 5}}}, "spec.objective.latency"),
    ({"rollout": {"strategy": "Recreate"}}, "spec.rollout.strategy Recreate")])
async def test_the_apiserver_refuses_what_a_run_has_no_use_for(models: Models, beside: dict[str, Any],
                                                               field: str) -> None:
    with pytest.raises(ClientError, match=field):
        await models.create(a_run(**beside))


async def test_a_run_does_not_become_a_server(models: Models) -> None:
    await models.create(a_run())
    with pytest.raises(ClientError, match="cannot be added to an object or removed"):
        await models.patch({"spec": {"batch": None}})

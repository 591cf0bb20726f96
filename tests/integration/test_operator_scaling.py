"""Replicas follow queue depth, on real Deployments."""

from __future__ import annotations

from pathlib import Path

from enginewright.clients.resources import DEPLOYMENT
from enginewright.core import labels
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.operators import Depths, embedded

SCALING = {"minReplicas": 1, "maxReplicas": 4, "targetQueueDepth": 4, "scaleDownStabilizationSeconds": 3}


async def replicas(models: Models) -> int:
    (deployment,) = await models.kube.list_all(DEPLOYMENT, models.namespace, labels=f"{labels.MODEL}=minilm")
    return int(deployment["spec"]["replicas"])


async def test_up_with_the_queue_and_down_without_it(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    depths = Depths()
    async with embedded(operator_kubeconfig, namespace, triton=depths) as operator:
        await models.create(model(autoscaling=SCALING))
        await models.wait("Ready", "True")
        assert await replicas(models) == 1
        (first,) = kubelet.addresses.values()
        depths.queued = {first: 12}

        async def up() -> bool:
            return await replicas(models) == 3

        await eventually(up)

        async def told() -> bool:
            """Status is written after what the pass did."""
            status = (await models.get())["status"]["autoscaling"]
            assert status["desiredReplicas"] == 3, status
            return bool((status["decisions"][0]["from"], status["decisions"][0]["to"]) == (1, 3))

        await eventually(told)
        await models.wait("Ready", "True")
        depths.queued = {}

        async def down() -> bool:
            return await replicas(models) == 1

        await eventually(down)
        assert len(operator.signals) == 1


async def test_replicas_that_do_not_answer_are_not_taken_for_idle_ones(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    # From the start: an answer of a few seconds ago would rightly count.
    depths = Depths(silent=True)
    async with embedded(operator_kubeconfig, namespace, triton=depths) as operator:
        await models.create(model(autoscaling={**SCALING, "minReplicas": 2}))
        await models.wait("Ready", "True")

        async def asked_in_vain() -> bool:
            # For longer than the window after which an idle fleet would shrink.
            return bool(operator.metrics.scrapes.labels("direct", "failed")._value.get() > 10)

        await models.patch({"spec": {"autoscaling": {"minReplicas": 1}}})
        await eventually(asked_in_vain)
        await models.wait("ScalingActive", "Unknown", "Holding")
        assert await replicas(models) == 2

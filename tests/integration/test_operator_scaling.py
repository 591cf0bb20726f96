"""Replicas follow queue depth and arrivals, on real Deployments."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from enginewright.clients.resources import DEPLOYMENT
from enginewright.clients.signals import ReplicaMetrics
from enginewright.core import labels
from enginewright.core.labels import METRICS_PORT
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.operators import Depths, embedded

SCALING: dict[str, Any] = {"minReplicas": 1, "maxReplicas": 4, "targetQueueDepth": 4,
           "behavior": {"scaleDown": {"stabilizationWindowSeconds": 3}}}


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


async def test_no_further_than_policies_and_schedules_allow(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    now = datetime.now(UTC)
    today = {"name": "today", "start": f"{now.minute} {(now.hour - 1) % 24} * * *",
             "end": f"{now.minute} {(now.hour + 2) % 24} * * *", "minReplicas": 2}
    one = [{"type": "Pods", "value": 1, "periodSeconds": 1800}]
    slowly = {**SCALING, "schedules": [today], "behavior": {**SCALING["behavior"], "scaleUp": {"policies": one}}}
    depths = Depths()
    async with embedded(operator_kubeconfig, namespace, triton=depths):
        await models.create(model(autoscaling=slowly))
        await models.wait("Ready", "True")
        assert await replicas(models) == 2
        depths.queued = dict.fromkeys(kubelet.addresses.values(), 12)
        await models.wait("ScalingActive", "True", "AtLimit")
        assert await replicas(models) == 3
        status = (await models.get())["status"]
        assert "3 replicas for now: autoscaling.behavior.scaleUp adds 1 in 1800 s at most." in (
            status["autoscaling"]["decisions"][0]["reason"])


@dataclass
class Answering(Depths):
    """Replicas that answer ``rate`` requests a second each, at once: nothing is ever queued."""

    rate: float = 0.0

    async def scrape(self, address: str, port: int = METRICS_PORT) -> ReplicaMetrics:
        metrics = await super().scrape(address, port)
        answered = self.rate * asyncio.get_running_loop().time()
        return replace(metrics, successes={"m": answered}, busy=answered * 4000, executions=answered)


async def test_arrivals_scale_before_anything_is_queued(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    """The default. The build measured 260 requests a second for one replica."""
    async with embedded(operator_kubeconfig, namespace, triton=Answering(rate=400)):
        await models.create(model(autoscaling={"maxReplicas": 3}))
        await models.wait("Ready", "True")

        async def told() -> bool:
            status = (await models.get())["status"]["autoscaling"]
            reasons = [decision["reason"] for decision in status["decisions"]]
            assert any(one.startswith("0 queued requests, ") and "requests/s" in one for one in reasons), status
            return await replicas(models) == 3

        await eventually(told)
        spec = (await models.get())["spec"]["autoscaling"]
        assert spec["algorithm"] == "measured"
        assert "targetQueueDepth" not in spec


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

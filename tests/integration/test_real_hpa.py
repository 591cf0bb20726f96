"""The HorizontalPodAutoscaler of the simulator beside kube-controller-manager's own: the same metrics, decision by
decision.

The real one asks a custom metrics API for the queue of each pod, every 1.3 s here. What it was told, and when, is
what the simulator's is told; it must want as many replicas.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import DEPLOYMENT, POD, Resource
from enginewright_simulation.policies.hpa import Controller, HpaSettings, pods_metric
from support import pod_metrics
from support.fake_kubelet import FakeKubelet

HPA = Resource("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
SETTINGS = HpaSettings(target=4.0, down_window=7.0, min_replicas=1, max_replicas=12)
NAME = "peer"
# Queued requests in all, at each look: nothing, a little, within the tolerance, a surge that the rate of change bounds,
# more than the most replicas, and away again, which the window for scaling down holds up.
QUEUED = [0, 0, 4, 4.3, 9, 9, 40, 40, 40, 100, 100, *[30] * 12, *[0] * 8]


@dataclass(frozen=True)
class Look:
    """What the controller was told at ``time`` (seconds), with ``replicas`` asked for."""

    time: float
    replicas: int
    values: Mapping[str, float]


async def _replicas(kube: KubeClient, namespace: str) -> int:
    found: int = (await kube.get(DEPLOYMENT, namespace, NAME))["spec"]["replicas"]
    return found


async def _ready(kube: KubeClient, namespace: str) -> list[str]:
    pods = await kube.list_all(POD, namespace, labels=f"app={NAME}")
    return sorted(pod["metadata"]["name"] for pod in pods if pod.get("status", {}).get("phase") == "Running"
                  and "deletionTimestamp" not in pod["metadata"])


async def _start(kube: KubeClient, namespace: str) -> None:
    labels = {"app": NAME}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    await kube._json("create", DEPLOYMENT, DEPLOYMENT.path(namespace), body=deployment)
    metric = {"metric": {"name": pod_metrics.METRIC},
              "target": {"type": "AverageValue", "averageValue": f"{SETTINGS.target:g}"}}
    hpa = {
        "apiVersion": HPA.api_version, "kind": HPA.kind, "metadata": {"name": NAME},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME},
                 "minReplicas": SETTINGS.min_replicas, "maxReplicas": SETTINGS.max_replicas,
                 "metrics": [{"type": "Pods", "pods": metric}],
                 "behavior": {"scaleDown": {"stabilizationWindowSeconds": round(SETTINGS.down_window)}}},
    }
    await kube._json("create", HPA, HPA.path(namespace), body=hpa)


async def test_it_decides_as_the_real_one(
    kube: KubeClient, namespace: str, kubelet: FakeKubelet, tmp_path: Path
) -> None:
    looks: list[Look] = []
    done = asyncio.Event()

    async def ask() -> Mapping[str, float]:
        pods, replicas = await _ready(kube, namespace), await _replicas(kube, namespace)
        if len(looks) > len(QUEUED):
            done.set()
        queued = QUEUED[min(len(looks), len(QUEUED) - 1)]
        values = {pod: queued / len(pods) for pod in pods}
        looks.append(Look(time.monotonic(), replicas, values))
        return values

    async with pod_metrics.serving(kube, namespace, tmp_path, ask):
        await _start(kube, namespace)
        await done.wait()
        await kube.delete(HPA, namespace, NAME)  # else the controller would look at it to the end of the session
    controller = Controller(SETTINGS)
    wanted = [controller.settle(pods_metric(look.values, look.replicas - len(look.values), look.replicas,
                                            SETTINGS.target), look.replicas, look.time) for look in looks]
    told = [(round(look.time - looks[0].time, 1), look.replicas, sum(look.values.values()), want)
            for look, want in zip(looks, wanted, strict=True)]
    assert [look.replicas for look in looks[1:]] == wanted[:-1], told
    assert {1, 3, 5} <= set(wanted), f"it never went up and down: {told}"

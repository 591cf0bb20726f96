"""The HorizontalPodAutoscaler of the simulator beside kube-controller-manager's own: the same metrics, decision by
decision.

The real one asks a custom metrics API for the queue of each pod, every 1.3 s here. What it was told, and when, is
what the simulator's is told; it must want as many replicas. The test does not see when the real one read its clock.
Where a decision depends on that moment, as it does after the machine has stood still, the test starts another
autoscaler.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import DEPLOYMENT, POD, Resource
from enginewright_simulation.policies.hpa import Controller, HpaSettings, pods_metric
from support import pod_metrics
from support.apiserver import eventually
from support.fake_kubelet import FakeKubelet

HPA = Resource("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
SETTINGS = HpaSettings(target=4.0, down_window=7.0, min_replicas=1, max_replicas=12)
NAME = "peer"
# Queued requests in all, at each look: nothing, a little, within the tolerance, a surge that the rate of change bounds,
# more than the most replicas, and away again, which the window for scaling down holds up.
QUEUED = [0, 0, 4, 4.3, 9, 9, 40, 40, 40, 100, 100, *[30] * 12, *[0] * 8]
# Seconds between two looks, as the tests' control plane is started, and how many autoscalers are asked at most.
PERIOD, TRIES = 1.3, 4


@dataclass(frozen=True)
class Look:
    """What the controller was told at ``time`` (seconds), with ``replicas`` asked for. It ``asked`` a bit earlier."""

    asked: float
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


async def _all_run(kube: KubeClient, namespace: str) -> list[str]:
    """The pods, as soon as there are as many as are asked for: how soon they start on this machine decides nothing."""

    async def as_many() -> list[str]:
        pods = await _ready(kube, namespace)
        return pods if len(pods) == await _replicas(kube, namespace) else []

    return await eventually(as_many)


async def _deploy(kube: KubeClient, namespace: str) -> None:
    labels = {"app": NAME}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    await kube._json("create", DEPLOYMENT, DEPLOYMENT.path(namespace), body=deployment)


async def _autoscale(kube: KubeClient, namespace: str, name: str) -> None:
    metric = {"metric": {"name": pod_metrics.METRIC},
              "target": {"type": "AverageValue", "averageValue": f"{SETTINGS.target:g}"}}
    hpa = {
        "apiVersion": HPA.api_version, "kind": HPA.kind, "metadata": {"name": name},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME},
                 "minReplicas": SETTINGS.min_replicas, "maxReplicas": SETTINGS.max_replicas,
                 "metrics": [{"type": "Pods", "pods": metric}],
                 "behavior": {"scaleDown": {"stabilizationWindowSeconds": round(SETTINGS.down_window)}}},
    }
    await kube._json("create", HPA, HPA.path(namespace), body=hpa)


@dataclass
class Courses:
    """What one autoscaler after the other is told."""

    kube: KubeClient
    namespace: str

    def __post_init__(self) -> None:
        self._looks: list[Look] = []
        self._done = asyncio.Event()

    async def ask(self) -> Mapping[str, float]:
        asked = time.monotonic()
        pods = await _all_run(self.kube, self.namespace)
        looks = self._looks
        if len(looks) > len(QUEUED):
            self._done.set()
        queued = QUEUED[min(len(looks), len(QUEUED) - 1)]
        values = {pod: queued / len(pods) for pod in pods}
        looks.append(Look(asked, time.monotonic(), len(pods), values))
        return values

    async def run(self, name: str) -> list[Look]:
        """All looks of the autoscaler ``name``, which begins with one replica."""
        await self.kube.patch(DEPLOYMENT, self.namespace, NAME, {"spec": {"replicas": 1}})
        await _all_run(self.kube, self.namespace)
        self._looks, self._done = [], asyncio.Event()
        await _autoscale(self.kube, self.namespace, name)
        await self._done.wait()
        # Else the controller would look at it to the end of the session.
        await self.kube.delete(HPA, self.namespace, name)
        return list(self._looks)


def _wanted(looks: Sequence[Look], pace: float = 1.0) -> list[int]:
    """By the simulator's controller, whose clock goes at ``pace``."""
    controller = Controller(SETTINGS)
    return [controller.settle(pods_metric(look.values, 0, look.replicas, SETTINGS.target), look.replicas,
                              look.time * pace) for look in looks]


def _hangs_on_moments(looks: Sequence[Look]) -> bool:
    """Whether another decision may be right as well. The controller looks at its clock after it was told and a whole
    period before it asks again; so much is not known of the ends of its windows."""
    unknown = max(after.asked - before.time - PERIOD for before, after in pairwise(looks))
    slack = max(0.0, unknown) / SETTINGS.down_window
    return _wanted(looks, 1 - slack) != _wanted(looks, 1 + slack)


async def test_it_decides_as_the_real_one(
    kube: KubeClient, namespace: str, kubelet: FakeKubelet, tmp_path: Path
) -> None:
    courses = Courses(kube, namespace)
    await _deploy(kube, namespace)
    async with pod_metrics.serving(kube, namespace, tmp_path, courses.ask):
        for number in range(TRIES):
            looks = await courses.run(f"{NAME}-{number}")
            wanted = _wanted(looks)
            if [look.replicas for look in looks[1:]] == wanted[:-1] or not _hangs_on_moments(looks):
                break
    told = [(round(look.time - looks[0].time, 1), look.replicas, sum(look.values.values()), want)
            for look, want in zip(looks, wanted, strict=True)]
    assert [look.replicas for look in looks[1:]] == wanted[:-1], told
    assert {1, 3, 5} <= set(wanted), f"it never went up and down: {told}"

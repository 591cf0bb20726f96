"""The HorizontalPodAutoscaler and the ScaledObject of examples/scaling, against a real apiserver.

The autoscaler is kube-controller-manager's own, and scales a model through its ``/scale``; the metric that it asks for
comes from a fake. KEDA's own definition admits the example; its operator runs in tests/keda."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from enginewright.clients.errors import NotFoundError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import DEPLOYMENT, Resource
from enginewright.core import labels
from support import fake_external_metrics, keda
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.kubectl import Kubectl
from support.operators import embedded

EXAMPLES = Path(__file__).parents[2] / "examples" / "scaling"
HPA = Resource("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")


@dataclass
class Autoscaler:
    """The example, and what its metric says."""

    models: Models
    queued: float = 0.0

    async def start(self) -> None:
        hpa = example("hpa.yaml")
        # It would wait five minutes before it takes a replica away.
        hpa["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 0
        await self.models.kube._json("create", HPA, HPA.path(self.models.namespace), body=hpa)

    async def end(self) -> None:
        """Else the controller would look at it to the end of the session, again and again."""
        with contextlib.suppress(NotFoundError):
            await self.models.kube.delete(HPA, self.models.namespace, "minilm")

    async def says(self, kind: str, status: str, reason: str, words: str = "") -> None:
        async def it_does() -> bool:
            found = await self.models.kube.get(HPA, self.models.namespace, "minilm")
            entries = found.get("status", {}).get("conditions", [])
            assert [one for one in entries if (one["type"], one["status"], one["reason"]) == (kind, status, reason)
                    and words in one["message"]], entries
            return True

        await eventually(it_does)


def example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text())
    return found


@pytest.fixture
async def autoscaler(operator_kubeconfig: Path, kube: KubeClient, namespace: str, models: Models,
                     kubelet: FakeKubelet, tmp_path: Path) -> AsyncIterator[Autoscaler]:
    """Beside an operator."""
    made = Autoscaler(models)
    metric = example("hpa.yaml")["spec"]["metrics"][0]["external"]["metric"]
    selector = labels.as_selector(metric["selector"]["matchLabels"])
    async with (
        embedded(operator_kubeconfig, namespace),
        fake_external_metrics.serving(kube, namespace, tmp_path, metric["name"], selector, lambda: made.queued),
    ):
        yield made
        await made.end()


async def runs(models: Models, replicas: int) -> None:
    """Waits until the spec says so, so many are ready, and no Deployment has another number."""

    async def so_many() -> bool:
        found = await models.get()
        deployments = await models.kube.list_all(DEPLOYMENT, models.namespace, labels=f"{labels.MODEL}=minilm")
        seen = (found["spec"].get("replicas"), found["status"].get("replicas"),
                [one["spec"]["replicas"] for one in deployments])
        assert seen == (replicas, replicas, [replicas]), seen
        return True

    await eventually(so_many)


async def test_the_autoscaler_scales_a_model_up_and_down(autoscaler: Autoscaler, models: Models) -> None:
    await models.create(model(replicas=1))
    await models.wait("Ready", "True")
    await autoscaler.start()
    await autoscaler.says("ScalingActive", "True", "ValidMetricFound")
    await runs(models, 1)
    autoscaler.queued = 11  # of which each replica may have four
    await runs(models, 3)
    await models.wait("ScalingActive", "True", "Manual")
    autoscaler.queued = 100
    await runs(models, 8)
    await autoscaler.says("ScalingLimited", "True", "TooManyReplicas")
    autoscaler.queued = 0
    await runs(models, 1)


async def test_without_a_number_in_the_spec_it_cannot_begin(
    autoscaler: Autoscaler, models: Models, control_plane: Path
) -> None:
    """One replica runs then, and ``/scale`` has no number to start from, until somebody writes one."""
    await models.create(model())
    await models.wait("Ready", "True")
    await autoscaler.start()
    autoscaler.queued = 11
    await autoscaler.says("AbleToScale", "False", "FailedGetScale", ".spec.replicas")
    assert Kubectl(control_plane, models.namespace).run("scale", "om/minilm", "--replicas=1").stderr == ""
    await runs(models, 3)


async def test_zero_replicas_switch_it_off(autoscaler: Autoscaler, models: Models) -> None:
    await models.create(model(replicas=1))
    await models.wait("Ready", "True")
    await autoscaler.start()
    await models.patch({"spec": {"replicas": 0}})
    autoscaler.queued = 11
    await autoscaler.says("ScalingActive", "False", "ScalingDisabled")
    assert (await models.get())["spec"]["replicas"] == 0


async def test_it_leaves_a_model_alone_that_the_operator_scales(
    autoscaler: Autoscaler, models: Models, control_plane: Path
) -> None:
    await models.create(model(autoscaling={"maxReplicas": 4}))
    await models.wait("Ready", "True")
    await autoscaler.start()
    autoscaler.queued = 11
    await autoscaler.says("AbleToScale", "False", "FailedGetScale", ".spec.replicas")
    told = Kubectl(control_plane, models.namespace).run("scale", "om/minilm", "--replicas=1").stderr
    assert "spec.replicas and spec.autoscaling exclude each other" in told


@pytest.fixture
async def keda_installed(kube: KubeClient) -> AsyncIterator[None]:
    await keda.OF_SCALED_OBJECTS.install(kube)
    yield
    await keda.OF_SCALED_OBJECTS.uninstall(kube)


async def test_keda_admits_the_scaled_object(keda_installed: None, control_plane: Path, namespace: str) -> None:
    kubectl = Kubectl(control_plane, namespace)
    assert kubectl.admits(example("keda.yaml")) == ""
    wrong = copy.deepcopy(example("keda.yaml"))
    wrong["spec"]["maxReplicas"] = wrong["spec"].pop("maxReplicaCount")
    assert 'unknown field "spec.maxReplicas"' in kubectl.admits(wrong)

"""To zero and back on real Deployments, Services and EndpointSlices: who is selected, in which order."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from enginewright.clients.resources import DEPLOYMENT, SERVICE
from enginewright.core import labels
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.operators import Depths, Holding, embedded

ZERO = {"minReplicas": 0, "maxReplicas": 2, "scaleToZeroAfterSeconds": 2}


async def replicas(models: Models) -> int:
    mine = labels.as_selector(labels.model_selector("minilm"))
    (deployment,) = await models.kube.list_all(DEPLOYMENT, models.namespace, labels=mine)
    return int(deployment["spec"]["replicas"])


async def selector(models: Models, name: str) -> dict[str, Any]:
    service = await models.kube.get(SERVICE, models.namespace, name)
    return dict(service["spec"]["selector"])


async def test_to_zero_and_back_and_off(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    depths, holding = Depths(), Holding()
    async with embedded(operator_kubeconfig, namespace, triton=depths, activators=holding):
        await models.create(model(autoscaling=ZERO))
        await models.wait("Ready", "True", "ScaledToZero")

        async def asleep() -> bool:
            return await replicas(models) == 0

        await eventually(asleep)
        assert await selector(models, "minilm") == labels.activator_selector("minilm")
        assert (await selector(models, "minilm-replicas"))[labels.REVISION] == "none"
        await models.wait("Available", "True", "ScaledToZero")
        revision = (await models.get())["status"]["rollout"]["stable"]

        began = time.monotonic()
        kubelet.script.server = "hold-new"  # it starts, and is not ready yet
        holding.hold(3)

        async def woken() -> bool:
            return await replicas(models) == 1

        await eventually(woken)
        print(f"\nfrom the first held request to the write, seen: {time.monotonic() - began:.2f} s")
        await models.wait("Available", "True", "Waking")
        assert await selector(models, "minilm") == labels.activator_selector("minilm")
        assert (await selector(models, "minilm-replicas"))[labels.REVISION] == "none"

        kubelet.script.server = "succeed"

        async def direct() -> bool:
            chosen = [await selector(models, name) for name in ("minilm", "minilm-replicas")]
            return all(one == labels.revision_selector("minilm", revision) for one in chosen)

        await eventually(direct)
        holding.hold(0)
        # Idle again, so that it goes to zero again; and no more once it is switched off.
        await eventually(asleep)
        kubelet.script.server = "hold-new"
        await models.patch({"spec": {"autoscaling": {"minReplicas": 1}}})
        await eventually(woken)
        await models.wait("Available", "True", "Waking")
        assert await selector(models, "minilm") == labels.activator_selector("minilm"), "until a replica is ready"
        kubelet.script.server = "succeed"
        await models.wait("Ready", "True", "Serving")

        async def gone() -> bool:
            mine = labels.as_selector(labels.activator_selector("minilm"))
            left = await models.kube.list_all(DEPLOYMENT, models.namespace, labels=mine)
            services = await models.kube.list_all(SERVICE, models.namespace, labels=f"{labels.MODEL}=minilm")
            return not left and [one["metadata"]["name"] for one in services] == ["minilm"]

        await eventually(gone)
        assert await selector(models, "minilm") == labels.revision_selector("minilm", revision)

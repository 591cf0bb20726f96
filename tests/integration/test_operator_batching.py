"""Adaptive batching on a real apiserver: its container, condition BatchingAdaptive, and nothing written again after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from enginewright.clients.kube import Object
from enginewright.clients.resources import DEPLOYMENT
from enginewright.core import labels
from enginewright_builder.contract import BatchTime
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.operators import embedded, nothing_is_written

CURVE = (BatchTime(batch=1, p50_ms=4.0), BatchTime(batch=8, p50_ms=6.0), BatchTime(batch=32, p50_ms=15.0))
LIMIT: dict[str, Any] = {"serving": {"resources": {"limits": {"memory": "512Mi"}}}}


async def pods(models: Models) -> list[Object]:
    """Templates of the serving pods, one for each revision."""
    mine = labels.as_selector(labels.model_selector("minilm"))
    found = await models.kube.list_all(DEPLOYMENT, models.namespace, labels=mine)
    return [one["spec"]["template"]["spec"] for one in found]


def names(pod: Object, kind: str = "containers") -> list[str]:
    return [one["name"] for one in pod[kind]]


async def test_a_batcher_beside_each_server_and_no_write_after(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.curve = CURVE
    async with embedded(operator_kubeconfig, namespace, resync=0.5) as operator:
        await models.create(model(batching={"adaptive": True}))
        await models.wait("Ready", "True", "Serving")
        said = await models.wait("BatchingAdaptive", "True", "Following")
        assert "0 µs" in said["message"]
        [pod] = await pods(models)
        assert names(pod) == ["server", "batcher"]
        assert "model-control" in names(pod, "volumes")
        assert "--load-model=minilm" in pod["containers"][0]["args"]
        assert "--model-control-key=/model-control/key" in pod["initContainers"][0]["args"]

        await nothing_is_written(operator, models)


async def test_it_is_switched_on_and_off_without_a_build(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.curve = CURVE
    async with embedded(operator_kubeconfig, namespace, resync=1.0):
        await models.create(model(rollout={"analysis": {"seconds": 0}}))
        await models.wait("Ready", "True", "Serving")
        assert [names(pod) for pod in await pods(models)] == [["server"]]

        async def serves(*containers: str) -> bool:
            return [names(pod) for pod in await pods(models)] == [list(containers)]

        await models.patch({"spec": {"batching": {"adaptive": True}}})
        await eventually(lambda: serves("server", "batcher"))
        await models.wait("BatchingAdaptive", "True", "Following")
        await models.patch({"spec": {"batching": {"adaptive": False}}})
        await eventually(lambda: serves("server"))
        await models.wait("Ready", "True", "Serving")
        assert "BatchingAdaptive" not in {one["type"] for one in (await models.get())["status"]["conditions"]}
        assert kubelet.count("build") == 1


async def test_without_room_for_two_it_serves_as_it_was_built(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.curve = CURVE
    async with embedded(operator_kubeconfig, namespace):
        await models.create(model(batching={"adaptive": True}, **LIMIT))
        await models.wait("Ready", "True", "Serving")
        said = await models.wait("BatchingAdaptive", "False", "NoRoomForTwo")
        assert "twice 0.3 GiB" in said["message"]
        [pod] = await pods(models)
        assert names(pod) == ["server"]
        assert "--model-control-mode=none" in pod["containers"][0]["args"]

"""The quality monitor on a real apiserver: its container, condition QualityHeld, its figures, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from enginewright.clients.resources import DEPLOYMENT
from enginewright.core import labels
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.operators import Scores, embedded


async def containers(models: Models) -> dict[str, list[str]]:
    """By revision."""
    mine = labels.as_selector(labels.model_selector("minilm"))
    found = await models.kube.list_all(DEPLOYMENT, models.namespace, labels=mine)
    return {one["metadata"]["labels"][labels.REVISION]: [container["name"] for container in
            one["spec"]["template"]["spec"]["containers"]] for one in found}


async def test_off_there_is_no_monitor_and_no_condition(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    async with embedded(operator_kubeconfig, namespace, quality=Scores(samples=5000, mean=0.0)):
        await models.create(model())
        await models.wait("Ready", "True", "Serving")
        assert list((await containers(models)).values()) == [["server"]]
        said = (await models.get())["status"]
        assert "QualityHeld" not in {entry["type"] for entry in said["conditions"]}
        assert "quality" not in said


async def test_what_live_answers_say_and_the_way_back(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    scores = Scores(samples=100)
    async with embedded(operator_kubeconfig, namespace, quality=scores, resync=1.0):
        await models.create(model(quality={"rollback": True}))
        await models.wait("Ready", "True", "Serving")
        [(first, names)] = (await containers(models)).items()
        assert names == ["server", "quality"]
        await models.wait("QualityHeld", "Unknown", "Measuring")
        scores.samples = 1000
        await models.wait("QualityHeld", "True", "Agreeing")
        told: dict[str, Any] = (await models.get())["status"]["quality"]
        assert (told["revision"], told["samples"], told["agreement"]) == (first, 1000, 1.0)
        assert told["required"] <= told["low"] < 1.0

        await models.patch({"spec": {"engine": {"maxBatchSize": 4}, "rollout": {"analysisSeconds": 0}}})

        async def another() -> str:
            stable = (await models.get())["status"]["rollout"].get("stable", "")
            return str(stable) if stable != first and len(await containers(models)) == 1 else ""

        second = await eventually(another)
        await models.wait("Ready", "True", "Serving")
        scores.mean = 0.5
        await models.wait("RolloutComplete", "False", "RolledBack")

        async def back() -> bool:
            status = (await models.get())["status"]
            return list(await containers(models)) == [first] and status["rollout"]["stable"] == first

        await eventually(back)
        given_up = (await models.get())["status"]["rollout"]["rolledBack"]
        assert (given_up["revision"], given_up["reason"]) == (second, "QualityDrifted")
        assert "have drifted" in given_up["message"]

"""The server image is asked through a real apiserver: by a Job that runs before the build, and whose answer is in
status."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from enginewright.clients.resources import CONFIG_MAP, JOB, POD
from enginewright.core import labels
from enginewright.runtime import Operator
from enginewright_builder.contract import BuildRequest, Facts
from support.apiserver import Models, eventually, model
from support.cluster import IMAGE_FACTS, SERVER_DIGEST
from support.fake_kubelet import FakeKubelet
from support.operators import embedded

MINE = f"{labels.MODEL}=minilm"


async def jobs(models: Models, step: str) -> list[str]:
    return await models.names(JOB, f"{MINE},{labels.STEP}={step}")


async def test_what_the_image_has_is_in_status_and_in_the_request_of_the_build(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    server = replace(IMAGE_FACTS, libraries={**IMAGE_FACTS.libraries, "PyTorch": "2.11.0"})
    kubelet.script.facts = Facts(server=server, builder=IMAGE_FACTS)
    kubelet.script.build = "hold"
    await models.create(model())
    await models.wait("EngineBuilt", "False", "Building")
    told = (await models.get())["status"]["server"]
    assert (told["imageID"], told["triton"]) == (SERVER_DIGEST, IMAGE_FACTS.tritonserver)
    assert {one["name"]: one["version"] for one in told["libraries"]} == server.libraries
    (job,) = await jobs(models, "build")
    request = BuildRequest.from_json(
        (await models.kube.get(CONFIG_MAP, models.namespace, job))["data"]["request.json"])
    assert request.runtime.server_image == told["image"]
    assert (request.runtime.backends, request.runtime.python_runtimes) == (("python",), ("onnxruntime", "torch"))
    kubelet.script.build = "succeed"
    await models.wait("Ready", "True")
    assert len(await jobs(models, "ask")) == 1


async def test_an_image_without_python_starts_no_build(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.ask = "unfit"
    await models.create(model(serving={"image": "registry.example/no-python:1"}))
    told = await models.wait("EngineBuilt", "False", "ServerImageUnfit")
    assert 'exec: "python3": executable file not found in $PATH' in told["message"]
    assert "spec.serving.image" in told["message"]
    await models.wait("SourceResolved", "True")
    await models.wait("Ready", "False", "ServerImageUnfit")
    assert kubelet.count("build") == 0
    kubelet.script.ask = "succeed"
    await models.patch({"spec": {"serving": {"image": None}}})
    await models.wait("Ready", "True")


async def test_an_operator_that_starts_anew_asks_nobody_again(
    operator_kubeconfig: Path, models: Models, kubelet: FakeKubelet
) -> None:
    async with embedded(operator_kubeconfig, models.namespace):
        await models.create(model())
        await models.wait("Ready", "True")
    for name in await jobs(models, "ask"):
        await models.kube.delete(JOB, models.namespace, name)

    async def gone() -> bool:
        return not await models.names(POD, f"{MINE},{labels.STEP}=ask")

    await eventually(gone)
    async with embedded(operator_kubeconfig, models.namespace):
        await models.patch({"spec": {"engine": {"maxBatchSize": 4}}})

        async def built_again() -> bool:
            return kubelet.count("build") == 2

        await eventually(built_again)
    assert kubelet.count("ask") == 1


async def test_five_objects_of_one_image_ask_it_once(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    names = [f"m{number}" for number in range(5)]
    kubelet.script.ask = "hold"
    await asyncio.gather(*(models.create(model(name)) for name in names))
    for name in names:
        await models.wait("EngineBuilt", "Unknown", "AskingServerImage", name=name)
    asks = f"{labels.STEP}=ask"
    assert len(await models.names(JOB, asks)) == 1
    kubelet.script.ask = "succeed"
    for name in names:
        await models.wait("Ready", "True", name=name)
    told = [(await models.get(name))["status"]["server"] for name in names]
    assert all(one == told[0] for one in told)
    assert len(await models.names(JOB, asks)) == 1
    (job,) = await models.names(JOB, asks)
    await models.kube.delete(JOB, models.namespace, job)
    await models.create(model("late"))
    await models.wait("Ready", "True", name="late")
    assert kubelet.count("ask") == 1


async def test_when_the_object_goes_whose_job_asks_another_one_asks(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.ask = "hold"
    for name in ("m0", "m1"):
        await models.create(model(name))
        await models.wait("EngineBuilt", "Unknown", "AskingServerImage", name=name)
    asks = f"{labels.STEP}=ask"
    (before,) = await models.kube.list_all(JOB, models.namespace, labels=asks)
    await models.delete("m0")

    async def another() -> bool:
        found = await models.kube.list_all(JOB, models.namespace, labels=asks)
        return any(one["metadata"]["uid"] != before["metadata"]["uid"] for one in found)

    await eventually(another)
    kubelet.script.ask = "succeed"
    await models.wait("Ready", "True", name="m1")

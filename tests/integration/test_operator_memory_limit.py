"""What a build measured of the server's memory, on a real apiserver: in status, in pods, and against a limit."""

from __future__ import annotations

from dataclasses import replace

from enginewright.clients.resources import POD
from enginewright.core import labels
from enginewright.runtime import Operator
from enginewright_builder.contract import MemoryFigures
from support.apiserver import Models, model
from support.fake_kubelet import ENGINE, FakeKubelet

MIB = 1 << 20
FIGURES = MemoryFigures(seen="container", empty_bytes=13 * MIB, loaded_bytes=1500 * MIB, peak_bytes=2000 * MIB,
                        held_bytes=1900 * MIB, concurrency=8, cores=1.7, device_peak_bytes=3 << 30,
                        pinned_bytes=4 * MIB)


async def test_a_limit_below_what_was_held_is_refused_and_another_serves(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.engine = replace(ENGINE, memory=FIGURES)
    await models.create(model(serving={"resources": {"limits": {"memory": "1Gi"}}},
                              rollout={"analysis": {"seconds": 0}}))
    refused = await models.wait("RolloutComplete", "False", "MemoryLimitTooLow")
    assert "spec.serving.resources.limits.memory 1Gi is less than the 1900Mi" in refused["message"]
    assert "Write 3136Mi, or leave the limit out; nothing serves until then" in refused["message"]

    await models.patch({"spec": {"serving": {"resources": {"limits": {"memory": None}}}}})
    await models.wait("Ready", "True", "Serving")
    engine = (await models.get())["status"]["engine"]
    assert engine["memory"] == {
        "seen": "container", "emptyBytes": 13 * MIB, "loadedBytes": 1500 * MIB, "peakBytes": 2000 * MIB,
        "heldBytes": 1900 * MIB, "devicePeakBytes": 3 << 30, "pinnedBytes": 4 * MIB}
    assert engine["proposedResources"] == {"requests": {"cpu": "1700m", "memory": "2272Mi"},
                                           "limits": {"memory": "3136Mi"}}
    (replica,) = await models.kube.list_all(
        POD, models.namespace, labels=f"{labels.COMPONENT}={labels.COMPONENT_SERVER}")
    (server,) = (one for one in replica["spec"]["containers"] if one["name"] == labels.CONTAINER_SERVER)
    assert server["resources"] == {"requests": {"cpu": "500m", "memory": "2272Mi"}}

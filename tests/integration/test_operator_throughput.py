"""What the builds of two engines measured, on a real apiserver: said of the new one, and a refusal where that is asked
for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginewright.runtime import Operator
from support.apiserver import Models, model
from support.fake_kubelet import ENGINE, FakeKubelet


@pytest.mark.parametrize("strategy", ["Recreate", "BlueGreen"])
async def test_a_slower_engine_is_refused_where_its_throughput_is_required_and_else_said_to_be_slower(
    operator: Operator, models: Models, kubelet: FakeKubelet, strategy: str
) -> None:
    rollout = {"strategy": strategy, "analysis": {"seconds": 0}, "scaleDownDelaySeconds": 0, "requireThroughput": True}
    kubelet.script.engine = replace(ENGINE, throughput_at_objective=900.0)
    await models.create(model(rollout=rollout, engine={"maxBatchSize": 8}))
    first = await models.served()
    kubelet.script.engine = replace(ENGINE, throughput_at_objective=600.0)
    await models.patch({"spec": {"engine": {"maxBatchSize": 16}}})
    refused = await models.wait("RolloutComplete", "False", "BuiltSlower")
    assert "as its build measured; one of revision" in refused["message"]
    assert f"revision {first} goes on serving" in refused["message"]
    await models.wait("ThroughputHeld", "False", "BuiltSlower")
    await models.wait("Available", "True", "ServingPrevious")

    await models.patch({"spec": {"rollout": {"requireThroughput": False}}})
    await models.wait("Ready", "True", "Serving")
    assert await models.served() != first
    said = (await models.get())["status"]
    assert said["throughput"]["before"] == first
    assert said["throughput"]["reason"] == "BuiltSlower"

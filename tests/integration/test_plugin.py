"""``kubectl optimisedmodel``, found and run by the real kubectl, against a real apiserver and operator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from enginewright.runtime import Operator
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.plugin import Plugin

QUICK = {"strategy": "BlueGreen", "analysis": {"seconds": 0}, "scaleDownDelaySeconds": 0}


@pytest.fixture
def plugin(control_plane: Path, namespace: str, tmp_path: Path) -> Plugin:
    return Plugin(control_plane, namespace, tmp_path)


async def test_the_way_of_a_model(operator: Operator, models: Models, kubelet: FakeKubelet, plugin: Plugin) -> None:
    await models.create(model(rollout=QUICK, engine={"maxBatchSize": 8}))
    watched = await plugin("watch", "minilm")
    assert watched.returncode == 0, watched.stderr
    assert watched.stdout.splitlines()[-1].endswith("minilm serves what its spec asks for.")
    first = await models.served()
    await models.patch({"spec": {"engine": {"maxBatchSize": 16}, "rollout": {**QUICK, "autoPromote": False}}})
    waiting = await models.wait("RolloutComplete", "False", "WaitingForPromotion")
    assert first in waiting["message"] or "passed" in waiting["message"]

    told = await plugin("explain", "minilm")
    assert told.returncode == 1
    assert "kubectl optimisedmodel promote minilm" in told.stdout
    promoted = await plugin("promote", "minilm")
    assert promoted.returncode == 0, promoted.stderr
    second = await models.served()
    assert promoted.stdout == f"revision {second} of minilm is promoted\n"

    back = await plugin("rollback", "minilm")
    assert back.stdout == f"minilm goes back to revision {first}, without a build\n"
    await models.wait("Ready", "False", "Pinned")
    watched = await plugin("watch", "minilm")
    assert watched.returncode == 0, watched.stderr
    assert "kubectl optimisedmodel rollback minilm --release" in watched.stdout.splitlines()[-1]
    released = await plugin("rollback", "minilm", "--release")
    assert released.stdout == "minilm follows its spec again\n"
    said = json.loads((await plugin("explain", "minilm", "-o", "json")).stdout)
    assert set(said) == {"headline", "facts", "way", "next"}


async def test_an_engine_is_built_anew_on_demand(operator: Operator, models: Models, kubelet: FakeKubelet,
                                                 plugin: Plugin) -> None:
    await models.create(model(rollout=QUICK))
    first = await models.served()
    asked = await plugin("rebuild", "minilm")
    assert asked.stdout.startswith("the engine of minilm is rebuilt; "), asked.stderr

    async def another() -> bool:
        return await models.served() != first

    await eventually(another)


async def test_the_shell_completes_verbs_and_names(models: Models, plugin: Plugin) -> None:
    """By kubectl's own completion, which looks for the plugin's."""
    for name in ("minilm", "mistral", "resnet"):
        await models.create(model(name))
    told = (await plugin.kubectl("__complete", "optimisedmodel", "expl")).stdout
    assert told.splitlines()[:2] == ["explain", ":4"]
    told = (await plugin.kubectl("__complete", "optimisedmodel", "explain", "mi")).stdout
    assert told.splitlines()[:3] == ["minilm", "mistral", ":4"]


async def test_diff_says_what_a_change_costs(operator: Operator, models: Models, kubelet: FakeKubelet, plugin: Plugin,
                                             tmp_path: Path) -> None:
    file = tmp_path / "minilm.yaml"
    wanted = model(rollout=QUICK, engine={"maxBatchSize": 8})
    file.write_text(yaml.safe_dump(wanted))
    new = await plugin("diff", str(file))
    assert (new.returncode, new.stdout.split(": ")[1]) == (1, "it is new")
    await models.create(wanted)
    first = await models.served()
    same = await plugin("diff", str(file))
    assert (same.returncode, same.stdout) == (0, f"{models.namespace}/minilm: nothing changes\n")

    wanted["spec"]["engine"]["maxBatchSize"] = 16
    file.write_text(yaml.safe_dump(wanted))
    told = json.loads((await plugin("diff", str(file), "-o", "json")).stdout)[f"{models.namespace}/minilm"]
    assert told["changes"] == [{"path": "spec.engine.maxBatchSize", "before": 8, "after": 16}]
    assert told["effect"] == "another engine: built unless the store has it, then rolled out by BlueGreen"
    await models.patch({"spec": wanted["spec"]})
    assert await models.served() != first, "as it was told"

    missing = await plugin("diff", str(tmp_path / "no.yaml"))
    assert missing.returncode == 2
    assert "no.yaml" in missing.stderr


async def test_top_lists_this_namespace_or_all(operator: Operator, models: Models, kubelet: FakeKubelet,
                                               plugin: Plugin) -> None:
    assert "no OptimisedModel in namespace" in (await plugin("top")).stderr
    await models.create(model(rollout=QUICK))
    await models.served()
    rows: list[dict[str, Any]] = json.loads((await plugin("top", "-o", "json")).stdout)
    assert [(row["NAME"], row["READY"], row["REPLICAS"]) for row in rows] == [("minilm", "True", "1/1")]
    assert "minilm" in (await plugin("top")).stdout
    assert models.namespace in (await plugin("top", "-A")).stdout


async def test_what_is_not_there_and_what_makes_no_sense(models: Models, plugin: Plugin, tmp_path: Path) -> None:
    missing = await plugin("explain", "nobody")
    assert (missing.returncode, missing.stdout) == (3, "")
    assert missing.stderr == (f"error: no OptimisedModel nobody in namespace {models.namespace}; "
                              "kubectl get om -A lists those of all namespaces\n")
    await models.create(model())
    refused = await plugin("promote", "minilm")
    assert (refused.returncode, refused.stderr) == (
        1, "error: minilm has no revision that waits: nothing is being rolled out\n")
    assert "annotations" not in (await models.get())["metadata"]
    unserved = await plugin("report", "minilm")
    assert "minilm serves no engine yet" in unserved.stderr
    bad = tmp_path / "bad.yaml"
    bad.write_text(yaml.safe_dump({**model(), "spec": {"source": {}}}))
    checked = await plugin("validate", str(bad))
    assert (checked.returncode, "source.uri" in checked.stdout) == (1, True)

"""Captured requests on a real apiserver: what replicas are given, and how captures go that no object asks for."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from enginewright.clients.kube import Object
from enginewright.clients.resources import CONFIG_MAP, DEPLOYMENT, JOB, OPTIMISED_MODEL, POD
from enginewright.core import labels
from enginewright.runtime import Operator
from enginewright_builder.cli import main
from enginewright_builder.contract import CAPTURE_SECRET, SIGNING_SECRET
from enginewright_builder.engine_store.captures import About, captures_of, publish
from enginewright_builder.engine_store.signing import Keys
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.kubectl import Kubectl

RECORDS = f"{labels.CAPTURES}=true"
REMOVERS = f"{labels.STEP}=captures"
LONG_AGO = "2026-01-01T00:00:00Z"


def capture(store: Path, of: str) -> Path:
    """A whole capture that has not expired."""
    folder, now = captures_of(store, of), time.time()
    folder.mkdir(parents=True)
    about = About(of=of, revision="abc12345", since=now - 60, until=now, expires=now + 60_000, samples=1, file="",
                  digest="", size_bytes=0)

    def write(target: Path) -> str:
        (target / "samples.jsonl").write_text('{"x": [1.0]}\n')
        return "samples.jsonl"

    return publish(folder, write, about, Keys(current=b"k" * 64)).folder


async def records(models: Models) -> list[Object]:
    return await models.kube.list_all(CONFIG_MAP, models.namespace, labels=RECORDS)


async def annotated(models: Models, annotation: str) -> None:
    (record,) = await records(models)
    await models.kube.patch(CONFIG_MAP, models.namespace, record["metadata"]["name"],
                            {"metadata": {"annotations": {annotation: LONG_AGO}}})


async def capturing(models: Models) -> list[str]:
    found = await models.kube.list_all(DEPLOYMENT, models.namespace, labels=labels.MODEL)
    return [one["metadata"]["name"] for one in found if labels.CAPTURES in one["metadata"]["annotations"]]


async def arguments(models: Models, *, everything: bool) -> list[str]:
    """Of the Job's pod. One of the Job before goes in its own time."""
    async def one() -> list[str]:
        pods = await models.kube.list_all(POD, models.namespace, labels=REMOVERS)
        found = [list(pod["spec"]["containers"][0]["args"]) for pod in pods]
        found = [args for args in found if ("--all" in args) == everything]
        assert len(found) == 1, found
        return found[0]

    return await eventually(one)


async def job_is_over(models: Models, operator: Operator) -> None:
    async def over() -> bool:
        (job,) = await models.kube.list_all(JOB, models.namespace, labels=REMOVERS)
        return any(entry["type"] == "Complete" for entry in job["status"].get("conditions", ()))

    await eventually(over)
    await operator.housekeeper.round()

    async def gone() -> bool:
        return await models.names(JOB, REMOVERS) == []

    await eventually(gone)


@pytest.mark.parametrize("how", ["deleted", "switched off"])
async def test_captures_go_with_what_asked_for_them(
    how: str, operator: Operator, models: Models, kubelet: FakeKubelet, control_plane: Path, tmp_path: Path,
) -> None:
    kubelet.script.captures = "hold"
    await models.create(model("net", quality={"capture": {}}, rollout={"analysis": {"seconds": 0}}))
    await models.wait("Ready", "True", name="net")
    (record,) = await records(models)
    assert record["metadata"]["annotations"][labels.CAPTURES_OF] == "net"
    admin = Kubectl(control_plane, models.namespace)
    key: dict[str, Any] = json.loads(admin("get", "secret", CAPTURE_SECRET, "-o", "json"))
    assert set(key["data"]) == {"key"}
    other_key = json.loads(admin("get", "secret", SIGNING_SECRET, "-o", "json"))
    assert key["data"] != other_key["data"]
    assert len(await capturing(models)) == 1
    await operator.housekeeper.round()
    assert await models.names(JOB, REMOVERS) == []

    await annotated(models, labels.CAPTURES_SWEPT)
    await operator.housekeeper.round()
    args = await arguments(models, everything=False)
    of = f"{models.namespace}/net"
    assert args == ["captures", "--store", "/store", "--of", of]
    there, other = capture(tmp_path, of), capture(tmp_path, f"{models.namespace}/other")
    args[2] = str(tmp_path)
    assert main(args) == 0
    assert there.exists(), "it has not expired"
    kubelet.script.captures = "succeed"
    await job_is_over(models, operator)
    (record,) = await records(models)
    assert record["metadata"]["annotations"][labels.CAPTURES_SWEPT] > LONG_AGO
    kubelet.script.captures = "hold"

    if how == "deleted":
        await models.delete("net")
        await models.gone(OPTIMISED_MODEL, "net")
    else:
        await models.patch({"spec": {"quality": {"capture": None}}}, name="net")

    async def marked() -> bool:
        await operator.housekeeper.round()  # Deployments that capture go in their own time
        (found,) = await records(models)
        return labels.UNREFERENCED in found["metadata"]["annotations"]

    await eventually(marked)
    assert await capturing(models) == []
    await operator.housekeeper.round()
    assert await models.names(JOB, REMOVERS) == [], "a pod may end yet"
    await annotated(models, labels.UNREFERENCED)
    await operator.housekeeper.round()
    args = await arguments(models, everything=True)
    assert args == ["captures", "--store", "/store", "--all", "--of", of]
    args[2] = str(tmp_path)
    assert main(args) == 0
    assert not there.exists()
    assert other.exists()
    await operator.housekeeper.round()
    assert await records(models), "the record stays until the Job has ended well"
    kubelet.script.captures = "succeed"
    await job_is_over(models, operator)
    assert await records(models) == []
    if how == "switched off":
        await models.wait("Ready", "True", name="net")
        assert await capturing(models) == []

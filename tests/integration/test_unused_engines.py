"""Unused engines on a real apiserver: records are marked, a Job removes real files, the record goes; what is used
stays."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from enginewright.clients.kube import Object
from enginewright.clients.resources import CONFIG_MAP, JOB, OPTIMISED_MODEL, POD
from enginewright.core import labels
from enginewright.runtime import Operator
from enginewright_builder.cli import main
from enginewright_builder.contract import MANIFEST_FILE, Outcome
from enginewright_builder.engine_store import folder as store
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet

ENGINES = f"{labels.ENGINE}=true"
COLLECTORS = f"{labels.STEP}=gc"
LONG_AGO = "2026-01-01T00:00:00Z"


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """Where the volume of the store would be."""
    path = tmp_path / "store"
    path.mkdir()
    return path


def put(shelf: Path, fingerprint: str) -> None:
    """An engine that was published long ago."""
    staging = shelf.parent / f"staging-{fingerprint[:8]}"
    staging.mkdir()
    (staging / "model.onnx").write_text(fingerprint)
    store.publish(staging, shelf, fingerprint, outcome=Outcome(kind="build", ok=True, fingerprint=fingerprint))
    moment = time.time() - 90 * 86_400
    os.utime(shelf / fingerprint / MANIFEST_FILE, (moment, moment))


async def records(models: Models) -> dict[str, Object]:
    found = await models.kube.list_all(CONFIG_MAP, models.namespace, labels=ENGINES)
    return {record["metadata"]["annotations"][labels.FINGERPRINT_FULL]: record for record in found}


async def marked(models: Models, fingerprint: str) -> str:
    annotations = (await records(models))[fingerprint]["metadata"]["annotations"]
    return str(annotations.get(labels.UNREFERENCED, ""))


async def built(models: Models, name: str, **spec: Any) -> str:
    await models.create(model(name, **spec))
    await models.wait("Ready", "True", name=name)
    return str((await models.get(name))["status"]["fingerprint"])


async def age_mark(models: Models, fingerprint: str) -> None:
    name = (await records(models))[fingerprint]["metadata"]["name"]
    annotations = {labels.UNREFERENCED: LONG_AGO}
    await models.kube.patch(CONFIG_MAP, models.namespace, name, {"metadata": {"annotations": annotations}})


async def carry_out(models: Models, shelf: Path) -> list[str]:
    """Plays the container of the collector's Job with the real program on real files."""

    async def pod_of_the_job() -> Object:
        found = await models.kube.list_all(POD, models.namespace, labels=COLLECTORS)
        assert len(found) == 1, found
        return found[0]

    pod = await eventually(pod_of_the_job)
    args = list(pod["spec"]["containers"][0]["args"])
    assert args[:3] == ["gc", "--store", "/store"]
    args[2] = str(shelf)
    assert main(args) == 0
    return args[args.index("--remove") + 1:]


async def ended(models: Models) -> bool:
    (job,) = await models.kube.list_all(JOB, models.namespace, labels=COLLECTORS)
    return any(entry["type"] == "Complete" for entry in job["status"].get("conditions", ()))


async def test_an_unused_engine_goes_and_a_used_one_stays(
    operator: Operator, models: Models, kubelet: FakeKubelet, shelf: Path
) -> None:
    kubelet.script.gc = "hold"
    used = await built(models, "used")
    unused = await built(models, "unused", engine={"precision": "fp32"})
    for fingerprint in (used, unused):
        put(shelf, fingerprint)
    await operator.housekeeper.round()
    assert not await marked(models, used)
    assert not await marked(models, unused)
    await models.delete("unused")
    await models.gone(OPTIMISED_MODEL, "unused")

    async def is_marked() -> str:
        await operator.housekeeper.round()  # the garbage collector takes the revision along in its own time
        return await marked(models, unused)

    await eventually(is_marked)
    await operator.housekeeper.round()
    assert await models.names(JOB, COLLECTORS) == [], "the grace period has just begun"
    for fingerprint in (used, unused):
        await age_mark(models, fingerprint)
    await operator.housekeeper.round()
    assert not await marked(models, used), "a mark that is wrong is taken away, however old it is"
    assert await carry_out(models, shelf) == [unused]
    await operator.housekeeper.round()
    assert set(await records(models)) == {used, unused}, "the record stays until the Job has ended well"
    kubelet.script.gc = "succeed"
    await eventually(lambda: ended(models))
    await operator.housekeeper.round()
    assert set(await records(models)) == {used}
    assert store.lookup(shelf, used) is not None
    assert not (shelf / unused).exists()

    async def no_job() -> bool:
        return await models.names(JOB, COLLECTORS) == []

    await eventually(no_job)


async def test_an_engine_that_is_wanted_again_within_the_grace_period_is_a_hit(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    fingerprint = await built(models, "first")
    await models.delete("first")
    await models.gone(OPTIMISED_MODEL, "first")

    async def is_marked() -> str:
        await operator.housekeeper.round()
        return await marked(models, fingerprint)

    await eventually(is_marked)
    assert await built(models, "second") == fingerprint
    assert (await models.get("second"))["status"]["engine"]["cacheHit"] is True
    assert not await marked(models, fingerprint)
    assert kubelet.count("build") == 1


async def test_engines_in_a_bucket_need_no_claim_and_go_as_who_built_them(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.gc = "hold"
    bucket = {"uri": "s3://engines/team-a", "secretRef": {"name": "keys"}}
    fingerprint = await built(models, "there", store=bucket)
    record = (await records(models))[fingerprint]
    assert "ownerReferences" not in record["metadata"]
    assert await built(models, "too", store=bucket) == fingerprint
    assert (await models.get("too"))["status"]["engine"]["cacheHit"] is True
    assert kubelet.count("build") == 1
    for name in ("there", "too"):
        await models.delete(name)
        await models.gone(OPTIMISED_MODEL, name)

    async def is_marked() -> str:
        await operator.housekeeper.round()
        return await marked(models, fingerprint)

    await eventually(is_marked)
    await age_mark(models, fingerprint)
    await operator.housekeeper.round()

    async def pod_of_the_job() -> Object:
        found = await models.kube.list_all(POD, models.namespace, labels=COLLECTORS)
        assert len(found) == 1, found
        return found[0]

    container = (await eventually(pod_of_the_job))["spec"]["containers"][0]
    assert container["args"] == ["gc", "--store", "s3://engines/team-a", "--grace", "604800", "--remove", fingerprint]
    assert container["envFrom"] == [{"prefix": "ENGINEWRIGHT_STORE_", "secretRef": {"name": "keys"}}]
    kubelet.script.gc = "succeed"
    await eventually(lambda: ended(models))
    await operator.housekeeper.round()
    assert await records(models) == {}

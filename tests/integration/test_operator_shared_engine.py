"""Several objects that ask for the same engine, on a real apiserver: it is built once, whoever is first or goes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog

from enginewright.act.execute import Actor
from enginewright.clients.errors import LostRaceError
from enginewright.clients.kube import MERGE, KubeClient, Object
from enginewright.clients.resources import CONFIG_MAP, JOB, LEASE, OPTIMISED_MODEL
from enginewright.core import labels
from enginewright.core.manifests import Owner, build_lease
from enginewright.core.plan import Action, ClaimBuild, ReleaseBuild, RenewBuild
from enginewright.runtime import Operator
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.operators import embedded

ENGINES = f"{labels.ENGINE}=true"
BUILDS = f"{labels.STEP}=build"
NAMES = [f"model-{number}" for number in range(6)]


async def all_ready(models: Models, names: list[str]) -> list[bool]:
    """Who got the engine without building it."""
    for name in names:
        await models.wait("Ready", "True", name=name)
    return [(await models.get(name))["status"]["engine"]["cacheHit"] for name in names]


async def nobody_builds(models: Models) -> bool:
    return await models.names(LEASE) == []


async def test_many_objects_at_once_are_built_for_once(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    kubelet.script.build = "hold"
    await asyncio.gather(*(models.create(model(name)) for name in NAMES))

    async def all_but_one_wait() -> bool:
        said = [await models.condition("EngineBuilt", name) for name in NAMES]
        waiting = [entry for entry in said if entry.get("reason") == "WaitingForEngine"]
        return len(waiting) == len(NAMES) - 1

    await eventually(all_but_one_wait)

    async def the_job() -> str:
        """It is made after the claim that the others see."""
        found = await models.names(JOB, BUILDS)
        assert len(found) == 1, found
        return found[0]

    job = await eventually(the_job)
    (lease,) = await models.kube.list_all(LEASE, models.namespace)
    builder = lease["metadata"]["labels"][labels.MODEL]
    assert job.startswith(f"{builder}-build-")
    uid = (await models.get(builder))["metadata"]["uid"]
    assert lease["spec"]["holderIdentity"] == f"{models.namespace}/{builder}/{uid}"
    other = next(name for name in NAMES if name != builder)
    assert f"OptimisedModel {builder} builds" in (await models.condition("EngineBuilt", other))["message"]
    kubelet.script.build = "succeed"
    assert sorted(await all_ready(models, NAMES)) == [False] + [True] * (len(NAMES) - 1)
    assert kubelet.count("build") == 1
    assert len(await models.names(CONFIG_MAP, ENGINES)) == 1
    assert await models.names(JOB, BUILDS) == [job]
    await eventually(lambda: nobody_builds(models))


async def test_two_operators_build_once_all_the_same(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    """As for a moment when one is replaced."""
    async with embedded(operator_kubeconfig, namespace), embedded(operator_kubeconfig, namespace):
        await asyncio.gather(*(models.create(model(name)) for name in NAMES[:3]))
        await all_ready(models, NAMES[:3])
        assert kubelet.count("build") == 1
        await eventually(lambda: nobody_builds(models))


async def test_whoever_waits_builds_when_the_builder_is_deleted(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    """Lease and Job are the builder's own: the garbage collector takes them along."""
    kubelet.script.build = "hold"
    await models.create(model("first"))
    await models.wait("EngineBuilt", "False", "Building", name="first")
    await models.create(model("second"))
    await models.wait("EngineBuilt", "False", "WaitingForEngine", name="second")
    await models.delete("first")
    await models.gone(OPTIMISED_MODEL, "first")
    await models.wait("EngineBuilt", "False", "Building", name="second")
    (lease,) = await models.kube.list_all(LEASE, models.namespace)
    assert lease["metadata"]["labels"][labels.MODEL] == "second"
    kubelet.script.build = "succeed"
    assert await all_ready(models, ["second"]) == [False]


async def test_a_lease_that_no_object_has_any_more_goes_once_it_has_run_out(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    """As ``kubectl delete --cascade=orphan`` leaves it, where no object of that name returns."""
    kubelet.script.build = "hold"
    await models.create(model("first"))
    await models.wait("EngineBuilt", "False", "Building", name="first")
    orphan = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"}
    await models.kube._json("delete", OPTIMISED_MODEL, OPTIMISED_MODEL.path(models.namespace, "first"), body=orphan)
    await models.gone(OPTIMISED_MODEL, "first")
    (lease,) = await models.kube.list_all(LEASE, models.namespace)
    (job,) = await models.names(JOB, BUILDS)
    await operator.housekeeper.round()
    assert await models.names(LEASE) == [lease["metadata"]["name"]], "it has not run out"
    await models.kube._json("patch", LEASE, LEASE.path(models.namespace, lease["metadata"]["name"]), content_type=MERGE,
                            body={"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}})
    await operator.housekeeper.round()
    assert await models.names(LEASE) == [lease["metadata"]["name"]], "its Job builds"
    await models.kube.delete(JOB, models.namespace, job)
    await models.gone(JOB, job)
    await operator.housekeeper.round()
    assert await models.names(LEASE) == []


async def test_a_lease_that_nobody_renews_is_taken_over(
    operator: Operator, models: Models, kubelet: FakeKubelet
) -> None:
    """Of a holder that left no Job: its operator died between claim and build, and the object is not there any more."""
    await models.create(model("first"))
    await models.wait("Ready", "True", name="first")
    (record,) = await models.kube.list_all(CONFIG_MAP, models.namespace, labels=ENGINES)
    await models.delete("first")
    await models.gone(OPTIMISED_MODEL, "first")
    await models.kube.delete(CONFIG_MAP, models.namespace, record["metadata"]["name"])
    metadata = {key: record["metadata"][key] for key in ("name", "annotations")}
    spec = {"holderIdentity": f"{models.namespace}/gone/u", "leaseDurationSeconds": 120,
            "renewTime": "2026-01-01T00:00:00.000000Z"}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec,
            "metadata": {**metadata, "labels": {labels.BUILDS: "true"}}}
    await models.kube.create(body, namespace=models.namespace)
    await models.create(model("second"))
    assert await all_ready(models, ["second"]) == [False]
    assert kubelet.count("build") == 2


async def test_a_hit_makes_no_job_and_no_claim(
    operator: Operator, models: Models, kubelet: FakeKubelet, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """Seconds and objects of a miss and of a hit stand in the test report; containers take no time here."""
    made: dict[str, dict[str, float]] = {}
    for name in ("miss", "hit"):
        before, began = creations(operator), time.monotonic()
        await models.create(model(name))
        await all_ready(models, [name])
        made[name] = {"seconds": round(time.monotonic() - began, 2), **grown(before, creations(operator))}
    record_testsuite_property("made", made)
    assert made["miss"]["create jobs"] == 3
    assert made["hit"]["create jobs"] == 1, "the source is looked at; the namespace knows what the server image has"
    assert "create leases" not in made["hit"]
    assert kubelet.count("build") == 1


async def test_a_claim_is_one_objects_at_a_time(kube: KubeClient, models: Models) -> None:
    actor = Actor(kube, lambda verb, kind: None)
    log = structlog.get_logger(__name__)
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)

    # Owners that exist: what has none is collected.
    uids = {name: (await models.create(model(name, suspend=True)))["metadata"]["uid"] for name in ("first", "second")}

    def claim(name: str, version: str = "") -> ClaimBuild:
        owner = Owner(name=name, namespace=models.namespace, uid=uids[name])
        return ClaimBuild(manifest=build_lease(owner, "f" * 64, "pvc://s", now), version=version, why="")

    async def act(*actions: Action) -> Object:
        await actor.execute(models.namespace, actions, log)
        found = await kube.list_all(LEASE, models.namespace, labels=f"{labels.BUILDS}=true")
        return found[0] if found else {}

    lease = await act(claim("first"))
    name, old = lease["metadata"]["name"], lease["metadata"]["resourceVersion"]
    with pytest.raises(LostRaceError):
        await act(claim("second"))
    lease = await act(RenewBuild(name=name, version=old, time=now + timedelta(seconds=40), why=""))
    assert lease["spec"]["renewTime"] == "2026-11-21T12:00:40.000000Z"
    assert lease["spec"]["holderIdentity"].split("/")[1] == "first"
    with pytest.raises(LostRaceError):
        await act(claim("second", old))
    stale = (RenewBuild(name=name, version=old, time=now, why=""), ReleaseBuild(name=name, version=old, why=""))
    assert await act(*stale) == lease, "what is not ours as we saw it is left alone"
    lease = await act(claim("second", lease["metadata"]["resourceVersion"]))
    assert lease["spec"]["holderIdentity"].split("/")[1] == "second"
    assert [owner["name"] for owner in lease["metadata"]["ownerReferences"]] == ["second"]
    assert await act(ReleaseBuild(name=name, version=lease["metadata"]["resourceVersion"], why="")) == {}
    await act(ReleaseBuild(name=name, version=old, why=""), RenewBuild(name=name, version=old, time=now, why=""))


def creations(operator: Operator) -> dict[str, float]:
    """Successful writes of new objects, by verb and resource."""
    found: dict[str, float] = {}
    for family in operator.metrics.api_seconds.collect():
        for sample in family.samples:
            verb, resource = sample.labels.get("verb"), sample.labels.get("resource")
            fresh = sample.name.endswith("_count") and sample.labels["code"] == "201"
            if fresh and verb in ("create", "apply"):
                found[f"{verb} {resource}"] = found.get(f"{verb} {resource}", 0) + sample.value
    return found


def grown(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0) for name, value in after.items() if value > before.get(name, 0)}

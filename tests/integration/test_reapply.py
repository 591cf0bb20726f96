"""What the operator creates plainly is applied later as if it had been applied from the start, on a real apiserver."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import structlog

from enginewright.act.execute import Actor
from enginewright.act.reapply import TRIES, handed_over
from enginewright.clients.errors import AlreadyExistsError, ConflictError, RefusedError
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import DEPLOYMENT, SERVICE
from enginewright.core import labels
from enginewright.core.plan import ABSENT, Apply
from support.apiserver import manifest

LOG = structlog.get_logger(__name__)


def service(*ports: int, team: bool = False, name: str = "s") -> Object:
    made = manifest("v1", "Service", name, spec={"ports": [{"name": f"p{port}", "port": port} for port in ports],
                                                 "selector": {"app": "a", **({"team": "t"} if team else {})}})
    made["metadata"]["labels"] = {"app": "a", **({"team": "t"} if team else {})}
    return made


def deployment(*, second: bool) -> Object:
    containers = [{"name": name, "image": "server:1"} for name in ("one", "two")[:1 + second]]
    return manifest("apps/v1", "Deployment", "d", spec={
        "replicas": 0, "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": containers}}})


async def does(kube: KubeClient, namespace: str, wanted: Object, **fields: Any) -> None:
    await Actor(kube, lambda *_: None).execute(namespace, [Apply(manifest=wanted, why="a test", **fields)], LOG)


def mine(found: Object) -> list[str]:
    return [one["operation"] for one in found["metadata"]["managedFields"]
            if one["manager"] == labels.FIELD_MANAGER and "subresource" not in one]


def seen(found: Object) -> dict[str, str]:
    return {"uid": found["metadata"]["uid"], "version": found["metadata"]["resourceVersion"]}


async def test_what_a_manifest_does_not_state_any_more_goes(kube: KubeClient, namespace: str) -> None:
    await does(kube, namespace, service(1, 2, team=True), version=ABSENT, force=False)
    made = await kube.get(SERVICE, namespace, "s")
    assert mine(made) == ["Update"], "it was created, not applied"
    await does(kube, namespace, service(2), **seen(made))
    found = await kube.get(SERVICE, namespace, "s")
    assert [port["port"] for port in found["spec"]["ports"]] == [2]
    assert found["spec"]["selector"] == found["metadata"]["labels"] == {"app": "a"}
    assert found["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    assert mine(found) == ["Apply"]
    assert handed_over(found["metadata"]) is None, "later applies write once"


async def test_so_does_a_container_of_a_deployment_and_what_others_wrote_stays(
    kube: KubeClient, namespace: str
) -> None:
    await does(kube, namespace, deployment(second=True), version=ABSENT, force=False)
    await kube._json("patch", DEPLOYMENT, DEPLOYMENT.path(namespace, "d"), query={"fieldManager": "another"},
                     body={"metadata": {"labels": {"team": "t"}}}, content_type="application/merge-patch+json")
    await does(kube, namespace, deployment(second=False))
    found = await kube.get(DEPLOYMENT, namespace, "d")
    assert [one["name"] for one in found["spec"]["template"]["spec"]["containers"]] == ["one"]
    assert found["metadata"]["labels"] == {"team": "t"}
    assert found["spec"]["replicas"] == 0
    assert mine(found) == ["Apply"]


async def test_a_kill_between_the_two_writes_leaves_what_the_next_pass_applies(
    kube: KubeClient, namespace: str
) -> None:
    await does(kube, namespace, service(1, 2), version=ABSENT)
    made = await kube.get_metadata(SERVICE, namespace, "s")
    owners = handed_over(made["metadata"])
    assert owners is not None
    await kube.own(SERVICE, made["metadata"], owners)
    left = await kube.get(SERVICE, namespace, "s")
    assert [port["port"] for port in left["spec"]["ports"]] == [1, 2]
    await does(kube, namespace, service(2), **seen(left))
    assert [port["port"] for port in (await kube.get(SERVICE, namespace, "s"))["spec"]["ports"]] == [2]


async def test_an_object_of_before_is_applied_as_ever(kube: KubeClient, namespace: str) -> None:
    made = await kube.apply(service(1, 2, team=True), namespace=namespace)
    await does(kube, namespace, service(2), **seen(made))
    found = await kube.get(SERVICE, namespace, "s")
    assert found["metadata"]["labels"] == {"app": "a"}
    assert mine(found) == ["Apply"]


@pytest.mark.parametrize("late", [
    lambda found: {**seen(found), "version": str(int(found["metadata"]["resourceVersion"]) - 1)},
    lambda found: {**seen(found), "uid": "00000000-0000-0000-0000-000000000000"},
], ids=["changed", "made again"])
async def test_nothing_is_handed_over_of_an_object_that_is_not_as_it_was_seen(
    kube: KubeClient, namespace: str, late: Callable[[Object], dict[str, str]]
) -> None:
    await does(kube, namespace, service(1), version=ABSENT)
    made = await kube.get(SERVICE, namespace, "s")
    with pytest.raises(ConflictError):
        await does(kube, namespace, service(2), **late(made))
    assert await kube.get(SERVICE, namespace, "s") == made


async def test_managers_are_not_written_onto_an_object_that_has_changed(kube: KubeClient, namespace: str) -> None:
    await does(kube, namespace, service(1), version=ABSENT)
    made = (await kube.get(SERVICE, namespace, "s"))["metadata"]
    await kube.patch(SERVICE, namespace, "s", {"metadata": {"labels": {"app": "b"}}})
    with pytest.raises(ConflictError):
        await kube.own(SERVICE, made, handed_over(made) or [])


@pytest.mark.parametrize("writes", [TRIES - 1, TRIES], ids=["and ends", "and goes on"])
async def test_who_states_no_version_hands_over_again_while_others_write(
    kube: KubeClient, namespace: str, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """As a controller does that writes the status between the operator's read and its write."""
    await does(kube, namespace, service(1, 2), version=ABSENT)
    own, written = kube.own, itertools.count()

    async def after_another(*given: Any) -> Object:
        if (number := next(written)) < writes:
            await kube.patch(SERVICE, namespace, "s", {"metadata": {"annotations": {"written": str(number)}}})
        return await own(*given)

    monkeypatch.setattr(kube, "own", after_another)
    with pytest.raises(ConflictError) if writes == TRIES else contextlib.nullcontext():
        await does(kube, namespace, service(2))
    ports = (await kube.get(SERVICE, namespace, "s"))["spec"]["ports"]
    assert [port["port"] for port in ports] == ([1, 2] if writes == TRIES else [2])


async def test_what_is_there_unseen_is_left_alone(kube: KubeClient, namespace: str) -> None:
    await kube.apply(service(1), namespace=namespace)
    with pytest.raises(AlreadyExistsError):
        await does(kube, namespace, service(2), version=ABSENT)
    stranger = service(2)
    stranger["metadata"]["ownerReferences"] = []
    with pytest.raises(RefusedError, match="has another owner"):
        await does(kube, namespace, stranger, version=ABSENT, force=False)
    assert [port["port"] for port in (await kube.get(SERVICE, namespace, "s"))["spec"]["ports"]] == [1]


async def test_a_field_that_the_apiserver_does_not_know_is_refused_and_not_dropped(
    kube: KubeClient, namespace: str
) -> None:
    odd = deployment(second=False)
    odd["spec"]["template"]["spec"]["colour"] = "red"
    with pytest.raises(RefusedError, match="colour"):
        await does(kube, namespace, odd, version=ABSENT)


def test_ownership_of_several_entries_is_added_up() -> None:
    def entry(operation: str, *path: str, **more: str) -> Object:
        fields: Object = {}
        for one in reversed(path):
            fields = {one: fields}
        return {"manager": labels.FIELD_MANAGER, "operation": operation, "fieldsV1": fields, **more}

    scaler = {**entry("Apply", "f:spec", "f:replicas"), "manager": labels.FIELD_MANAGER_SCALER}
    status = entry("Update", "f:status", subresource="status")
    found = [entry("Apply", "f:spec", "f:a"), scaler, entry("Update", "f:spec", "f:b"), status]
    assert handed_over({"managedFields": found}) == [
        {**entry("Apply"), "fieldsV1": {"f:spec": {"f:a": {}, "f:b": {}}}}, scaler, status]
    assert handed_over({"managedFields": [entry("Apply", "f:a"), scaler, status]}) is None

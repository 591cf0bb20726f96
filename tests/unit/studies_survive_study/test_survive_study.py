"""The campaign's own parts: steps by seed, changes of specs, oracles that see what is wrong, and the shrinking."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp.test_utils import make_mocked_request

from enginewright.clients.kube import KubeClient
from enginewright.core import labels
from support.corpus import odd_fields
from survive_study import oracles, specs
from survive_study.actor import Node
from survive_study.faults import Way
from survive_study.shrink import shrunk
from survive_study.steps import KINDS, from_json, sequence
from survive_study.world import World

JSON = dict[str, Any]
PROVEN = "a" * 64
POD_MARKS = {labels.MODEL: "minilm", labels.COMPONENT: labels.COMPONENT_SERVER, labels.REVISION: "r1"}


def ours(name: str, *, owner: str = "u1", marks: JSON | None = None, notes: JSON | None = None, **more: Any) -> JSON:
    owners = [{"uid": owner, "kind": labels.KIND, "controller": True}] if owner else []
    marked = {labels.MANAGED_BY: labels.PRODUCT, labels.MODEL: "minilm", **(marks or {})}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "annotations": notes or {}, "ownerReferences": owners,
                         "labels": marked}, **more}


def build(name: str, fingerprint: str = PROVEN, store: str = "pvc://s", **status: Any) -> JSON:
    return ours(name, marks={labels.STEP: "build"}, status=status,
                notes={labels.FINGERPRINT_FULL: fingerprint, labels.STORE_URI: store})


def pod(fingerprint: str = PROVEN, *, ready: bool = True) -> JSON:
    return {"metadata": {"name": "p", "labels": POD_MARKS, "annotations": {labels.FINGERPRINT_FULL: fingerprint}},
            "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}}


def model(status: str = "True", reason: str = "Serving", *, seen: int = 3, **spec: Any) -> JSON:
    entry = {"type": "Ready", "status": status, "reason": reason, "message": "because"}
    return {"metadata": {"name": "minilm", "uid": "u1", "generation": 3}, "spec": spec,
            "status": {"observedGeneration": seen, "conditions": [entry]}}


SERVICE = ours("minilm", spec={"selector": {labels.MODEL: "minilm", labels.COMPONENT: labels.COMPONENT_SERVER}})
DEPLOYMENT = ours("minilm-r1", marks={labels.REVISION: "r1"},
                  spec={"replicas": 1, "template": {"metadata": {"labels": POD_MARKS}}})
GOOD: JSON = {"optimisedmodels": [model()], "services": [SERVICE], "pods": [pod()], "jobs": [build("b1")],
              "deployments": [DEPLOYMENT]}


def world(**changed: Any) -> World:
    return World({**GOOD, **changed}, frozenset({PROVEN}))


def test_a_world_as_it_should_be_raises_no_alarm() -> None:
    assert list(oracles.always(world())) == []
    assert list(oracles.at_rest(world())) == []
    assert list(oracles.healthy(world())) == []


@pytest.mark.parametrize(("changed", "alarm"), [
    ({"jobs": [build("b1"), build("b2")]}, "two builds of aaaaaaaaaaaa into pvc://s: b1, b2"),
    ({"pods": [pod("b" * 64)]}, "whose engine bbbbbbbbbbbb was never proven"),
    ({"pods": [pod("")]}, "whose engine (none) was never proven"),
])
def test_alarms_of_any_moment(changed: JSON, alarm: str) -> None:
    (told,) = oracles.always(world(**changed))
    assert alarm in told


@pytest.mark.parametrize("changed", [
    {"jobs": [build("b1"), build("b2", conditions=[{"type": "Failed", "status": "True"}])]},
    {"jobs": [build("b1"), build("b2", store="pvc://t")]},
    {"jobs": [build("b1"), build("b2", "b" * 64)]},
    {"pods": [pod("b" * 64, ready=False)]},
])
def test_what_is_no_alarm(changed: JSON) -> None:
    assert list(oracles.always(world(**changed))) == []


@pytest.mark.parametrize(("changed", "alarm"), [
    ({"optimisedmodels": [model(seen=2)]}, "has not spoken of generation 3"),
    ({"optimisedmodels": [model("False", "OperatorError")]}, "Ready is False for OperatorError"),
    ({"optimisedmodels": [model("False", "Building")]}, "Ready is False for Building"),
    ({"services": []}, "there is no Service"),
    ({"pods": [pod(ready=False)]}, "with 0 of 1 replicas behind its Service"),
    ({"optimisedmodels": [model(replicas=2)]}, "with 1 of 2 replicas"),
    ({"deployments": []}, "minilm: requests go to pod p, which is of no Deployment of its own"),
    ({"jobs": [ours("b1", owner="")]}, "jobs/b1 has no owner that is there"),
    ({"jobs": [ours("b1", owner="u0")]}, "jobs/b1 has no owner that is there"),
])
def test_alarms_at_rest(changed: JSON, alarm: str) -> None:
    (told,) = oracles.at_rest(world(**changed))
    assert alarm in told


def test_replicas_of_an_unknown_price_stay_as_they_are() -> None:
    found = model(autoscaling={"minReplicas": 2, "costCeilingPerHour": 1})
    (told,) = oracles.at_rest(world(optimisedmodels=[found]))
    assert "with 1 of 2 replicas" in told
    found["status"]["conditions"].append({"type": "ScalingActive", "status": "False", "reason": "PriceUnknown"})
    assert list(oracles.at_rest(world(optimisedmodels=[found]))) == []
    (told,) = oracles.at_rest(world(optimisedmodels=[found], pods=[]))
    assert "with 0 of 1 replicas" in told


def test_replicas_of_a_suspended_model_are_those_that_it_had() -> None:
    found = model(replicas=3)
    (told,) = oracles.at_rest(world(optimisedmodels=[found]))
    assert "with 1 of 3 replicas" in told
    found["status"]["conditions"].append({"type": "ScalingActive", "status": "Unknown", "reason": "Suspended"})
    assert list(oracles.at_rest(world(optimisedmodels=[found]))) == []
    (told,) = oracles.at_rest(world(optimisedmodels=[found], pods=[]))
    assert "with 0 of 1 replicas" in told
    two = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replicas": 2}}
    (told,) = oracles.at_rest(world(optimisedmodels=[found], deployments=[two]))
    assert "with 1 of 2 replicas" in told


def given_up(*, reason: str = "CandidateSlower", asked: str = "", good: bool = True) -> JSON:
    """The model, whose revision r1 was given up."""
    entry = {"revision": "r0", "fingerprint": "b" * 64, "outcome": "Serving"}
    found = model()
    found["metadata"]["annotations"] = {labels.RETRY: asked} if asked else {}
    found["status"] |= {
        "revisions": [entry | {"promotionTime": "2026-01-01T00:00:00Z"} if good else entry],
        "rollout": {"rolledBack": {"revision": "r1", "reason": reason, "message": "1.3 times the stable's p99",
                                   "time": "2026-01-01T00:00:00Z", "retry": ""}}}
    return found


def test_a_revision_that_was_given_up_gets_no_request() -> None:
    (told,) = oracles.at_rest(world(optimisedmodels=[given_up()]))
    assert told == ("minilm: Service minilm sends requests to pod p of revision r1, which was given up: 1.3 times the "
                    "stable's p99")


@pytest.mark.parametrize("changed", [
    {"optimisedmodels": [given_up(asked="again")]},
    {"optimisedmodels": [given_up(good=False)]},
    {"optimisedmodels": [given_up(reason="QualityDrifted")]},
])
def test_a_revision_that_was_given_up_may_serve(changed: JSON) -> None:
    assert list(oracles.at_rest(world(**changed))) == []


def test_a_named_condition_is_rest_and_not_health() -> None:
    refused = world(optimisedmodels=[model("False", "InvalidSpec")])
    assert list(oracles.at_rest(refused)) == []
    (told,) = oracles.healthy(refused)
    assert "healed, and Ready is False for InvalidSpec" in told


def test_things_of_others_are_watched() -> None:
    theirs = {"metadata": {"name": "notes", "uid": "x"}, "data": {"a": "b"}}
    foreign = {"configmaps": {"notes": oracles.kept(theirs)}}
    as_made = World({**GOOD, "configmaps": [theirs]}, frozenset({PROVEN}), foreign)
    assert list(oracles.always(as_made)) == []
    changed = World({**GOOD, "configmaps": [{**theirs, "data": {}}]}, frozenset({PROVEN}), foreign)
    assert list(oracles.always(changed)) == ["configmaps/notes of another owner was changed"]
    gone = World({**GOOD, "configmaps": []}, frozenset({PROVEN}), foreign)
    assert list(oracles.always(gone)) == ["configmaps/notes of another owner is gone"]


def test_each_of_many_pods_has_an_address(tmp_path: Path) -> None:
    """The apiserver refuses the status of a pod whose address is none, and the node gets no further."""
    node = Node(cast(KubeClient, None), "a", tmp_path)
    given = [node._serving({"metadata": {"name": f"p-{number}"}}, "server", "succeed") for number in range(600)]
    assert len({IPv4Address(status["podIP"]) for status in given}) == 600


def test_a_seed_gives_the_same_steps_and_all_kinds() -> None:
    steps = sequence(7, 2000)
    assert steps == sequence(7, 2000)
    assert {step.kind for step in steps} == set(KINDS)
    assert [from_json(json.loads(json.dumps(step.as_json()))) for step in steps] == steps
    assert 0.2 < sum(step.killed is not None for step in steps) / len(steps) < 0.4


def test_changes_reach_nearly_every_field_and_are_good() -> None:
    fitting = [case for case in specs.changes() if (found := specs.changed(specs.BASIS, case)) and specs.good(found)]
    assert len({case.field for case in fitting}) > 100
    assert specs.good(specs.BASIS)
    assert len(list(odd_fields())) > len(specs.changes())


def test_no_change_asks_for_more_replicas_than_come_to_rest_in_time() -> None:
    asked = [case.spec["replicas"] for case in specs.changes() if case.field == "spec.replicas"]
    assert sorted(asked) == [0, specs.MOST_REPLICAS]
    floors = [int(case.spec["autoscaling"]["minReplicas"]) for case in specs.changes()
              if case.field == "spec.autoscaling.minReplicas" and case.spec["autoscaling"]["minReplicas"] is not None]
    assert max(floors) == specs.MOST_REPLICAS


def test_what_the_operator_refuses_the_study_may_write() -> None:
    assert len(specs.refused()) > 10
    assert not any(specs.good(case.spec) for case in specs.refused())


@pytest.mark.parametrize(("fault", "method", "expected"), [
    ("", "GET", {"pass"}), ("partition", "GET", {"break"}), ("conflict", "GET", {"pass"}),
    ("conflict", "PATCH", {"pass", "conflict"}), ("hang", "GET", {"pass", "hang"}), ("deaf", "GET", {"pass"}),
])
def test_faults_of_requests(fault: str, method: str, expected: set[str]) -> None:
    way = Way(random.Random(1), now=fault)
    request = make_mocked_request(method, "/api/v1/pods")
    assert {way.choose(request) for _ in range(100)} == expected


def test_writes_that_arrive_are_counted_but_for_those_that_renew_a_lead() -> None:
    way = Way(random.Random(1))
    way.choose(make_mocked_request("PATCH", "/apis/apps/v1/namespaces/a/deployments/b"))
    way.choose(make_mocked_request("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/operator-1"))
    assert way.wrote == ["PATCH /apis/apps/v1/namespaces/a/deployments/b"]


async def test_a_failing_sequence_is_cut_to_what_fails() -> None:
    async def fails(steps: Sequence[int]) -> bool:
        return 17 in steps and 41 in steps

    assert await shrunk(list(range(50)), fails, 200) == [17, 41]
    some = await shrunk(list(range(50)), fails, 3)
    assert {17, 41} <= set(some)
    assert len(some) <= 50

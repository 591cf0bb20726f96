"""A Gateway sends each class of a fleet as much as it was measured to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.fleet.shares import shares
from enginewright.core.routing import GRPC_ROUTE, HTTP_ROUTE
from support.cluster import described
from support.fleet_cluster import FLEET, FleetCluster, unequal

GATEWAY = {"parentRefs": [{"name": "public"}], "hostnames": ["a.example"]}
GPU, CPU = FLEET["placement"]["classes"]
SLICE = {"name": "slice", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "mig": {"profile": "1g.10gb"}}


def status(ready: int, throughput: float | None = None) -> Mapping[str, Any]:
    engine = {"fingerprint": "f", "backend": "b", "precision": "p", "throughput": throughput}
    return {"readyReplicas": ready, **({"engine": engine} if throughput is not None else {})}


@pytest.mark.parametrize(("classes", "expected"), [
    ({"a": status(1, 900), "b": status(1, 100)}, {"a": 90, "b": 10}),
    ({"a": status(1, 900), "b": status(9, 100)}, {"a": 50, "b": 50}),
    ({"a": status(2, 500), "b": status(0, 500)}, {"a": 100}),
    ({"a": status(1, 100_000), "b": status(1, 1)}, {"a": 99, "b": 1}),
    ({"a": status(3, 900), "b": status(1)}, {"a": 75, "b": 25}),
    ({"a": status(1, 0), "b": status(1, 900)}, {"a": 50, "b": 50}),
    ({"a": status(0, 900), "b": {}}, {}),
    ({}, {}),
])
def test_shares(classes: Mapping[str, Mapping[str, Any]], expected: Mapping[str, int]) -> None:
    assert shares(classes) == expected


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(st.integers(0, 1000), st.none() | st.floats(0, 1e9))))
def test_shares_are_a_whole_of_those_that_answer(classes: dict[str, tuple[int, float | None]]) -> None:
    found = shares({name: status(*one) for name, one in classes.items()})
    assert found.keys() == {name for name, (ready, _) in classes.items() if ready}
    assert sum(found.values()) == (100 if found else 0)
    assert all(share > 0 for share in found.values())


def ready(**rollout: Any) -> FleetCluster:
    return unequal(**{"gateway": GATEWAY, **rollout})


def test_routes_follow_capacity_and_replicas() -> None:
    fleet = ready()
    assert fleet.routes == {HTTP_ROUTE: {"gpu": 90, "cpu": 10}}
    assert {row["name"]: row["weight"] for row in fleet.status["classes"]} == {"gpu": 90, "cpu": 10}
    assert all("gateway" not in member.spec["rollout"] for member in fleet.members.values())
    fleet.classes(GPU, {**CPU, "minReplicas": 9})
    fleet.run(20)
    assert fleet.routes == {HTTP_ROUTE: {"gpu": 50, "cpu": 50}}
    assert described(fleet.operate()) == []


def test_a_class_that_loses_its_replicas_loses_its_share() -> None:
    fleet = ready()
    cpu = fleet.members["cpu"]
    cpu.broken = {revision: {"phase": "Running"} for revision in cpu.replicas()}
    fleet.run(5)
    assert fleet.routes == {HTTP_ROUTE: {"gpu": 100}}
    cpu.broken = {}
    fleet.run(5)
    assert fleet.routes == {HTTP_ROUTE: {"gpu": 90, "cpu": 10}}
    assert fleet.says("Ready") == "True/Serving"


def test_a_class_that_goes_loses_its_share_first() -> None:
    fleet = ready()
    fleet.classes(GPU, CPU, SLICE)
    fleet.run(20)
    assert set(fleet.routes[HTTP_ROUTE]) == {"gpu", "cpu", "slice"}
    fleet.classes(GPU, SLICE)
    assert described(fleet.operate()) == ["Apply HTTPRoute minilm"]
    assert set(fleet.routes[HTTP_ROUTE]) == {"gpu", "slice"}
    assert fleet.last.requeue_after == 1.0
    assert described(fleet.operate()) == ["Delete OptimisedModel minilm-cpu"]


def test_routes_go_when_nobody_asks_for_them() -> None:
    fleet = ready(gateway={**GATEWAY, "grpcHostnames": ["grpc.example"]})
    assert set(fleet.routes) == {HTTP_ROUTE, GRPC_ROUTE}
    fleet.edit(rollout={"analysis": {"seconds": 0}, "gateway": GATEWAY})
    fleet.run(3)
    assert set(fleet.routes) == {HTTP_ROUTE}
    fleet.edit(rollout={"analysis": {"seconds": 0}})
    fleet.run(3)
    assert fleet.routes == {}
    assert "weight" not in fleet.status["classes"][0]
    assert fleet.says("Ready") == "True/Serving"


def test_a_cluster_without_routes_is_said_and_the_service_serves() -> None:
    fleet = FleetCluster(spec={**FLEET, "rollout": {"analysis": {"seconds": 0}, "gateway": GATEWAY}}, kinds=set())
    fleet.run(20)
    assert fleet.says("Ready") == "False/GatewayNotInstalled"
    assert "spec.rollout.gateway needs HTTPRoute of" in fleet.condition("Ready")["message"]
    assert fleet.says("Available") == "True/Serving"
    fleet.kinds = {HTTP_ROUTE}
    fleet.run(5)
    assert fleet.says("Ready") == "True/Serving"

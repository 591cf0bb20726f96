"""Out of a rollout whose revision already carries traffic that the stable one was shrunk for: nobody drowns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from support.cluster import SPEC, Cluster

FIRST, SECOND, THIRD = ({"engine": {"maxBatchSize": size}} for size in (8, 16, 32))
WANTED = 6
CRASH: dict[str, Any] = {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server"}


@dataclass
class SlowCluster(Cluster):
    """Replicas take eight seconds to get ready, and no more than ``room`` find a place. Pods in ``flaws`` stay bad."""

    room: int = 100
    flaws: dict[str, dict[str, Any]] | None = None

    def kubelet(self) -> None:
        held = {
            name: pod
            for name, pod in self.pods.items()
            if not pod.ready and pod.created and self.now - pod.created < timedelta(seconds=8)
        }
        placed = sorted(self.pods.values(), key=lambda pod: (not pod.ready, pod.created, pod.name))
        for pod in placed[self.room :]:
            held[pod.name] = replace(pod, unschedulable="0/6 nodes are available")
        for name, flaw in (self.flaws or {}).items():
            if name in self.pods:
                held[name] = replace(self.pods[name], **flaw)
        super().kubelet()
        self.pods |= held


def move(cluster: Cluster) -> int:
    """A second of everything; how many ready replicas are behind the Service after it."""
    cluster.move()
    return sum(entry.ready for entry in cluster.endpoints)


def canary(done: Callable[[SlowCluster, str], bool], **rollout: Any) -> tuple[SlowCluster, str, str]:
    """On the way from a first revision to a second one when it is ``done``, which is told the first one's name; with
    that name and the candidate's."""
    asked = {"strategy": "Canary", **rollout}
    cluster = SlowCluster(spec={**SPEC, **FIRST, "replicas": WANTED, "rollout": asked})
    cluster.settle()
    first = cluster.revision
    cluster.edit(**SECOND)
    for _ in range(200):
        move(cluster)
        if done(cluster, first):
            return cluster, first, cluster.status["rollout"]["candidate"]
    raise AssertionError(f"never there: {cluster.status['rollout']}, {cluster.replicas()}")


def step_is(cluster: Cluster, step: str) -> bool:
    return bool(cluster.status.get("rollout", {}).get("step") == step)


def half_way(stays: int = 2, **rollout: Any) -> tuple[SlowCluster, str, str]:
    """In an expansion that left the stable revision ``stays`` replicas; its name and the candidate's."""
    return canary(lambda cluster, first: step_is(cluster, "Expanding") and cluster.replicas().get(first) == stays,
                  **{"analysis": {"seconds": 10}, **rollout})


def out_of_time(cluster: SlowCluster, revision: str) -> None:
    name = f"minilm-{revision}"
    cluster.deployments[name] = replace(cluster.deployments[name], progress_deadline_exceeded=True)


def one_crashes(cluster: SlowCluster, revision: str) -> None:
    name = next(pod.name for pod in cluster.pods.values() if pod.revision == revision and pod.ready)
    cluster.flaws = {name: {**CRASH, "ready": False}}
    cluster.pods[name] = replace(cluster.pods[name], ready=False, **CRASH)


@pytest.mark.parametrize(
    ("trouble", "surge", "least"),
    [(out_of_time, 1, 6), (out_of_time, 2, 6), (out_of_time, 0, 5), (one_crashes, 1, 5), (one_crashes, 0, 4)],
)
def test_a_rollback_runs_the_expansion_backwards(
    trouble: Callable[[SlowCluster, str], None], surge: int, least: int
) -> None:
    cluster, first, second = half_way(maxSurge=surge)
    trouble(cluster, second)
    for _ in range(150):
        assert move(cluster) >= least
        assert len(cluster.pods) <= WANTED + surge
        assert cluster.says("RolloutComplete") == "False/RolledBack"
        if cluster.replicas() == {first: WANTED}:
            break
        assert f"{second} keeps a part of the traffic" in cluster.condition("RolloutComplete")["message"]
    assert cluster.replicas() == {first: WANTED}
    move(cluster)
    assert cluster.revision == first
    assert "keeps a part" not in cluster.condition("RolloutComplete")["message"]


def test_where_no_replica_finds_a_place_one_makes_room() -> None:
    cluster, first, second = half_way()
    cluster.room = WANTED
    out_of_time(cluster, second)
    assert min(move(cluster) for _ in range(150)) >= WANTED - 1
    assert cluster.replicas() == {first: WANTED}


def test_an_engine_that_fails_requests_stands_in_for_half_at_most() -> None:
    cluster, first, second = half_way()
    cluster.failing = {second: 0.5}
    for _ in range(20):
        move(cluster)
        if cluster.says("RolloutComplete") == "False/RolledBack":
            break
    assert cluster.replicas() == {first: WANTED, second: 1}
    assert min(move(cluster) for _ in range(20)) >= WANTED // 2
    assert cluster.replicas() == {first: WANTED}


def test_a_newer_spec_does_not_wait_for_replicas_that_crash_nor_stop_those_that_serve() -> None:
    cluster, _, second = half_way()
    one_crashes(cluster, second)
    cluster.edit(**THIRD)
    assert min(move(cluster) for _ in range(250)) >= WANTED - 1
    assert cluster.says("Ready") == "True/Serving"
    assert second not in cluster.replicas()


@pytest.mark.parametrize("edit", [THIRD, FIRST, {"engine": {"maxBatchSize": 64}, "serving": {"image": "example/t:3"}}])
def test_a_spec_that_changes_during_the_way_back(edit: dict[str, Any]) -> None:
    cluster, first, second = half_way()
    out_of_time(cluster, second)
    move(cluster)
    move(cluster)
    cluster.edit(**edit)
    assert min(move(cluster) for _ in range(250)) >= WANTED
    assert cluster.says("Ready") == "True/Serving"
    assert (cluster.revision == first) == (edit is FIRST)


def test_a_spec_that_changes_in_a_step_that_gave_most_of_the_traffic_away() -> None:
    cluster, _, _ = eighty()
    cluster.edit(**THIRD, rollout={"analysis": {"seconds": 10}})
    assert min(move(cluster) for _ in range(250)) >= WANTED
    assert cluster.says("Ready") == "True/Serving"


def eighty(**rollout: Any) -> tuple[SlowCluster, str, str]:
    """In the analysis of a step that shrank the stable revision to one replica."""
    steps = [{"weight": 80, "analysisSeconds": 300}]
    return canary(lambda cluster, _: step_is(cluster, "Analysing"), **{"steps": steps, **rollout})


@pytest.mark.parametrize("begun", [half_way, eighty])
def test_blue_green_that_is_set_in_the_middle_of_a_canary(begun: Callable[[], tuple[SlowCluster, str, str]]) -> None:
    cluster, _, second = begun()
    cluster.edit(rollout={"strategy": "BlueGreen", "analysis": {"seconds": 10}})
    assert min(move(cluster) for _ in range(120)) >= WANTED
    assert cluster.says("Ready") == "True/Serving"
    assert cluster.revision == second


def test_blue_green_that_is_set_in_the_middle_of_exact_shares() -> None:
    gateway = {"parentRefs": [{"name": "public"}], "hostnames": ["a.example"]}
    cluster, first, second = eighty(gateway=gateway)
    assert cluster.routes["HTTPRoute"] == {first: 20, second: 80}
    cluster.edit(rollout={"strategy": "BlueGreen", "analysis": {"seconds": 10}, "gateway": gateway})
    for _ in range(120):
        move(cluster)
        share = cluster.routes["HTTPRoute"].get(first, 0)
        assert share <= 100 * cluster.slices.get(first, 0) // WANTED + 1, "no more than its replicas can take"
    assert cluster.routes["HTTPRoute"] == {second: 100}


@pytest.mark.parametrize("begun", [half_way, eighty])
def test_recreate_that_is_set_in_the_middle_of_a_canary(begun: Callable[[], tuple[SlowCluster, str, str]]) -> None:
    cluster, first, second = begun()
    cluster.edit(rollout={"strategy": "Recreate"})
    for _ in range(150):
        behind = move(cluster)
        if second not in cluster.replicas():
            break
        assert behind >= WANTED
    assert cluster.replicas() == {first: WANTED}, "what is not proven does not take over"
    assert "takes all traffic before" in cluster.condition("RolloutComplete")["message"]
    for _ in range(40):
        move(cluster)
    assert cluster.says("Ready") == "True/Serving"
    assert cluster.revision == second


def test_recreate_does_not_wait_for_a_stable_revision_that_crashes() -> None:
    cluster, first, second = eighty()
    one_crashes(cluster, first)
    cluster.edit(rollout={"strategy": "Recreate"})
    for _ in range(40):
        move(cluster)
    assert cluster.replicas() == {second: WANTED}


@pytest.mark.parametrize("left", [set(), {"HTTPRoute"}], ids=["all of it", "gRPC"])
@pytest.mark.parametrize("surge", [0, 1])
def test_a_gateway_api_that_vanishes_runs_the_expansion_backwards(surge: int, left: set[str]) -> None:
    gateway = {"parentRefs": [{"name": "public"}], "hostnames": ["a.example"], "grpcHostnames": ["grpc.a.example"]}
    cluster, first, second = half_way(gateway=gateway, maxSurge=surge)
    cluster.kinds = left
    for kind in set(cluster.routes) - left:
        del cluster.routes[kind]
        del cluster.applied[f"{kind}/minilm"]
    for _ in range(100):
        assert move(cluster) >= WANTED - (surge == 0)
        assert len(cluster.pods) <= WANTED + surge
        assert cluster.says("RolloutComplete") == "False/GatewayNotInstalled"
        if cluster.replicas() == {first: WANTED}:
            break
        told = cluster.condition("RolloutComplete")["message"]
        assert cluster.replicas()[first] == WANTED or f"revision {second} keeps a part of the traffic" in told
    assert cluster.replicas() == {first: WANTED}
    move(cluster)
    assert cluster.revision == first
    assert "keeps a part" not in cluster.condition("RolloutComplete")["message"]


def test_a_gateway_takes_the_share_away_as_the_stable_replicas_come_back() -> None:
    gateway = {"parentRefs": [{"name": "public"}], "hostnames": ["a.example"]}
    cluster, first, second = half_way(gateway=gateway)
    out_of_time(cluster, second)
    shares = []
    for _ in range(100):
        move(cluster)
        (weights,) = cluster.routes.values()
        shares.append(weights.get(second, 0))
    assert shares[0] >= 60
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0
    assert cluster.replicas() == {first: WANTED}

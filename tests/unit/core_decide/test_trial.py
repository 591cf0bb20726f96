"""A revision that collapses under its first live traffic is left again: the old one is still there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.cluster import Cluster, built

CRASH = {"phase": "Running", "restarts": 1, "exit_code": 1, "failed_container": "server", "terminated_reason": "Error"}


def switched(**rollout: Any) -> tuple[Cluster, str, str]:
    """A cluster whose Service has just been switched, and its old and new revision, of four replicas each."""
    rollout = {"strategy": "BlueGreen", "analysisSeconds": 0, **rollout}
    cluster = Cluster(spec={"source": {"uri": "pvc://models/minilm"}, "placement": {"accelerator": "cpu"},
                            "replicas": 4, "rollout": rollout})  # fmt: skip
    cluster.settle()
    old = cluster.revision
    cluster.edit(engine={"precision": "fp32"})
    for _ in range(30):
        cluster.operate()
        if cluster.revision not in (old, ""):
            return cluster, old, cluster.revision
        cluster.finish(built(built_at=cluster.now), of="build")
        cluster.controllers()
        cluster.wait(1)
    raise AssertionError("never switched")


def fall(cluster: Cluster, revision: str, count: int, **fields: Any) -> None:
    """Replicas that stop answering under the traffic."""
    for pod in [pod for pod in cluster.pods.values() if pod.revision == revision][:count]:
        cluster.pods[pod.name] = replace(pod, ready=False, **fields)
    for name in cluster.deployments:
        cluster._count(name)
    cluster.endpoint_controller()


def answering(cluster: Cluster) -> int:
    return sum(endpoint.ready for endpoint in cluster.endpoints)


@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_crash_at_the_first_live_traffic_goes_back(after: int) -> None:
    cluster, old, new = switched()
    for _ in range(after):
        cluster.controllers()
        cluster.wait(1)
        cluster.operate()
    cluster.endpoint_controller()
    fall(cluster, new, 3, **CRASH)
    cluster.operate()
    assert cluster.replicas() == {old: 4}
    assert cluster.says("RolloutComplete") == "False/RolledBack"
    assert "restarted 1 time (Error, container server)" in cluster.condition("RolloutComplete")["message"]
    cluster.controllers()
    assert (cluster.revision, answering(cluster)) == (old, 4)
    cluster.settle()
    assert (cluster.revision, cluster.replicas()) == (old, {old: 4})


def test_replicas_that_are_not_ready_any_more_give_the_traffic_back_until_they_are() -> None:
    cluster, old, new = switched()
    cluster.endpoint_controller()
    fall(cluster, new, 3)
    cluster.operate()
    assert cluster.replicas() == {old: 4, new: 4}
    cluster.endpoint_controller()
    assert (cluster.revision, answering(cluster)) == (old, 4)
    cluster.settle()
    assert (cluster.revision, cluster.replicas()) == (new, {new: 4})


def test_replicas_that_fall_at_every_switch_are_given_up() -> None:
    cluster, old, new = switched()
    for fallen in (1, 2, 3):
        cluster.endpoint_controller()
        fall(cluster, new, 3)
        cluster.operate()
        assert (cluster.status["rollout"].get("falls"), cluster.revision) == (fallen if fallen < 3 else None, old)
        if fallen < 3:
            cluster.controllers()
            cluster.wait(1)
            cluster.operate()
            assert cluster.revision == new
    assert cluster.replicas() == {old: 4}
    assert "stopped being ready 3 times until the traffic had moved" in cluster.condition("RolloutComplete")["message"]


def test_a_lost_status_does_not_remove_what_answers_better() -> None:
    cluster, old, new = switched()
    cluster.endpoint_controller()
    fall(cluster, new, 3)
    cluster.status = {}
    cluster.operate()
    assert cluster.replicas() == {old: 4, new: 4}
    cluster.settle()
    assert (cluster.revision, cluster.replicas()) == (new, {new: 4})


def test_more_replicas_that_are_wanted_do_not_wait_for_the_room_of_the_old_ones() -> None:
    cluster, _, new = switched()
    cluster.endpoint_controller()
    cluster.edit(replicas=8)
    cluster.operate()
    cluster.operate()
    assert cluster.replicas() == {new: 8}


@pytest.mark.parametrize("wanted", [0, 1])
def test_fewer_that_are_wanted_send_nothing_back(wanted: int) -> None:
    cluster, old, new = switched()
    cluster.endpoint_controller()
    cluster.edit(replicas=wanted)
    for _ in range(20):
        cluster.step()
        assert cluster.revision != old
        cluster.wait(5)
    assert cluster.replicas() == {new: wanted}


def test_the_trial_ends() -> None:
    cluster, old, _ = switched()
    began = cluster.now
    while old in cluster.replicas():
        cluster.step()
    assert 15 <= (cluster.now - began).total_seconds() <= 18


def test_a_canary_has_had_its_trial() -> None:
    cluster, _, new = switched(strategy="Canary", maxSurge=1)
    cluster.step()
    cluster.step()
    cluster.step()
    assert cluster.replicas() == {new: 4}

"""Where no replica is wanted none starts, nothing is promoted unproven, and what was proven is still there later."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.core import labels
from support.cluster import SPEC, Cluster, described
from support.once import once

FIRST, SECOND, THIRD = ({"engine": {"maxBatchSize": size}} for size in (8, 16, 32))
CRASH: dict[str, Any] = {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server"}
GATEWAY: dict[str, Any] = {
    "parentRefs": [{"name": "public"}], "hostnames": ["a.example"], "grpcHostnames": ["grpc.a.example"]}
ROLLOUTS: tuple[dict[str, Any], ...] = (
    {"strategy": "Canary"}, {"strategy": "Canary", "maxSurge": 0}, {"strategy": "BlueGreen"},
    {"strategy": "Canary", "gateway": GATEWAY}, {"strategy": "BlueGreen", "gateway": GATEWAY})


@once
def serving(replicas: int = 2, **rollout: Any) -> Cluster:
    asked = {"analysis": {"seconds": 20}, **rollout}
    cluster = Cluster(spec={**SPEC, **FIRST, "replicas": replicas, "rollout": asked})
    cluster.settle()
    return cluster


def until_step(cluster: Cluster, step: str) -> str:
    """The candidate in that step."""
    for _ in range(120):
        cluster.move()
        known = cluster.status.get("rollout", {})
        if known.get("step") == step and known.get("candidate") not in (None, known.get("stable")):
            return str(known["candidate"])
    raise AssertionError(f"never {step}: {cluster.condition('RolloutComplete')}")


def test_zero_replicas_serve_nothing_and_say_so() -> None:
    cluster = serving()
    cluster.edit(replicas=0)
    cluster.settle()
    assert cluster.says("Ready") == "False/NoReplica"
    assert cluster.says("Available") == "False/ScaledToZero"
    assert cluster.says("RolloutComplete") == "True/Complete"
    cluster.edit(engine={"precision": "rubbish"})
    cluster.operate()
    assert cluster.says("Ready") == "False/InvalidSpec"
    assert cluster.says("Available") == "False/ScaledToZero"
    cluster.edit(**FIRST)
    cluster.edit(replicas=1)
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"


def test_an_outage_is_told_from_no_replica_that_is_wanted() -> None:
    cluster = serving()
    cluster.broken[cluster.revision] = CRASH
    cluster.pods = {}
    for _ in range(5):
        cluster.move()
    assert cluster.says("Available") == "False/NoReplica"
    cluster.edit(suspend=True)
    cluster.move()
    assert cluster.says("Available") == "False/NoReplica"


@pytest.mark.parametrize("rollout", ROLLOUTS)
@pytest.mark.parametrize("step", ["Starting", "Analysing", "WaitingForPromotion"])
def test_a_candidate_that_is_not_proven_is_not_promoted_by_scaling_to_zero(step: str, rollout: dict[str, Any]) -> None:
    cluster = serving(**rollout, autoPromote=step != "WaitingForPromotion")
    old = cluster.revision
    cluster.edit(**SECOND)
    new = until_step(cluster, step)
    cluster.edit(replicas=0)
    cluster.settle()
    assert not cluster.pods
    assert cluster.replicas() == {old: 0}
    assert cluster.status["rollout"]["stable"] == old
    assert cluster.says("RolloutComplete") == "False/WaitingForReplicas"
    message = cluster.condition("RolloutComplete")["message"]
    assert f"revision {old} stays the stable one, and the rollout of revision {new} begins when there are" in message
    assert cluster.plan().requeue_after is None
    cluster.edit(replicas=2)
    for _ in range(3):
        cluster.move()
    assert cluster.replicas()[old] > 0
    cluster.failing = {new: 0.5}
    cluster.annotations[labels.PROMOTE] = new
    for _ in range(100):
        cluster.move()
    assert cluster.says("RolloutComplete") == "False/RolledBack", "analysed when there are replicas again"
    assert cluster.replicas() == {old: 2}


@pytest.mark.parametrize("rollout", ROLLOUTS)
def test_a_new_spec_at_zero_replicas_waits_to_be_proven(rollout: dict[str, Any]) -> None:
    cluster = serving(**rollout)
    old = cluster.revision
    cluster.edit(replicas=0)
    cluster.settle()
    cluster.edit(**SECOND)
    cluster.settle()
    assert cluster.replicas() == {old: 0}
    assert cluster.says("RolloutComplete") == cluster.says("Ready") == "False/WaitingForReplicas"
    cluster.edit(replicas=2)
    until_step(cluster, "Analysing")
    cluster.settle()
    assert cluster.revision != old
    assert cluster.says("Ready") == "True/Serving"


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen"])
def test_a_candidate_that_has_passed_takes_over_at_zero(strategy: str) -> None:
    cluster = serving(strategy=strategy)
    cluster.edit(**SECOND)
    new = until_step(cluster, "Switching")
    cluster.edit(replicas=0)
    cluster.settle()
    assert cluster.replicas() == {new: 0}
    assert cluster.status["rollout"]["stable"] == new
    assert cluster.says("RolloutComplete") == "True/Complete"


@pytest.mark.parametrize("gateway", [{}, {"gateway": GATEWAY}])
def test_recreate_which_proves_nothing_beside_the_old_one_settles_at_zero(gateway: dict[str, Any]) -> None:
    cluster = serving(strategy="Recreate", **gateway)
    cluster.edit(replicas=0)
    cluster.settle()
    cluster.edit(**SECOND)
    for _ in range(60):
        cluster.move()
        assert not cluster.pods, "for nothing"
    assert cluster.replicas() == {}
    assert cluster.says("RolloutComplete") == "True/Complete"
    assert "has no replica, as asked, and is not proven yet" in cluster.condition("RolloutComplete")["message"]
    assert "stable" not in cluster.status["rollout"]
    assert cluster.plan().requeue_after is None
    cluster.edit(replicas=2)
    cluster.settle()
    assert list(cluster.replicas().values()) == [2]
    assert cluster.says("Ready") == "True/Serving"


@pytest.mark.parametrize("rollout", [*ROLLOUTS, {"strategy": "Recreate"}])
def test_a_first_engine_at_zero_replicas_settles_and_no_pod_starts(rollout: dict[str, Any]) -> None:
    cluster = Cluster(spec={**SPEC, **FIRST, "replicas": 0, "rollout": {"analysis": {"seconds": 20}, **rollout}})
    for edit in (FIRST, SECOND):
        cluster.edit(**edit)
        for _ in range(30):
            plan = cluster.operate()
            assert not [text for text in described(plan) if "Deployment" in text]
            cluster.settle_jobs()
            cluster.controllers()
            cluster.wait(1)
            assert not cluster.pods, "for nothing"
        assert cluster.says("RolloutComplete") == "True/Complete"
        assert "stable" not in cluster.status["rollout"], "nothing was proven"
        assert "revisions" not in cluster.status
        assert not cluster.plan().actions
    cluster.edit(replicas=3)
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    assert cluster.replicas() == {cluster.revision: 3}
    assert cluster.status["rollout"]["stable"] == cluster.revision


def test_zero_replicas_leave_nothing_running_of_a_rollout_that_a_newer_spec_ended() -> None:
    """The half-rolled revision answers, the stable one was shrunk for it: at zero neither is to be spared."""
    cluster = serving(replicas=4)
    first = cluster.revision
    cluster.edit(**SECOND)
    until_step(cluster, "Expanding")
    while cluster.replicas()[first]:
        cluster.operate()
        cluster.controllers()
    cluster.edit(**THIRD, replicas=0)
    for _ in range(20):
        cluster.operate()
        cluster.controllers()
        cluster.wait(1)
    assert not cluster.pods, "while the newest engine is built"


def test_what_was_given_up_does_not_come_back_at_zero_replicas() -> None:
    cluster = serving(analysis={"seconds": 0})
    old = cluster.revision
    cluster.edit(**SECOND)
    for _ in range(8):
        cluster.operate()
        cluster.settle_jobs()
        cluster.broken = {revision: CRASH for revision in cluster.replicas() if revision != old}
        cluster.controllers()
        cluster.wait(5)
    assert cluster.says("RolloutComplete") == "False/RolledBack"
    cluster.edit(replicas=0)
    cluster.settle()
    assert cluster.replicas() == {old: 0}
    assert cluster.says("RolloutComplete") == "False/RolledBack"

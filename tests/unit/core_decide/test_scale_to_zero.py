"""autoscaling.minReplicas 0: who takes the requests on the way down, at zero, and on the way up."""

from __future__ import annotations

from typing import Any

import pytest

from support.cluster import SPEC, Cluster, described
from support.once import once

AUTO = {"minReplicas": 0, "maxReplicas": 4, "scaleToZeroAfterSeconds": 10,
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}}}
CRASH: dict[str, Any] = {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server"}


@once
def serving(**spec: Any) -> Cluster:
    cluster = Cluster(spec={**SPEC, "autoscaling": AUTO, "rollout": {"analysis": {"seconds": 20}}, **spec})
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    return cluster


def idle(cluster: Cluster, seconds: int = 12) -> None:
    cluster.queue(0, seconds=seconds, arrived=0.0)


def asleep(**spec: Any) -> Cluster:
    cluster = serving(**spec)
    idle(cluster)
    for _ in range(4):
        cluster.operate()
        cluster.controllers()
        cluster.queue(0, seconds=1, arrived=0.0)
    assert not cluster.pods
    return cluster


def test_the_first_engine_serves_before_it_may_sleep() -> None:
    cluster = serving()
    assert list(cluster.replicas().values()) == [1]
    assert cluster.activators
    assert cluster.backend == cluster.revision


def test_down_the_service_leaves_first_then_the_way_is_closed_then_the_replica_goes() -> None:
    cluster = serving()
    revision = cluster.revision
    idle(cluster)
    plan = cluster.operate()
    assert described(plan) == ["Apply Service minilm"], "nobody is stopped yet"
    assert cluster.service is not None
    assert cluster.service.activator
    assert cluster.backend == revision, "what still comes through the activator reaches the replica"
    assert [event.reason for event in plan.events if event.action == "Scale"] == ["Scaling"]
    assert plan.requeue_after == 1.0
    assert cluster.says("Ready") == "True/ScaledToZero"
    assert cluster.says("Available") == "True/Serving"
    assert described(cluster.operate()) == [], "the slices of the Service still have the replica"
    cluster.controllers()
    assert described(cluster.operate()) == ["Apply Service minilm-replicas", f"Scale minilm-{revision} 0"]
    assert cluster.backend == "none"
    cluster.controllers()
    cluster.queue(0, seconds=1)
    assert described(cluster.operate()) == []
    assert cluster.says("ScalingActive") == "True/ScaledToZero"
    assert cluster.says("Ready") == "True/ScaledToZero"
    assert cluster.says("Available") == "True/ScaledToZero"
    assert cluster.status["autoscaling"]["desiredReplicas"] == 0
    assert cluster.status["rollout"]["stable"] == revision


def test_a_request_on_the_way_down_turns_it_back() -> None:
    cluster = serving()
    revision = cluster.revision
    idle(cluster)
    cluster.operate()
    cluster.controllers()
    cluster.queue(0, seconds=1, arrived=1.0)
    assert described(cluster.operate()) == ["Apply Service minilm"]
    assert cluster.service is not None
    assert (cluster.service.activator, cluster.service.revision) == (False, revision)
    assert cluster.replicas() == {revision: 1}


def test_up_with_the_first_request_and_direct_again_when_a_replica_is_ready() -> None:
    cluster = asleep()
    ((revision, _),) = cluster.replicas().items()
    cluster.queue(0, seconds=1, held=1.0)
    plan = cluster.operate()
    assert described(plan) == [f"Scale minilm-{revision} 1"]
    assert "1 request waits and no replica runs: 1 replica." in cluster.status["autoscaling"]["decisions"][0]["reason"]
    cluster.deployment_controller()
    cluster.queue(0, seconds=1, held=5.0)
    assert described(cluster.operate()) == [], "held requests ask for one replica, however many they are"
    assert cluster.says("Available") == "True/Waking"
    assert cluster.says("Ready") == "False/ReplicasNotReady"
    cluster.kubelet()
    assert described(cluster.operate()) == ["Apply Service minilm-replicas", "Apply Service minilm"]
    assert cluster.backend == cluster.revision == revision
    cluster.operate()
    assert cluster.says("Available") == "True/Waking", "the slices of the Service still have the activator alone"
    cluster.controllers()
    cluster.operate()
    assert cluster.says("Ready") == "True/Serving"
    assert cluster.says("Available") == "True/Serving"


def test_it_is_not_available_while_the_replica_that_is_to_wake_cannot_start() -> None:
    cluster = asleep()
    ((revision, _),) = cluster.replicas().items()
    cluster.broken = {revision: CRASH}
    cluster.queue(0, seconds=1, held=1.0)
    for _ in range(3):
        cluster.operate()
        cluster.controllers()
    cluster.operate()
    assert cluster.says("Available") == "False/NoReplica"
    assert cluster.says("Ready") == "False/ReplicasNotReady"


def test_replicas_that_are_lost_are_stood_in_for() -> None:
    cluster = serving()
    cluster.pods = {name: pod for name, pod in cluster.pods.items() if not pod.ready}
    plan = cluster.operate()
    assert described(plan) == ["Apply Service minilm-replicas", "Apply Service minilm"]
    assert cluster.service is not None
    assert cluster.service.activator
    cluster.controllers()
    cluster.operate()
    assert cluster.service.activator is False


def test_without_an_activator_that_answers_one_replica_stays_and_the_service_is_direct() -> None:
    cluster = Cluster(spec={**SPEC, "autoscaling": AUTO}, holding=False)
    cluster.settle()
    idle(cluster, 30)
    plan = cluster.operate()
    assert described(plan) == []
    assert list(cluster.replicas().values()) == [1]
    assert cluster.service is not None
    assert not cluster.service.activator


def test_an_activator_that_is_lost_at_zero_wakes_a_replica() -> None:
    cluster = asleep()
    ((revision, _),) = cluster.replicas().items()
    cluster.holding = False
    cluster.kubelet()
    assert f"Scale minilm-{revision} 1" in described(cluster.operate())


def test_an_operator_that_starts_anew_at_zero_leaves_it_asleep() -> None:
    cluster = asleep()
    cluster.signals = None
    assert described(cluster.operate()) == []
    assert cluster.says("ScalingActive") == "True/ScaledToZero"


def test_an_activator_that_does_not_answer_wakes_a_replica() -> None:
    cluster = asleep()
    ((revision, _),) = cluster.replicas().items()
    cluster.signals = None
    cluster.operate()
    cluster.wait(11)
    plan = cluster.operate()
    assert f"Scale minilm-{revision} 1" in described(plan)
    assert "so that no request waits unseen" in cluster.status["autoscaling"]["decisions"][0]["reason"]


def test_switched_off_it_leaves_nothing_behind() -> None:
    cluster = serving()
    cluster.edit(autoscaling={**AUTO, "minReplicas": 1})
    cluster.settle()
    assert not cluster.activators
    assert cluster.backend is None
    assert not [key for key in cluster.applied if "activator" in key or "replicas" in key]
    assert cluster.says("Ready") == "True/Serving"


@pytest.mark.parametrize("spec", [{"autoscaling": {**AUTO, "minReplicas": 1}}, {"autoscaling": None, "replicas": 1}])
def test_switched_off_at_zero_it_holds_requests_until_a_replica_is_ready(spec: dict[str, Any]) -> None:
    cluster = asleep()
    ((revision, _),) = cluster.replicas().items()
    cluster.edit(**spec)
    assert described(cluster.operate()) == [f"Scale minilm-{revision} 1"]
    assert cluster.service is not None
    assert cluster.service.activator, "else requests would be refused for as long as a replica takes to start"
    assert cluster.backend == "none"
    cluster.deployment_controller()
    assert described(cluster.operate()) == []
    assert cluster.says("Available") == "True/Waking"
    cluster.kubelet()
    assert described(cluster.operate()) == ["Apply Service minilm-replicas", "Apply Service minilm"]
    assert cluster.backend == cluster.revision == revision
    assert described(cluster.operate()) == [], "the slices of the Service still have the activator"
    cluster.controllers()
    assert described(cluster.operate()) == ["Delete Deployment minilm-activator"]
    cluster.controllers()
    assert described(cluster.operate()) == ["Delete Service minilm-replicas"]
    assert not cluster.activators
    assert cluster.says("Ready") == "True/Serving"


def test_switched_off_without_an_activator_that_answers_the_service_is_direct_at_once() -> None:
    cluster = asleep()
    ((revision, _),) = cluster.replicas().items()
    cluster.holding = False
    cluster.kubelet()
    cluster.edit(autoscaling={**AUTO, "minReplicas": 1})
    cluster.operate()
    assert cluster.revision == cluster.backend == revision
    cluster.settle()
    assert not cluster.activators
    assert cluster.says("Ready") == "True/Serving"


def test_zero_replicas_by_hand_need_no_activator() -> None:
    cluster = asleep()
    cluster.edit(autoscaling=None, replicas=0)
    cluster.settle()
    assert not cluster.activators
    assert cluster.says("Ready") == "False/NoReplica"
    assert cluster.says("Available") == "False/ScaledToZero"


def test_a_new_spec_at_zero_is_proven_when_a_request_comes() -> None:
    cluster = asleep()
    ((old, _),) = cluster.replicas().items()
    cluster.edit(engine={"maxBatchSize": 8})
    for _ in range(10):
        cluster.operate()
        cluster.settle_jobs()
        cluster.controllers()
        cluster.queue(0, seconds=1)
    assert cluster.replicas() == {old: 0}
    assert cluster.says("RolloutComplete") == "False/WaitingForReplicas"
    assert cluster.says("Available") == "True/ScaledToZero"
    cluster.queue(0, seconds=1, held=1.0)
    for _ in range(60):
        cluster.operate()
        cluster.controllers()
        cluster.queue(0, seconds=1, arrived=20.0)
    assert old not in cluster.replicas()
    assert cluster.says("Ready") == "True/Serving"


def test_suspended_at_zero_nothing_starts_and_nothing_is_promised() -> None:
    cluster = asleep()
    cluster.edit(suspend=True)
    cluster.queue(0, seconds=1, held=1.0)
    assert described(cluster.operate()) == []
    assert cluster.says("Ready") == cluster.says("Available") == "False/NoReplica"
    cluster.edit(suspend=None)
    cluster.queue(0, seconds=1, held=1.0)
    cluster.operate()
    assert list(cluster.replicas().values()) == [1]


def test_without_the_wish_nothing_of_it_is_made() -> None:
    cluster = Cluster(spec={**SPEC, "autoscaling": {**AUTO, "minReplicas": 1}})
    cluster.settle()
    assert not cluster.activators
    assert cluster.backend is None

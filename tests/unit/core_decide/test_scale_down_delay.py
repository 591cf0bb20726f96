"""After a BlueGreen switch the old revision stays for a while, and takes the traffic back from one that collapses."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from enginewright.core.conditions import parse_timestamp, timestamp
from enginewright.core.plan import Plan
from support.cluster import SPEC, START, Cluster, built


def switched(replicas: int = 2, delay: int | None = None) -> tuple[Cluster, str, str]:
    """A cluster whose Service selects the new revision since a pass ago; its old and its new revision."""
    rollout: dict[str, Any] = {"strategy": "BlueGreen", "analysis": {"seconds": 10}}
    if delay is not None:
        rollout["scaleDownDelaySeconds"] = delay
    cluster = Cluster(spec={**SPEC, "replicas": replicas, "rollout": rollout})
    cluster.settle()
    old = cluster.revision
    cluster.edit(engine={"precision": "fp32"})
    cluster.operate()
    cluster.finish(built(built_at=cluster.now), of="build")
    until_selected(cluster, other_than=old)
    return cluster, old, selected(cluster)


def draining() -> tuple[Cluster, str, str]:
    """The same a pass later: the new revision alone gets traffic, and the delay goes on."""
    cluster, old, new = switched()
    cluster.endpoint_controller()
    cluster.operate()
    return cluster, old, new


def selected(cluster: Cluster) -> str:
    assert cluster.service is not None
    return cluster.service.revision


def until_selected(cluster: Cluster, *, other_than: str) -> None:
    for _ in range(90):
        if selected(cluster) != other_than:
            return
        cluster.step()
    raise AssertionError(cluster.condition("RolloutComplete"))


def since_the_switch(cluster: Cluster) -> datetime:
    found = parse_timestamp(cluster.status["rollout"]["stepStartTime"])
    assert found is not None
    return found


def collapse(cluster: Cluster, revision: str) -> None:
    for pod in list(cluster.pods.values()):
        if pod.revision == revision:
            cluster.pods[pod.name] = replace(pod, ready=False)
    cluster.endpoint_controller()
    cluster.operate()


@pytest.mark.parametrize(("delay", "seconds"), [(None, 30), (90, 90)])
def test_it_stays_at_full_strength_for_as_long_as_the_spec_says_and_says_until_when(delay: int | None,
                                                                                    seconds: int) -> None:
    cluster, old, new = switched(delay=delay)
    end = since_the_switch(cluster) + timedelta(seconds=seconds)
    said = f"Revision {new} took over; revision {old} can take the traffic back until {timestamp(end)}, then it stops."
    cluster.endpoint_controller()
    while cluster.now < end:
        cluster.operate()
        assert cluster.replicas() == {old: 2, new: 2}
        assert cluster.condition("RolloutComplete")["message"] == said
        cluster.wait(1)
    cluster.operate()
    assert cluster.replicas() == {new: 2}
    cluster.settle()
    assert cluster.says("RolloutComplete") == "True/Complete"


def test_without_a_delay_it_goes_as_soon_as_it_has_no_traffic() -> None:
    cluster, old, new = switched(delay=0)
    cluster.endpoint_controller()
    cluster.operate()
    assert cluster.replicas() == {new: 2}, old


def test_the_last_moment_of_the_delay_is_looked_at_in_time() -> None:
    cluster, _, _ = switched(delay=20)
    cluster.endpoint_controller()
    end = since_the_switch(cluster) + timedelta(seconds=20)
    while cluster.now < end - timedelta(seconds=3):
        cluster.wait(1)
        plan = cluster.operate()
    assert plan.requeue_after is not None
    assert cluster.now + timedelta(seconds=plan.requeue_after) <= end


def test_where_none_of_the_new_answers_the_old_one_takes_the_traffic_back_at_once() -> None:
    cluster, old, new = draining()
    assert cluster.says("RolloutComplete") == "False/Draining"
    collapse(cluster, new)
    assert selected(cluster) == old
    assert cluster.replicas() == {old: 2, new: 2}
    assert cluster.status["rollout"]["readinessLosses"] == 1


def test_one_replica_less_is_no_collapse() -> None:
    cluster, old, new = draining()
    name = next(pod.name for pod in cluster.pods.values() if pod.revision == new)
    cluster.pods[name] = replace(cluster.pods[name], ready=False)
    cluster.endpoint_controller()
    cluster.operate()
    assert selected(cluster) == new
    assert cluster.replicas() == {old: 2, new: 2}, "the delay goes on"
    cluster.settle()
    assert cluster.replicas() == {new: 2}


def test_the_third_collapse_gives_the_new_one_up() -> None:
    cluster, old, new = switched()
    for times in (1, 2):
        cluster.endpoint_controller()
        cluster.operate()
        collapse(cluster, new)
        assert cluster.status["rollout"]["readinessLosses"] == times
        until_selected(cluster, other_than=old)
    cluster.endpoint_controller()
    cluster.operate()
    collapse(cluster, new)
    assert cluster.says("RolloutComplete") == "False/RolledBack"
    assert "ReplicasNotReady" in cluster.condition("RolloutComplete")["message"]
    cluster.settle()
    assert cluster.replicas() == {old: 2}
    assert selected(cluster) == old


def test_replicas_that_a_drain_takes_are_no_collapse_of_the_revision() -> None:
    cluster, old, new = draining()
    for name in [pod.name for pod in cluster.pods.values() if pod.revision == new]:
        del cluster.pods[name]
    cluster.endpoint_controller()
    cluster.operate()
    assert selected(cluster) == old
    assert "readinessLosses" not in cluster.status["rollout"]
    cluster.settle()
    assert cluster.replicas() == {new: 2}


def test_a_spec_that_changes_meanwhile_goes_on_from_what_serves() -> None:
    cluster, old, new = draining()
    cluster.edit(engine={"precision": "int8"})
    cluster.operate()
    assert selected(cluster) == new
    assert old not in cluster.replicas()


def test_no_replica_wanted_ends_the_delay() -> None:
    cluster, _, _ = draining()
    cluster.edit(replicas=0)
    cluster.settle()
    assert not any(cluster.replicas().values())


def test_a_collapse_before_the_switch_was_remembered_counts_as_well() -> None:
    """Nobody looked between the switch and the collapse."""
    cluster, old, new = switched()
    for times in (1, 2):
        assert cluster.status["rollout"]["step"] == "Switching"
        collapse(cluster, new)
        assert cluster.status["rollout"]["readinessLosses"] == times
        assert cluster.status["rollout"]["step"] == "Starting", "it is analysed anew"
        until_selected(cluster, other_than=old)
    collapse(cluster, new)
    assert cluster.says("RolloutComplete") == "False/RolledBack"


def test_where_neither_answers_something_else_is_to_blame() -> None:
    cluster, old, new = draining()
    for name, pod in list(cluster.pods.items()):
        if pod.revision == old:
            cluster.pods[name] = replace(pod, ready=False)
    collapse(cluster, new)
    assert "readinessLosses" not in cluster.status["rollout"]


def test_an_evicted_replica_that_still_lies_about_does_not_count() -> None:
    cluster, _, new = draining()
    for name, pod in list(cluster.pods.items()):
        if pod.revision == new:
            cluster.pods[name] = replace(pod, ready=False, phase="Failed", reason="Evicted")
    cluster.endpoint_controller()
    cluster.operate()
    assert "readinessLosses" not in cluster.status["rollout"]


def test_a_status_that_was_never_written_does_not_end_the_delay() -> None:
    cluster, old, new = switched()
    lost = {**cluster.status["rollout"], "step": "Analysing", "stepStartTime": timestamp(cluster.now)}
    cluster.status = {**cluster.status, "rollout": lost}
    cluster.endpoint_controller()
    cluster.operate()
    assert cluster.replicas() == {old: 2, new: 2}
    assert parse_timestamp(cluster.status["rollout"]["stepStartTime"]) is not None
    cluster.settle()
    assert cluster.replicas() == {new: 2}


def test_a_clock_that_was_set_back_begins_it_again() -> None:
    """The operator now runs on a node with another clock. The delay is neither skipped nor a day longer."""
    cluster, old, new = switched()
    cluster.endpoint_controller()
    cluster.now -= timedelta(days=1)
    cluster.operate()
    assert cluster.replicas() == {old: 2, new: 2}
    cluster.settle()
    assert cluster.replicas() == {new: 2}
    assert cluster.now < START, "the day is not waited for"


def test_the_old_one_makes_room_where_the_new_one_wants_it() -> None:
    cluster, old, new = draining()
    assert old in cluster.replicas()
    name = next(pod.name for pod in cluster.pods.values() if pod.revision == new)
    cluster.pods["waiting"] = replace(cluster.pods[name], name="waiting", ready=False, phase="Pending",
                                      unschedulable="0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    cluster.operate()
    assert old not in cluster.replicas()


def test_an_old_one_that_could_not_serve_is_not_kept() -> None:
    cluster, old, new = switched()
    for name, pod in list(cluster.pods.items()):
        if pod.revision == old:
            cluster.pods[name] = replace(pod, ready=False)
    cluster.endpoint_controller()
    cluster.operate()
    assert cluster.replicas() == {new: 2}, old


def test_a_canary_that_drains_is_not_given_up_for_one_without_replicas() -> None:
    """It had fallen twice under analysis, and now falls when the old one has no replica left."""
    cluster, old, new = draining()
    cluster.status = {**cluster.status, "rollout": {**cluster.status["rollout"], "readinessLosses": 2}}
    for name in [pod.name for pod in cluster.pods.values() if pod.revision == old]:
        del cluster.pods[name]
    collapse(cluster, new)
    assert new in cluster.replicas()
    assert cluster.says("RolloutComplete") != "False/RolledBack"


def until_back(cluster: Cluster, old: str) -> None:
    for _ in range(25):
        cluster.step()
        if selected(cluster) == old:
            return
    raise AssertionError(cluster.condition("RolloutComplete"))


def test_one_that_fails_more_of_the_live_traffic_gives_it_back_and_is_given_up_the_second_time() -> None:
    cluster, old, new = switched(delay=60)
    cluster.failing = {new: 0.3}
    until_back(cluster, old)
    assert cluster.replicas() == {old: 2, new: 2}
    assert "Warning FailedInferences" in cluster.log
    assert cluster.status["rollout"]["failedSwitches"] == 1
    cluster.failing = {}
    until_selected(cluster, other_than=old)
    assert cluster.status["rollout"]["failedSwitches"] == 1
    cluster.failing = {new: 0.3}
    until_back(cluster, old)
    assert cluster.says("RolloutComplete") == "False/RolledBack"
    message = cluster.condition("RolloutComplete")["message"]
    assert "inferences failed after all traffic had moved to it, of the stable revision's 0 of" in message
    cluster.failing = {}
    cluster.settle()
    assert cluster.replicas() == {old: 2}
    assert selected(cluster) == old


def test_where_what_clients_send_has_changed_it_is_promoted_the_second_time() -> None:
    cluster, old, new = switched(delay=60)
    cluster.failing = {old: 0.3, new: 0.3}
    until_back(cluster, old)
    until_selected(cluster, other_than=old)
    cluster.settle()
    assert cluster.replicas() == {new: 2}
    assert cluster.says("RolloutComplete") == "True/Complete"
    assert "failedSwitches" not in cluster.status["rollout"]


def test_one_that_fails_as_often_as_the_old_one_did_stays() -> None:
    cluster, old, new = switched()
    cluster.settle()
    cluster.failing = {new: 0.3}
    cluster.edit(engine={"precision": "int8"})
    cluster.operate()
    cluster.finish(built(built_at=cluster.now), of="build")
    cluster.operate()
    newest = next(iter(set(cluster.replicas()) - {old, new}))
    cluster.failing[newest] = 0.3
    cluster.settle()
    assert cluster.replicas() == {newest: 2}


def alarm(cluster: Cluster) -> Plan:
    """The pass that sends the traffic back, before any of its writes."""
    for _ in range(25):
        cluster.controllers()
        cluster.wait(1)
        plan = cluster.plan()
        if plan.status["rollout"]["step"] in ("Starting", "RolledBack"):
            return plan
        cluster.operate(plan=plan)
    raise AssertionError(cluster.condition("RolloutComplete"))


@pytest.mark.parametrize("step", ["Starting", "RolledBack"])
def test_an_operator_that_is_killed_before_the_traffic_has_gone_back_does_so_next(step: str) -> None:
    cluster, old, new = switched(delay=60)
    cluster.failing = {new: 1.0}
    if step == "RolledBack":
        cluster.operate(plan=alarm(cluster))
        cluster.failing = {}
        until_selected(cluster, other_than=old)
        cluster.failing = {new: 1.0}
    plan = alarm(cluster)
    assert plan.status["rollout"]["step"] == step
    cluster.operate(plan=plan, writes=1)
    assert selected(cluster) == new, "only status is written"
    cluster.signals = None
    cluster.operate()
    assert selected(cluster) == old

"""From one revision to the next without a gap, and back when the new one is no good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.observed import EndpointView
from enginewright.core.plan import keep
from support.cluster import SPEC, Cluster, built, described, refused
from support.once import once

AWAY = {"phase": "Pending", "restarts": 5, "exit_code": 3, "failed_container": "verify",
        "terminated_message": "engine cannot be fetched: StoreUnreachable: no route"}
CRASH = {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server", "terminated_reason": "Error"}
NEW = {"engine": {"precision": "fp32"}}


@once
def serving(*, strategy: str = "Canary", replicas: int = 1, **rollout: Any) -> Cluster:
    """A cluster whose first revision serves on ``replicas``."""
    spec = {**SPEC, "replicas": replicas, "rollout": {"strategy": strategy, "analysis": {"seconds": 60}, **rollout}}
    cluster = Cluster(spec=spec)
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    return cluster


def changed(cluster: Cluster, **edit: Any) -> str:
    """A new spec whose engine has just been built; gives the name of its revision."""
    old = set(cluster.replicas())
    cluster.edit(**(edit or NEW))
    cluster.operate()
    cluster.finish(built(built_at=cluster.now), of="build")
    cluster.operate()
    return next(iter(set(cluster.replicas()) - old))


def until(cluster: Cluster, done: Callable[[], bool], rounds: int = 60) -> None:
    for _ in range(rounds):
        if done():
            return
        cluster.step()
    raise AssertionError(f"never happened; rollout says {cluster.condition('RolloutComplete')}")


def step(cluster: Cluster) -> str:
    return str(cluster.status.get("rollout", {}).get("step"))


def selected(cluster: Cluster) -> str:
    assert cluster.service is not None
    return cluster.service.revision


def test_first_revision_starts_at_full_strength() -> None:
    cluster = Cluster(spec={**SPEC, "replicas": 3})
    cluster.settle()
    assert cluster.replicas() == {cluster.revision: 3}
    assert cluster.says("RolloutComplete") == "True/Complete"
    assert cluster.says("Ready") == "True/Serving"
    assert cluster.status["replicas"] == cluster.status["readyReplicas"] == 3


def test_canary_shares_the_traffic_then_takes_it_over() -> None:
    cluster = serving(replicas=3)
    old = cluster.revision
    new = changed(cluster)
    assert cluster.replicas() == {old: 3, new: 1}
    assert (step(cluster), selected(cluster)) == ("Starting", old)
    until(cluster, lambda: step(cluster) == "Analysing")
    began = cluster.now
    assert selected(cluster) == ""
    assert cluster.replicas() == {old: 3, new: 1}
    assert cluster.says("RolloutComplete") == "False/Analysing"
    assert cluster.says("Available") == "True/ServingPrevious"
    assert cluster.last.watch_queue
    until(cluster, lambda: step(cluster) != "Analysing", rounds=80)
    assert 15 <= (cluster.now - began).total_seconds() <= 20
    until(cluster, lambda: cluster.says("Ready") == "True/Serving")
    assert cluster.replicas() == {new: 3}
    assert selected(cluster) == new


def test_canary_never_needs_more_than_its_surge_nor_serves_with_less() -> None:
    cluster = serving(replicas=4, maxSurge=2, analysis={"seconds": 0})
    changed(cluster)
    for _ in range(40):
        cluster.step()
        running = list(cluster.pods.values())
        assert len(running) <= 4 + 2
        assert sum(endpoint.ready for endpoint in cluster.endpoints) >= 4
    assert cluster.says("Ready") == "True/Serving"


def test_blue_green_switches_only_at_full_strength() -> None:
    cluster = serving(strategy="BlueGreen", replicas=3)
    old = cluster.revision
    new = changed(cluster)
    cluster.operate()
    assert cluster.replicas() == {old: 3, new: 3}
    while selected(cluster) == old:
        assert not any(endpoint.revision == new for endpoint in cluster.endpoints)
        cluster.step()
    assert selected(cluster) == new
    assert cluster.replicas() == {old: 3, new: 3}
    until(cluster, lambda: cluster.says("Ready") == "True/Serving")
    assert cluster.replicas() == {new: 3}


def test_old_revision_stays_until_it_gets_no_traffic() -> None:
    cluster = serving(strategy="BlueGreen", analysis={"seconds": 0}, scaleDownDelaySeconds=0)
    old = cluster.revision
    new = changed(cluster)
    until(cluster, lambda: selected(cluster) == new)
    stale = (EndpointView(pod="x", revision=new, ready=True), EndpointView(pod="y", revision=old, ready=True))
    cluster.endpoints = stale
    cluster.operate()
    assert old in cluster.replicas()
    assert cluster.says("RolloutComplete") == "False/Draining"
    cluster.endpoint_controller()
    cluster.operate()
    assert old not in cluster.replicas()


def test_recreate_frees_the_device_first() -> None:
    cluster = serving(strategy="Recreate", replicas=2)
    old = cluster.revision
    cluster.edit(**NEW)
    cluster.operate()
    cluster.finish(built(built_at=cluster.now), of="build")
    plan = cluster.operate()
    assert described(plan)[-1] == f"Delete Deployment minilm-{old}"
    assert not any(text.startswith("Apply Deployment") for text in described(plan))
    cluster.operate()
    assert cluster.says("RolloutComplete") == "False/Draining"
    assert list(cluster.deployments) == [f"minilm-{old}"]
    until(cluster, lambda: cluster.says("Ready") == "True/Serving")
    assert cluster.replicas() == {cluster.revision: 2}
    assert cluster.revision != old


def test_recreate_without_replicas_says_the_same_until_the_old_deployment_has_gone() -> None:
    """The operator may be killed between what it says and what it does."""
    cluster = serving(strategy="Recreate")
    old = cluster.revision
    cluster.edit(**NEW)
    cluster.edit(replicas=0)
    while any(pod.ready for pod in cluster.pods.values()):
        cluster.operate()
        cluster.deployment_controller()
        cluster.kubelet()
        cluster.endpoint_controller()
    cluster.finish(built(built_at=cluster.now), of="build")
    plan = cluster.plan()
    assert f"Delete Deployment minilm-{old}" in described(plan)
    cluster.status = dict(plan.status)
    assert cluster.plan().status == plan.status


@pytest.mark.parametrize(
    "edit",
    [{"serving": {"image": "example/triton:2"}}, {"placement": {"accelerator": "cpu", "nodeSelector": {"zone": "a"}}}],
)
def test_new_pods_of_the_same_engine_are_rolled_out_without_a_build(edit: dict[str, Any]) -> None:
    cluster = serving(analysis={"seconds": 0})
    old = cluster.revision
    cluster.edit(**edit)
    cluster.settle()
    assert cluster.revision != old
    assert cluster.says("Ready") == "True/Serving"


def test_replicas_are_no_new_revision() -> None:
    cluster = serving()
    old = cluster.revision
    cluster.edit(replicas=3)
    plan = cluster.operate()
    assert described(plan) == [f"Scale minilm-{old} 3", "Apply PodDisruptionBudget minilm"]
    assert cluster.says("Ready") == "False/ReplicasNotReady"
    assert cluster.says("RolloutComplete") == "True/Complete"
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"


def test_a_candidate_that_waits_for_its_bucket_is_not_given_up() -> None:
    cluster = serving(strategy="Canary")
    old, records = cluster.revision, dict(cluster.records)
    cluster.edit(**NEW)
    cluster.operate()
    cluster.finish(built(built_at=cluster.now), of="build")
    cluster.operate()
    (new,) = set(cluster.replicas()) - {old}
    cluster.broken = {new: AWAY}
    for _ in range(30):
        cluster.step()
        cluster.finish(built(built_at=cluster.now), of="build")
    assert set(cluster.replicas()) == {old, new}
    assert "StoreUnreachable: no route" in cluster.condition("RolloutComplete")["message"]
    assert len(cluster.records) == len(records) + 1, "nothing is wrong with the engine"
    cluster.broken = {}
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"


@pytest.mark.parametrize(
    ("strategy", "broken", "reason", "words"),
    [
        ("Canary", CRASH, "Crashing", ["3 times", "server"]),
        ("BlueGreen", CRASH, "Crashing", ["3 times"]),
        (
            "Canary",
            {"failed_container": "verify", "exit_code": 2, "terminated_message": "bad digest"},
            "EngineRefused",
            ["bad digest"],
        ),
        (
            "Canary",
            {"failed_container": "fits", "exit_code": 2, "node": "gpu-7",
             "terminated_message": "TensorRTVersionMismatch: built with TensorRT 10.6.0, and this server has 10.5.0"},
            "TensorRTVersionMismatch",
            ["built with TensorRT 10.6.0", "on node gpu-7", "before loading it"],
        ),
        (
            "Canary",
            {"failed_container": "fits", "exit_code": 2,
             "terminated_message": "DeviceMismatch: built on NVIDIA H200, and this replica has NVIDIA L4"},
            "DeviceMismatch",
            ["this replica has NVIDIA L4"],
        ),
        (
            "Canary",
            {"failed_container": "fits", "exit_code": 2,
             "terminated_message": "DriverTooOld: this image has CUDA 13.0, and the node has driver 550.54.14"},
            "DriverTooOld",
            ["the node has driver 550.54.14", "before loading it"],
        ),
        (
            "Canary",
            {"exit_code": 0, "terminated_message": "smoke test failed: output y is off by 1.4", "restarts": 1},
            "SmokeTestFailed",
            ["output y is off by 1.4"],
        ),
    ],
)
def test_bad_candidate_is_rolled_back_and_not_tried_again(
    strategy: str, broken: dict[str, Any], reason: str, words: list[str]
) -> None:
    cluster = serving(strategy=strategy)
    old = cluster.revision
    cluster.edit(**NEW)
    cluster.operate()
    cluster.finish(built(built_at=cluster.now), of="build")
    cluster.operate()
    new = next(iter(set(cluster.replicas()) - {old}))
    cluster.broken = {new: broken}
    for _ in range(30):
        cluster.step()
        cluster.finish(built(built_at=cluster.now), of="build")
    told = cluster.condition("RolloutComplete")
    assert (told["status"], told["reason"]) == ("False", "RolledBack")
    for word in [reason, new, old, *words]:
        assert word in told["message"]
    assert cluster.replicas() == {old: 1}
    assert selected(cluster) == old
    assert cluster.says("Available") == "True/ServingPrevious"
    assert cluster.says("Ready") == "False/RolledBack"
    assert cluster.status["rollout"]["rolledBack"]["revision"] == new
    assert cluster.status["engine"]["fingerprint"] == cluster.deployments[f"minilm-{old}"].fingerprint
    cluster.wait(86400)
    assert not cluster.operate().actions


def test_rolled_back_revision_is_tried_again_on_demand() -> None:
    cluster = serving()
    new = changed(cluster)
    cluster.broken = {new: CRASH}
    until(cluster, lambda: cluster.says("RolloutComplete") == "False/RolledBack")
    cluster.broken = {}
    cluster.annotations[labels.RETRY] = "again"
    cluster.settle()
    assert cluster.revision == new
    assert cluster.says("Ready") == "True/Serving"
    assert "rolledBack" not in cluster.status["rollout"]


def test_a_retry_that_is_set_before_the_failure_is_seen_is_answered_and_the_next_failure_counts() -> None:
    cluster = serving()
    old, new = cluster.revision, changed(cluster)
    until(cluster, lambda: cluster.status["rollout"].get("candidate") == new)
    cluster.broken = {new: CRASH}
    cluster.annotations[labels.RETRY] = "again"
    until(cluster, lambda: cluster.status["rollout"].get("rolledBack", {}).get("retry") == "")
    until(cluster, lambda: cluster.status["rollout"].get("candidate") == new)
    until(cluster, lambda: cluster.status["rollout"].get("rolledBack", {}).get("retry") == "again")
    cluster.settle()
    assert cluster.replicas() == {old: 1}
    cluster.wait(86400)
    assert not cluster.operate().actions


def test_a_retry_that_is_set_before_the_failure_is_seen_rolls_out_what_serves_now() -> None:
    cluster = serving()
    new = changed(cluster)
    until(cluster, lambda: cluster.status["rollout"].get("candidate") == new)
    cluster.broken = {new: CRASH}
    cluster.annotations[labels.RETRY] = "again"
    until(cluster, lambda: "rolledBack" in cluster.status["rollout"])
    cluster.broken = {}
    cluster.settle()
    assert (cluster.revision, cluster.says("Ready")) == (new, "True/Serving")


def analysing() -> tuple[Cluster, str, str]:
    cluster = serving()
    old = cluster.revision
    new = changed(cluster)
    until(cluster, lambda: step(cluster) == "Analysing")
    cluster.step()
    return cluster, old, new


def test_a_restart_during_the_analysis_rolls_back() -> None:
    cluster, old, new = analysing()
    name = next(pod.name for pod in cluster.pods.values() if pod.revision == new)
    cluster.pods[name] = replace(cluster.pods[name], restarts=1, terminated_reason="OOMKilled")
    cluster.operate()
    assert cluster.says("RolloutComplete") == "False/RolledBack"
    assert "OOMKilled" in cluster.condition("RolloutComplete")["message"]
    assert (selected(cluster), cluster.replicas()) == (old, {old: 1})


def test_a_second_try_to_verify_during_the_analysis_is_no_restart() -> None:
    """As of a replica that was evicted, whose volume was not attached at once on the other node."""
    cluster, _, new = analysing()
    name = next(pod.name for pod in cluster.pods.values() if pod.revision == new)
    cluster.pods[name] = replace(cluster.pods[name], restarts=1, side_restarts=1, failed_container="verify")
    cluster.operate()
    assert cluster.says("RolloutComplete") == "False/Analysing"
    cluster.pods[name] = replace(cluster.pods[name], restarts=2)
    cluster.operate()
    assert cluster.says("RolloutComplete") == "False/RolledBack"


def test_a_restart_before_the_analysis_does_not_count() -> None:
    cluster = serving()
    new = changed(cluster)
    cluster.deployment_controller()
    for pod in list(cluster.pods.values()):
        if pod.revision == new:
            cluster.pods[pod.name] = replace(pod, restarts=1)
    until(cluster, lambda: cluster.says("Ready") == "True/Serving", rounds=90)
    assert cluster.revision == new


def readiness_goes(cluster: Cluster, revision: str) -> None:
    for pod in list(cluster.pods.values()):
        if pod.revision == revision:
            cluster.pods[pod.name] = replace(pod, ready=False)
    cluster.operate()


def test_readiness_that_comes_and_goes_rolls_back() -> None:
    cluster, old, new = analysing()
    for _ in range(2):
        readiness_goes(cluster, new)
        assert step(cluster) == "Starting"
        cluster.operate()
        until(cluster, lambda: step(cluster) == "Analysing", rounds=5)
    assert cluster.status["rollout"]["readinessLosses"] == 2
    readiness_goes(cluster, new)
    assert cluster.says("RolloutComplete") == "False/RolledBack"
    message = cluster.condition("RolloutComplete")["message"]
    for word in ("ReplicasNotReady", "3 times", f"kubectl describe pod -l enginewright.io/revision={new} -n prod"):
        assert word in message
    assert cluster.replicas() == {old: 1}


def test_a_replica_that_is_evicted_does_not_count_against_its_revision() -> None:
    cluster, _, new = analysing()
    for _ in range(4):
        for name in [pod.name for pod in cluster.pods.values() if pod.revision == new]:
            del cluster.pods[name]
        cluster.operate()
        assert step(cluster) == "Starting"
        until(cluster, lambda: step(cluster) == "Analysing", rounds=5)
    assert "readinessLosses" not in cluster.status["rollout"]


def test_more_replicas_wanted_during_the_analysis_are_no_fall() -> None:
    cluster = serving(strategy="BlueGreen", replicas=1)
    changed(cluster)
    until(cluster, lambda: step(cluster) == "Analysing")
    cluster.edit(replicas=3)
    cluster.step()
    assert step(cluster) == "Starting"
    until(cluster, lambda: step(cluster) == "Analysing", rounds=5)
    assert "readinessLosses" not in cluster.status["rollout"]


def given_up() -> tuple[Cluster, str, str]:
    """A cluster, its revision and the new one, which failed half of its inferences."""
    cluster, old, new = analysing()
    cluster.failing = {new: 0.5}
    assert cluster.signals is not None
    cluster.signals = replace(cluster.signals, rounds=())
    until(cluster, lambda: cluster.says("RolloutComplete") == "False/RolledBack", rounds=10)
    return cluster, old, new


def test_failed_inferences_roll_back_with_figures() -> None:
    cluster, old, _ = given_up()
    message = cluster.condition("RolloutComplete")["message"]
    assert "FailedInferences" in message
    assert "30 of 60 inferences failed, of the stable revision's 0 of 60." in message
    assert selected(cluster) == old
    assert cluster.status["rollout"]["analysis"]["failures"] == 30
    assert cluster.status["revisions"][0]["analysis"]["failures"] == 30


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen"])
def test_what_an_analysis_came_to_is_kept_with_the_revision_that_it_promoted(strategy: str, kept: bool) -> None:
    cluster = serving(strategy=strategy, replicas=2)
    assert "analysis" not in cluster.status["revisions"][0]
    changed(cluster)
    until(cluster, lambda: step(cluster) in ("Expanding", "Switching", "Draining"))
    found, before = cluster.status["rollout"]["analysis"], cluster.status
    assert found["requests"] > 0
    until(cluster, lambda: step(cluster) == "Complete")
    if not kept:  # what going back to it needs could not be written
        cluster.status = keep(cluster.status, before, ("revisions",))
    cluster.settle()
    entry = cluster.status["revisions"][0]
    assert (entry["revision"], entry["outcome"], entry["analysis"]) == (selected(cluster), "Serving", found)


def test_figures_of_what_was_given_up_are_not_those_of_what_serves_on() -> None:
    cluster, old, new = given_up()
    cluster.edit(engine=None)
    cluster.settle()
    assert (step(cluster), selected(cluster)) == ("Complete", old)
    assert "analysis" not in cluster.status["rollout"]
    assert {one["revision"]: "analysis" in one for one in cluster.status["revisions"]} == {old: False, new: True}


def test_failures_of_the_old_revision_do_not_blame_the_new_one() -> None:
    cluster, old, new = analysing()
    cluster.failing = {old: 0.5}
    cluster.settle()
    assert cluster.revision == new


def test_failures_that_hit_both_blame_nobody() -> None:
    cluster, old, new = analysing()
    cluster.failing = {old: 0.1, new: 0.1}
    cluster.settle()
    assert cluster.revision == new


def test_progress_deadline_rolls_back() -> None:
    cluster = serving()
    old = cluster.revision
    new = changed(cluster)
    cluster.broken = {new: {"unschedulable": "0/1 nodes are available: 1 Insufficient cpu.", "requests": {"cpu": "6"}}}
    cluster.step()
    cluster.operate()
    assert cluster.says("RolloutComplete") == "False/Unschedulable"
    message = cluster.condition("RolloutComplete")["message"]
    assert "It asks for cpu: 6; " in message
    assert "Set a lower spec.serving.resources.requests.cpu" in message
    name = f"minilm-{new}"
    cluster.deployments[name] = replace(cluster.deployments[name], progress_deadline_exceeded=True)
    cluster.operate()
    assert cluster.says("RolloutComplete") == "False/RolledBack"
    assert "0/1 nodes are available" in cluster.condition("RolloutComplete")["message"], "what it has waited for"
    assert cluster.replicas() == {old: 1}


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen"])
def test_promotion_waits_for_the_annotation(strategy: str) -> None:
    cluster = serving(strategy=strategy, autoPromote=False, analysis={"seconds": 5})
    old = cluster.revision
    new = changed(cluster)
    until(cluster, lambda: cluster.says("RolloutComplete") == "False/WaitingForPromotion")
    assert f"kubectl optimisedmodel promote minilm {new} -n prod" in cluster.condition("RolloutComplete")["message"]
    for wrong in ("", "true", old):
        cluster.annotations[labels.PROMOTE] = wrong
        cluster.wait(1000)
        cluster.step()
        assert cluster.says("RolloutComplete") == "False/WaitingForPromotion"
    cluster.annotations[labels.PROMOTE] = new
    cluster.settle()
    assert cluster.revision == new


def test_a_fingerprint_promotes_nothing() -> None:
    """Another revision of the same engine is another rollout, and the annotation may be an old one."""
    cluster = serving(autoPromote=False, analysis={"seconds": 0})
    changed(cluster)
    until(cluster, lambda: cluster.says("RolloutComplete") == "False/WaitingForPromotion")
    for digits in (8, 12, 64):
        cluster.annotations[labels.PROMOTE] = cluster.status["fingerprint"][:digits]
        cluster.settle()
        assert cluster.says("RolloutComplete") == "False/WaitingForPromotion"


def test_failed_build_leaves_the_last_good_revision_serving() -> None:
    cluster = serving(replicas=2)
    old = cluster.revision
    cluster.edit(**NEW)
    cluster.operate()
    assert cluster.says("Ready") == "False/BuildPending"
    assert cluster.says("Available") == "True/ServingPrevious"
    cluster.finish(refused("build", "user", "OperatorUnsupported"), of="build")
    cluster.operate()
    assert cluster.says("Ready") == "False/OperatorUnsupported"
    assert cluster.says("Available") == "True/ServingPrevious"
    assert cluster.replicas() == {old: 2}
    assert selected(cluster) == old
    assert cluster.status["engine"]["precision"] == "int8"


def test_going_back_to_the_serving_spec_needs_no_rollout() -> None:
    cluster, old, new = analysing()
    cluster.edit(engine=None)
    cluster.settle()
    assert cluster.revision == old
    assert cluster.replicas() == {old: 1}
    assert cluster.says("Ready") == "True/Serving"
    assert new not in cluster.replicas()


def test_third_revision_supersedes_the_second() -> None:
    cluster, old, new = analysing()
    third = changed(cluster, engine={"precision": "int8"})
    cluster.operate()
    assert new not in cluster.replicas()
    assert selected(cluster) == old
    cluster.settle()
    assert cluster.revision == third


def test_never_proven_revision_is_replaced_at_once() -> None:
    cluster = Cluster()
    cluster.operate()
    cluster.broken = {}
    while not cluster.deployments:
        cluster.settle_jobs()
        cluster.operate()
    first = next(iter(cluster.replicas()))
    cluster.broken = {first: CRASH}
    cluster.step()
    assert cluster.says("RolloutComplete") in ("False/Crashing", "False/Progressing")
    cluster.operate()
    assert cluster.says("RolloutComplete") == "False/Crashing"
    assert cluster.replicas() == {first: 1}
    second = changed(cluster)
    assert first not in cluster.replicas()
    cluster.settle()
    assert cluster.revision == second


def test_lost_status_in_the_middle_of_a_canary_takes_no_capacity_away() -> None:
    cluster = serving(replicas=4, analysis={"seconds": 10})
    new = changed(cluster)
    until(cluster, lambda: step(cluster) == "Expanding")
    cluster.step()
    cluster.status = {}
    for _ in range(60):
        cluster.step()
        assert sum(endpoint.ready for endpoint in cluster.endpoints) >= 4
    assert cluster.revision == new
    assert cluster.says("Ready") == "True/Serving"


def test_rollback_in_the_middle_of_an_expansion_restores_before_it_removes() -> None:
    cluster = serving(replicas=2, analysis={"seconds": 0})
    old = cluster.revision
    new = changed(cluster)
    until(cluster, lambda: cluster.replicas().get(old) == 0)
    assert step(cluster) in ("Expanding", "Switching")
    name = next(pod.name for pod in cluster.pods.values() if pod.revision == new)
    cluster.service = replace(cluster.service, revision="") if cluster.service else None
    cluster.broken = {new: CRASH}
    cluster.pods[name] = replace(cluster.pods[name], restarts=3, ready=False)
    for _ in range(6):
        cluster.step()
        assert any(endpoint.ready for endpoint in cluster.endpoints)
    assert cluster.says("RolloutComplete") == "False/RolledBack"
    assert cluster.replicas() == {old: 2}


def test_suspend_leaves_a_rollout_where_it_is() -> None:
    cluster, old, new = analysing()
    cluster.edit(suspend=True)
    cluster.wait(1000)
    for _ in range(3):
        assert not cluster.operate().actions
    assert cluster.replicas() == {old: 1, new: 1}
    assert cluster.says("RolloutComplete") == "False/Suspended"
    assert cluster.says("Available").startswith("True")
    cluster.edit(suspend=None)
    cluster.settle()
    assert cluster.revision == new


@pytest.mark.parametrize(
    ("gateway", "share"),
    [
        (None, "(1 of 4 replicas)"),
        ({"parentRefs": [{"name": "public"}], "hostnames": ["a.example"]}, "(25 % of what comes through the Gateway)"),
    ],
)
@pytest.mark.parametrize(
    ("edit", "kind"),
    [({"suspend": True}, "RolloutComplete"), ({"engine": {"precision": "fp8"}}, "Ready")],
    ids=["suspended", "invalid"],
)
def test_a_share_that_nobody_watches_is_named(
    edit: dict[str, Any], kind: str, gateway: dict[str, Any] | None, share: str
) -> None:
    through: dict[str, Any] = {"gateway": gateway} if gateway else {}
    cluster = serving(replicas=3, **through)
    new = changed(cluster)
    until(cluster, lambda: step(cluster) == "Analysing")
    cluster.step()
    cluster.edit(**edit)
    cluster.operate()
    message = cluster.condition(kind)["message"]
    assert f". Revision {new}, which is not proven, keeps its share of the traffic {share}" in message


def test_suspended_before_anything_was_shared_names_no_share() -> None:
    cluster = serving()
    changed(cluster)
    cluster.edit(suspend=True)
    cluster.operate()
    assert cluster.condition("RolloutComplete")["message"] == (
        "spec.suspend is true: no rollout is started or continued."
    )


def test_suspended_object_that_serves_is_ready() -> None:
    cluster = serving()
    cluster.edit(suspend=True)
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"


@pytest.mark.parametrize("kind", ["Deployment", "Service", "PodDisruptionBudget"])
def test_lost_child_is_made_again(kind: str) -> None:
    cluster = serving(replicas=2)
    old = cluster.revision
    if kind == "Deployment":
        cluster.deployments.clear()
        cluster.pods.clear()
    elif kind == "Service":
        cluster.service = None
        cluster.endpoints = ()
    else:
        del cluster.applied["PodDisruptionBudget/minilm"]
    cluster.settle()
    assert cluster.revision == old
    assert cluster.replicas() == {old: 2}
    assert cluster.says("Ready") == "True/Serving"
    assert "PodDisruptionBudget/minilm" in cluster.applied


@pytest.mark.parametrize(("spec", "has_one"), [
    ({"replicas": 1}, False),
    ({"replicas": 2}, True),
    ({"autoscaling": {"minReplicas": 1, "maxReplicas": 1}}, False),
    ({"autoscaling": {"minReplicas": 1, "maxReplicas": 2}}, True),
])
def test_a_disruption_budget_is_made_where_it_can_hold_something_back(spec: dict[str, Any], has_one: bool) -> None:
    cluster = Cluster(spec={**SPEC, **spec})
    cluster.settle()
    assert ("PodDisruptionBudget/minilm" in cluster.applied) is has_one


def test_a_disruption_budget_comes_with_the_second_replica_and_stays() -> None:
    cluster = serving()
    assert "PodDisruptionBudget/minilm" not in cluster.applied
    new = changed(cluster)
    assert len(cluster.deployments) == 2
    assert "PodDisruptionBudget/minilm" in cluster.applied
    cluster.settle()
    assert cluster.replicas() == {new: 1}
    assert "PodDisruptionBudget/minilm" in cluster.applied


def test_meddled_replicas_are_put_right_and_a_proven_revision_keeps_its_pods() -> None:
    cluster = serving()
    name = f"minilm-{cluster.revision}"
    cluster.deployments[name] = replace(cluster.deployments[name], spec_replicas=5)
    plan = cluster.operate()
    assert described(plan) == [f"Scale {name} 1"]


UNREADY: dict[str, Callable[[Cluster], None]] = {
    "old generation": lambda c: c.deployments.update(
        {name: replace(d, generation=d.generation + 1) for name, d in c.deployments.items()}
    ),
    "replica not ready": lambda c: c.deployments.update(
        {name: replace(d, ready=0, available=0) for name, d in c.deployments.items()}
    ),
    "surplus replica": lambda c: c.deployments.update(
        {name: replace(d, replicas=2) for name, d in c.deployments.items()}
    ),
    "service selects all": lambda c: setattr(c, "service", replace(c.service, revision="") if c.service else None),
    "other revision's endpoint": lambda c: setattr(
        c, "endpoints", (*c.endpoints, EndpointView(pod="x", revision="0ld", ready=False))
    ),
    "terminating endpoint of another": lambda c: setattr(
        c, "endpoints", (*c.endpoints, EndpointView(pod="x", revision="0ld", ready=False, terminating=True))
    ),
    "no endpoint": lambda c: setattr(c, "endpoints", ()),
    "other Deployment": lambda c: c.deployments.update(
        {"other": replace(next(iter(c.deployments.values())), name="other", revision="0ld", deleting=True)}
    ),
}


@pytest.mark.parametrize("flaw", UNREADY)
def test_ready_is_strict(flaw: str) -> None:
    cluster = serving()
    UNREADY[flaw](cluster)
    cluster.operate()
    assert cluster.says("Ready").startswith("False/")

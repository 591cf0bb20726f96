"""Recreate has stopped what could be gone back to: the last good revision is made again from what was kept of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.way_back import needs_kept
from support.cluster import SPEC, Cluster
from support.once import once

FIRST, SECOND, THIRD = ({"engine": {"maxBatchSize": size}} for size in (8, 16, 32))
CRASH: dict[str, Any] = {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server"}


def move(cluster: Cluster, good: set[str] | None = None, rounds: int = 1) -> None:
    """Seconds of everything; replicas that are not of the revisions in ``good`` crash."""
    for _ in range(rounds):
        cluster.operate()
        cluster.settle_jobs()
        if good is not None:
            cluster.broken = {name: CRASH for name in cluster.replicas() if name not in good}
        cluster.controllers()
        cluster.wait(1)


@once
def serving(replicas: int = 1, **spec: Any) -> Cluster:
    cluster = Cluster(spec={**SPEC, **FIRST, "replicas": replicas, "rollout": {"strategy": "Recreate"}, **spec})
    cluster.settle()
    return cluster


def gone_back(replicas: int = 1, **spec: Any) -> tuple[Cluster, str, str]:
    """After a new revision that crashes; the good one's name and the new one's."""
    cluster = serving(replicas, **spec)
    first = cluster.revision
    cluster.edit(**SECOND)
    for _ in range(40):
        move(cluster, {first})
        if cluster.says("Available") == "True/ServingPrevious" and "rolledBack" in cluster.status["rollout"]:
            return cluster, first, cluster.status["rollout"]["rolledBack"]["revision"]
    raise AssertionError(cluster.condition("RolloutComplete"))


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_revision_that_does_not_start_is_given_up_for_the_last_good_one(replicas: int) -> None:
    cluster, first, second = gone_back(replicas)
    jobs = dict(cluster.jobs)
    move(cluster, {first}, rounds=30)
    assert cluster.replicas() == {first: replicas}
    assert cluster.revision == first
    assert cluster.jobs == jobs, "without a build"
    assert cluster.says("RolloutComplete") == cluster.says("Ready") == "False/RolledBack"
    message = cluster.condition("RolloutComplete")["message"]
    for word in (f"Revision {second} was given up (Crashing)", "restarted 3 times", f"Revision {first}, the last good",
                 "serves again", "kubectl optimisedmodel retry minilm -n prod"):
        assert word in message
    told = cluster.status["rollout"]
    assert (told["stable"], told["step"], told["rolledBack"]["reason"]) == (first, "RolledBack", "Crashing")
    assert [(entry["revision"], entry["outcome"]) for entry in cluster.status["revisions"]] == [
        (second, "RolledBack"), (first, "Serving")]
    assert cluster.log.count("Warning RolledBack") == 1
    assert cluster.status["engine"]["fingerprint"] == cluster.deployments[f"minilm-{first}"].fingerprint
    assert cluster.plan().requeue_after is None


def test_what_is_on_its_way_back_says_so() -> None:
    cluster = serving()
    first = cluster.revision
    cluster.edit(**SECOND)
    said = set()
    for _ in range(30):
        move(cluster, {first})
        if cluster.says("RolloutComplete") == "False/RolledBack":
            said.add(cluster.condition("RolloutComplete")["message"].partition("last good one")[2][:30])
    assert any(words.startswith(": Strategy Recreate: 1 old") for words in said), said
    assert any(words.startswith(", serves again.") for words in said), said


def test_it_is_not_tried_again_before_somebody_asks() -> None:
    cluster, first, second = gone_back()
    cluster.wait(86400)
    move(cluster, rounds=60)
    assert cluster.replicas() == {first: 1}
    cluster.annotations[labels.RETRY] = "again"
    cluster.broken = {}
    cluster.settle()
    assert cluster.revision == second
    assert cluster.says("Ready") == "True/Serving"
    assert "rolledBack" not in cluster.status["rollout"]


def test_a_try_that_fails_again_goes_back_again() -> None:
    cluster, first, second = gone_back()
    cluster.annotations[labels.RETRY] = "again"
    seen = set()
    for _ in range(60):
        move(cluster, {first})
        seen |= set(cluster.replicas())
    assert second in seen
    assert cluster.replicas() == {first: 1}
    assert cluster.status["rollout"]["rolledBack"]["retry"] == "again"


def test_a_retry_that_is_set_before_the_failure_is_seen_is_answered_and_the_next_failure_counts() -> None:
    cluster = serving()
    first = cluster.revision
    cluster.edit(**SECOND)
    seen: list[str] = []
    for turn in range(120):
        move(cluster, {first})
        second = cluster.status["rollout"].get("candidate")
        if turn and second not in (None, first) and labels.RETRY not in cluster.annotations:
            cluster.annotations[labels.RETRY] = "again"
        given_up = cluster.status["rollout"].get("rolledBack", {}).get("retry")
        seen += [given_up] if given_up not in (None, *seen[-1:]) else []
    assert seen == ["", "again"]
    assert cluster.replicas() == {first: 1}


def test_a_newer_spec_is_rolled_out() -> None:
    cluster, first, _ = gone_back()
    cluster.edit(**THIRD)
    cluster.broken = {}
    cluster.settle()
    assert cluster.revision != first
    assert cluster.says("Ready") == "True/Serving"


def test_a_newer_spec_in_the_middle_of_the_way_back_does_not_end_it() -> None:
    """Its engine takes its time to be built; nobody else serves."""
    cluster = serving()
    first = cluster.revision
    cluster.edit(**SECOND)
    for _ in range(20):
        move(cluster, {first})
        if "rolledBack" in cluster.status["rollout"]:
            break
    cluster.edit(**THIRD)
    for _ in range(20):
        cluster.operate()
        cluster.controllers()
        cluster.wait(1)
    assert cluster.replicas() == {first: 1}
    assert cluster.says("Available") == "True/ServingPrevious"


@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("built", [False, True], ids=["its engine is never built", "its engine is built"])
def test_a_newer_spec_in_the_gap_finds_the_last_good_one_serving_until_its_engine_is_built(rounds: int,
                                                                                           built: bool) -> None:
    """The old replicas have gone, or go, and the new ones are not ready: nothing would serve for as long as a build
    takes."""
    cluster = serving(replicas=2)
    first = cluster.revision
    cluster.edit(**SECOND)
    for _ in range(20):
        move(cluster)
        if cluster.status["rollout"].get("step") == "Draining":
            break
    for _ in range(rounds):
        cluster.operate()
        cluster.wait(0.2)
    cluster.edit(**THIRD)
    for _ in range(30):
        cluster.operate()
        cluster.controllers()
        cluster.wait(1)
    assert cluster.says("Available") == "True/ServingPrevious"
    assert cluster.replicas() == {first: 2}
    assert cluster.says("RolloutComplete") == "Unknown/WaitingForEngine"
    assert cluster.status["rollout"]["stable"] == first
    if built:
        cluster.settle()
        assert cluster.says("Ready") == "True/Serving"
        assert cluster.replicas() == {cluster.revision: 2}
        assert cluster.revision != first


def test_a_last_good_one_whose_engine_was_built_again_since_comes_back_with_that() -> None:
    cluster = serving()
    first = cluster.revision
    fingerprint = cluster.deployments[f"minilm-{first}"].fingerprint
    again = f"sha256:{'c' * 64}"
    record = cluster.records[fingerprint]
    cluster.records[fingerprint] = replace(record, outcome=replace(record.outcome, manifest_digest=again))
    cluster.stored[fingerprint] = again
    cluster.edit(**SECOND)
    for _ in range(60):
        move(cluster, {first})
    assert cluster.says("Available") == "True/ServingPrevious"
    assert cluster.deployments[f"minilm-{first}"].manifest_digest == again


def test_the_last_good_one_is_not_given_up_as_well() -> None:
    """Both crash, of the node perhaps: it stays with the one that was good, and comes right when that does."""
    cluster, first, second = gone_back()
    move(cluster, set(), rounds=40)
    cluster.pods = {}
    move(cluster, set(), rounds=40)
    assert cluster.replicas() == {first: 1}
    assert cluster.says("RolloutComplete") == "False/RolledBack"
    assert second in cluster.condition("RolloutComplete")["message"]
    cluster.pods = {}
    cluster.broken = {}
    cluster.settle()
    assert cluster.says("Available") == "True/ServingPrevious"
    assert cluster.replicas() == {first: 1}


def test_a_pinned_revision_that_does_not_start_is_given_up_for_what_served() -> None:
    cluster = serving()
    first = cluster.revision
    cluster.edit(**SECOND)
    cluster.settle()
    second = cluster.revision
    cluster.annotations[labels.ROLLBACK_TO] = first
    move(cluster, {second}, rounds=40)
    assert cluster.replicas() == {second: 1}
    assert f"Revision {first} was given up" in cluster.condition("RolloutComplete")["message"]


def test_the_annotation_goes_before() -> None:
    cluster = serving()
    first = cluster.revision
    cluster.edit(**SECOND)
    cluster.settle()
    second = cluster.revision
    cluster.edit(**THIRD)
    move(cluster, {first, second}, rounds=40)
    assert cluster.replicas() == {second: 1}
    cluster.annotations[labels.ROLLBACK_TO] = first
    move(cluster, {first, second}, rounds=40)
    assert cluster.replicas() == {first: 1}
    assert cluster.says("RolloutComplete") == "False/Pinned"


def test_where_nothing_is_kept_it_stays() -> None:
    cluster = Cluster(spec={**SPEC, "rollout": {"strategy": "Recreate"}})
    move(cluster, set(), rounds=20)
    assert cluster.says("RolloutComplete") == "False/Crashing"
    assert len(cluster.replicas()) == 1


def test_where_what_was_kept_is_gone_it_stays() -> None:
    cluster = serving()
    first = cluster.revision
    cluster.kept = {}
    cluster.edit(**SECOND)
    move(cluster, {first}, rounds=40)
    assert cluster.says("RolloutComplete") == "False/Crashing"
    assert list(cluster.replicas()) != [first]


@pytest.mark.parametrize("spec", [{}, {"rollout": None}, {"rollout": []}, {"rollout": {"strategy": 3}}])
def test_a_spec_of_rubbish_needs_nothing_that_was_kept(spec: dict[str, Any]) -> None:
    assert not needs_kept(Cluster(spec=spec, status={"revisions": [1]}).view())


def test_one_that_serves_with_a_part_of_its_replicas_goes_on() -> None:
    """The third finds no node; neither would the last good revision's."""
    cluster = serving(3)
    first = cluster.revision
    cluster.edit(**SECOND)
    for _ in range(40):
        move(cluster)
        if first not in cluster.replicas() and len(cluster.endpoints) == 3:
            break
    (second,) = cluster.replicas()
    late, *_ = sorted(cluster.pods)
    for _ in range(20):
        cluster.pods[late] = replace(cluster.pods[late], ready=False, unschedulable="0/3 nodes are available")
        name = f"minilm-{second}"
        cluster.deployments[name] = replace(cluster.deployments[name], progress_deadline_exceeded=True, ready=2,
                                            available=2)
        cluster.operate()
        cluster.endpoint_controller()
        cluster.wait(1)
    assert set(cluster.replicas()) == {second}
    assert cluster.says("Available") == "True/Serving"

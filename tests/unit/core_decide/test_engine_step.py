"""Looked up before built; built once; every end of a build told and remembered."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.observed import PodView
from enginewright_builder.contract import BuildRequest, Outcome
from support.cluster import SPEC, Cluster, built, candidate, described, refused, resolved


def building(**spec: Any) -> Cluster:
    """A cluster whose build Job has just been created."""
    cluster = Cluster(spec={**SPEC, **spec})
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    assert len(cluster.running("build")) == 1
    return cluster


def out_of_time() -> Cluster:
    """A cluster whose build had begun and did not end before its deadline."""
    cluster = building()
    cluster.progress("build engines", 0.4)
    cluster.operate()
    cluster.fail(of="build", reason="DeadlineExceeded")
    cluster.operate()
    return cluster


def build_job(cluster: Cluster) -> str:
    return cluster.running("build")[0].name


def pod(**fields: Any) -> PodView:
    return replace(PodView(name="build-pod", phase="Pending"), **fields)


GPU = {
    "placement": {"accelerator": "gpu", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "mig": {"profile": "1g.10gb"}}
}


@pytest.mark.parametrize(
    ("spec", "job", "told", "parts"),
    [
        ({}, {}, "False/BuildPending", ["waits for its pod"]),
        (
            GPU,
            {"pods": (pod(unschedulable="0/3 nodes are available: 3 Insufficient nvidia.com/mig-1g.10gb.",
                          requests={"nvidia.com/mig-1g.10gb": "1", "cpu": "2"}, node_selector={"zone": "a"}),)},
            "False/Unschedulable",
            ["3 Insufficient nvidia.com/mig-1g.10gb. It asks for cpu: 2 and nvidia.com/mig-1g.10gb: 1 on nodes "
             "labelled zone=a; check with: kubectl describe nodes."],
        ),
        (
            {},
            {"pods": (pod(unschedulable="0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.",
                          requests={"cpu": "8", "memory": "40Gi"}),)},
            "False/Unschedulable",
            ["It asks for cpu: 8 and memory: 40Gi; check with: kubectl describe nodes. Set a lower "
             "spec.engine.resources.requests.cpu, or add a node with more cpu to spare. Set a lower "
             "spec.engine.resources.requests.memory, or add a node with more memory to spare."],
        ),
        (
            {},
            {"pods": (pod(unschedulable="0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
                                        "1 node(s) had untolerated taint {team: other}.",
                          node_selector={"disk": "ssd"}),)},
            "False/Unschedulable",
            ["It asks for nodes labelled disk=ssd; check with: kubectl describe nodes. Label a node so, or change "
             "spec.placement. Tolerate the taint in spec.placement.tolerations."],
        ),
        (
            {},
            {"pods": (pod(waiting_reason="ImagePullBackOff", waiting_message="manifest unknown"),)},
            "False/ImagePullFailed",
            ["ImagePullBackOff", "enginewright-builder:latest", "manifest unknown"],
        ),
        ({}, {"pods": (pod(waiting_reason="InvalidImageName"),)}, "False/ImagePullFailed", ["InvalidImageName"]),
        ({}, {"pods": (pod(waiting_reason="ContainerCreating"),)}, "False/BuildPending", ["waits for its pod"]),
        ({}, {"pods": (pod(phase="Running"),)}, "False/Building", ["has begun"]),
        (
            {},
            {"pods": (pod(waiting_reason="CreateContainerConfigError", waiting_message="no key"),)},
            "False/PodCannotStart",
            ["no key."],
        ),
        (
            {},
            {"pods": (pod(waiting_reason="CreateContainerConfigError", waiting_message='secret "hub" not found'),)},
            "False/PodCannotStart",
            ['secret "hub" not found. Create it', "the field of the spec that names it"],
        ),
        (
            {},
            {"pods": (pod(unschedulable="0/1 nodes: pod has unbound immediate PersistentVolumeClaims. not found"),)},
            "False/Unschedulable",
            ["A claim that it mounts has no volume", "the events of the claim say why"],
        ),
        ({"engine": {"queueName": "gpus"}}, {}, "False/WaitingForQueue", ["Kueue queue gpus"]),
        (
            {},
            {"pods": (pod(name="old", phase="Failed", exit_code=137, terminated_reason="OOMKilled"),)},
            "False/BuildRetrying",
            ["out of memory", "limits.memory"],
        ),
        (
            {},
            {"pods": (pod(name="old", phase="Failed", reason="Evicted", message="low on disk", disrupted=True),)},
            "False/BuildRetrying",
            ["evicted", "low on disk"],
        ),
        (
            {},
            {"pods": (pod(name="old", phase="Failed", reason="Evicted", message="over the total limit 2Gi."),)},
            "False/BuildRetrying",
            ["evicted for what it stored itself: over the total limit 2Gi; raise", "limits.ephemeral-storage"],
        ),
        ({}, {"pods": (pod(name="old", phase="Failed", reason="NodeLost", node="n7"),)}, "False/BuildRetrying", ["n7"]),
    ],
)
def test_what_a_waiting_build_says(spec: dict[str, Any], job: dict[str, Any], told: str, parts: list[str]) -> None:
    cluster = building(**spec)
    cluster.show(build_job(cluster), **job)
    plan = cluster.operate()
    assert not plan.actions
    assert cluster.says("EngineBuilt") == told
    for part in parts:
        assert part in cluster.condition("EngineBuilt")["message"]
    assert cluster.says("Ready") == told
    before = cluster.status
    cluster.operate()
    assert cluster.status == before


def test_progress_is_told_once_a_step() -> None:
    cluster = building()
    cluster.progress("measure fp32", 0.31)
    assert cluster.operate().requeue_after == 5
    assert cluster.says("EngineBuilt") == "False/Building"
    assert "measure fp32 (31 %)" in cluster.condition("EngineBuilt")["message"]
    before = cluster.status
    cluster.progress("measure fp32", 0.38)
    assert cluster.plan().status == before
    cluster.progress("measure int8", 0.5)
    cluster.operate()
    assert "measure int8 (50 %)" in cluster.condition("EngineBuilt")["message"]


def test_success_writes_the_record_and_serves_in_the_same_pass() -> None:
    cluster = building()
    cluster.finish(built())
    plan = cluster.operate()
    assert [text.split()[1] for text in described(plan) if text.startswith(("Create", "Apply"))] == [
        "ConfigMap",
        "Deployment",
        "Service",
    ]
    assert len(cluster.records) == 1
    assert cluster.says("EngineBuilt") == "True/Built"
    assert cluster.status["engine"]["cacheHit"] is False
    assert not cluster.requests or all("-build-" not in name for name in cluster.requests)
    cluster.settle()
    assert cluster.says("EngineBuilt") == "True/Built"
    assert cluster.says("Ready") == "True/Serving"


def test_an_engine_that_is_there_needs_no_job() -> None:
    first = Cluster()
    first.settle()
    second = Cluster(records=dict(first.records))
    second.operate()
    second.finish(resolved())
    second.operate()
    assert not second.running()
    assert second.says("EngineBuilt") == "True/CacheHit"
    assert second.status["engine"]["cacheHit"] is True
    second.settle()
    assert second.says("EngineBuilt") == "True/CacheHit"


def test_record_of_another_store_is_not_ours() -> None:
    first = Cluster()
    first.settle()
    elsewhere = {key: replace(record, store_claim="other") for key, record in first.records.items()}
    second = Cluster(records=elsewhere)
    second.operate()
    second.finish(resolved())
    second.operate()
    assert len(second.running("build")) == 1


def test_engine_built_by_another_object_meanwhile_ends_our_build() -> None:
    first = Cluster()
    first.settle()
    second = building()
    second.records = dict(first.records)
    second.operate()
    assert not second.running()
    assert second.says("EngineBuilt").startswith("True/")


NO_ACCURACY = refused(
    "build",
    "user",
    "AccuracyNotReached",
    "no candidate reaches cosine 0.99; the best has 0.97",
    field="spec.accuracy.maxLoss",
    value="0.01",
    remedy="allow more, or give better calibration data",
    candidates=(candidate(precision="int8", verdict="AccuracyRefused", accuracy=0.97), candidate(verdict="Offered")),
)


def test_accuracy_not_reached_offers_but_does_not_serve() -> None:
    cluster = building()
    cluster.finish(NO_ACCURACY)
    cluster.operate()
    assert cluster.says("EngineBuilt") == "False/AccuracyNotReached"
    assert cluster.says("AccuracyVerified") == "False/AccuracyNotReached"
    assert [entry["verdict"] for entry in cluster.status["candidates"]] == ["AccuracyRefused", "Offered"]
    assert not cluster.deployments
    cluster.jobs.clear()
    for _ in range(3):
        cluster.wait(3600)
        assert not cluster.operate().actions
    assert [entry["verdict"] for entry in cluster.status["candidates"]] == ["AccuracyRefused", "Offered"]
    assert cluster.says("AccuracyVerified") == "False/AccuracyNotReached"


@pytest.mark.parametrize("hit", [False, True])
def test_the_source_itself_is_served_only_as_what_it_is(hit: bool) -> None:
    """Ready, since the user allows it, and with a reason that nobody takes for a win."""
    cluster = building(engine={"fallback": "source"})
    request = BuildRequest.from_json(next(iter(cluster.requests.values())))
    assert request.engine.fallback == "source"
    served = candidate(name="onnxruntime fp32", verdict="Fallback", serves=(1, 8, 32))
    cluster.finish(replace(built(fallback="NotFasterThanSource", speedup=0.93), cache_hit=hit, candidates=(served,)))
    cluster.settle()
    assert cluster.says("Ready").startswith("True/")
    assert cluster.says("EngineBuilt") == "True/SourceServed"
    message = cluster.condition("EngineBuilt")["message"]
    assert "NotFasterThanSource" in message
    assert "0.93 times" in message
    assert cluster.status["engine"]["fallback"] == "NotFasterThanSource"
    assert [entry["verdict"] for entry in cluster.status["candidates"]] == ["Fallback"]


def test_who_allows_the_source_asks_for_another_engine_and_so_does_who_gives_it_more_time() -> None:
    """An engine that is the source for want of time must not be found by who does not allow it, or has more time."""
    found = set()
    for engine in ({}, {"fallback": "source"}, {"fallback": "source", "buildBudgetSeconds": 3600},
                   {"buildBudgetSeconds": 3600}):
        cluster = Cluster(spec={**SPEC, "engine": engine})
        cluster.operate()
        cluster.finish(resolved())
        cluster.operate()
        found.add(cluster.status["fingerprint"])
    assert len(found) == 3


@pytest.mark.parametrize(
    ("change", "again"),
    [
        (lambda c: c.edit(replicas=2), False),
        (lambda c: c.edit(accuracy={"maxLoss": 0.05}), True),
        (lambda c: c.annotations.update({labels.RETRY: "now"}), True),
    ],
)
def test_refused_build_is_tried_again_only_for_another_fingerprint_or_on_demand(change: Any, again: bool) -> None:
    cluster = building()
    cluster.finish(NO_ACCURACY)
    cluster.operate()
    change(cluster)
    cluster.wait(400)
    cluster.operate()
    assert len(cluster.running("build")) == (1 if again else 0)


def test_a_retry_that_is_set_before_the_failure_is_counted_is_answered_and_the_next_failure_counts() -> None:
    cluster = building()
    cluster.finish(NO_ACCURACY)
    cluster.annotations[labels.RETRY] = "now"
    cluster.operate()
    assert build_job(cluster).endswith("-2")
    cluster.finish(NO_ACCURACY)
    for _ in range(3):
        cluster.operate()
        cluster.wait(400)
    assert not cluster.running("build")


@pytest.mark.parametrize(
    ("pods", "reason", "word"),
    [
        ((pod(phase="Failed", exit_code=137, terminated_reason="OOMKilled"),), "BackoffLimitExceeded", "OutOfMemory"),
        ((pod(phase="Failed", exit_code=1),), "BackoffLimitExceeded", "exit code 1"),
        ((), "BackoffLimitExceeded", "BuildFailed"),
        ((pod(phase="Failed", reason="Evicted"),), "BackoffLimitExceeded", "limits.ephemeral-storage"),
    ],
)
def test_what_repeats_itself_is_tried_three_times(pods: tuple[PodView, ...], reason: str, word: str) -> None:
    cluster = building()
    names = []
    for attempt in range(1, 4):
        names.append(build_job(cluster))
        cluster.fail(of="build", pods=pods, reason=reason)
        cluster.operate()
        if attempt < 3:
            assert cluster.says("EngineBuilt") == "False/BuildRetrying"
            assert word in cluster.condition("EngineBuilt")["message"]
            assert f"Attempt {attempt + 1} starts at" in cluster.condition("EngineBuilt")["message"]
            assert not cluster.running()
            cluster.wait(300)
            cluster.operate()
    assert names == [f"{names[0][:-1]}{attempt}" for attempt in (1, 2, 3)]
    assert cluster.says("EngineBuilt") in ("False/OutOfMemory", "False/BuildFailed")
    cluster.wait(3600)
    assert not cluster.operate().actions
    cluster.edit(engine={"resources": {"limits": {"memory": "32Gi"}}})
    cluster.operate()
    assert build_job(cluster) == f"{names[0][:-1]}4"


@pytest.mark.parametrize(
    "pods",
    [
        (pod(phase="Failed", reason="Evicted", disrupted=True),),
        (pod(phase="Failed", disrupted=True),),
        (pod(phase="Failed", reason="NodeLost"),),
    ],
)
def test_what_the_cluster_did_is_tried_for_ever(pods: tuple[PodView, ...]) -> None:
    cluster = building()
    for _ in range(8):
        cluster.fail(of="build", pods=pods)
        cluster.operate()
        assert cluster.says("EngineBuilt") == "False/BuildRetrying"
        cluster.wait(300)
        cluster.operate()
        assert len(cluster.running("build")) == 1


def test_what_the_cluster_did_counts_for_nothing_when_the_build_fails_by_itself() -> None:
    """Three failures of its own end it, however many nodes were taken back before or between."""
    cluster = building()
    for attempt, pods in enumerate([(pod(phase="Failed", disrupted=True),)] * 4 + [()] * 3):
        assert cluster.says("EngineBuilt").split("/")[1] in ("Building", "BuildPending", "BuildRetrying"), attempt
        cluster.fail(of="build", pods=pods)
        cluster.operate()
        cluster.wait(300)
        cluster.operate()
    assert cluster.says("EngineBuilt") == "False/BuildFailed"
    assert (cluster.status["build"]["failures"], cluster.status["build"]["disruptions"]) == (7, 4)


def test_deadline_waits_for_a_new_spec() -> None:
    cluster = out_of_time()
    assert cluster.says("EngineBuilt") == "False/BuildDeadlineExceeded"
    assert "buildBudgetSeconds" in cluster.condition("EngineBuilt")["message"]
    cluster.wait(3600)
    assert not cluster.operate().actions
    cluster.edit(engine={"buildBudgetSeconds": 7200})
    cluster.operate()
    assert len(cluster.running("build")) == 1


INTERRUPTED = refused("build", "transient", "Interrupted", "the build was interrupted before it published anything")
LATE = pod(phase="Failed", exit_code=3, reason="DeadlineExceeded")


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("outcome", [INTERRUPTED, None])
def test_a_build_that_was_stopped_at_its_pods_deadline_is_not_tried_again(
    failed: bool, outcome: Outcome | None
) -> None:
    """Neither by the Job, whose other tries are taken from it, nor by the operator, whatever the builder had to say."""
    cluster = building()
    name = build_job(cluster)
    cluster.show(name, pods=(LATE,), outcome=outcome, failed=failed, active=0 if failed else 1)
    assert (f"Delete Job {name}" in described(cluster.operate())) is not failed
    assert cluster.says("EngineBuilt") == "False/BuildDeadlineExceeded"
    assert "raise spec.engine.buildBudgetSeconds" in cluster.condition("EngineBuilt")["message"]
    cluster.wait(3600)
    assert not cluster.operate().actions
    assert not cluster.running("build")
    cluster.edit(engine={"buildBudgetSeconds": 7200})
    cluster.operate()
    assert build_job(cluster) == f"{name[:-1]}2"


@pytest.mark.parametrize("failed", [False, True])
def test_a_build_whose_pod_ran_out_of_time_before_it_started_is_tried_again(failed: bool) -> None:
    """Its image was on its way all the time."""
    cluster = building()
    name = build_job(cluster)
    cluster.show(name, pods=(pod(waiting_reason="ImagePullBackOff"),))
    cluster.operate()
    assert cluster.says("EngineBuilt") == "False/ImagePullFailed"
    cluster.show(name, pods=(pod(phase="Failed", reason="DeadlineExceeded"),), failed=failed, active=0 if failed else 1)
    cluster.operate()
    assert cluster.says("EngineBuilt") == "False/BuildRetrying"
    cluster.wait(300)
    cluster.operate()
    assert build_job(cluster) == f"{name[:-1]}2"


@pytest.mark.parametrize(("seconds", "again"), [(7200, True), (600, False)])
def test_a_budget_that_was_raised_while_the_build_ran_is_given_to_another_one(seconds: int, again: bool) -> None:
    """The fingerprint has no budget in it, so that the Job runs on with the old one."""
    cluster = building()
    name = build_job(cluster)
    cluster.show(name, pods=(pod(phase="Running"),))
    cluster.edit(engine={"buildBudgetSeconds": seconds})
    cluster.operate()
    assert build_job(cluster) == name
    cluster.show(name, pods=(LATE,), outcome=INTERRUPTED)
    cluster.operate()
    assert cluster.says("EngineBuilt") == f"False/{'BuildRetrying' if again else 'BuildDeadlineExceeded'}"
    cluster.wait(300)
    cluster.operate()
    assert [job.name for job in cluster.running("build")] == ([f"{name[:-1]}2"] if again else [])
    for job in cluster.running("build"):
        cluster.show(job.name, pods=(LATE,), outcome=INTERRUPTED)
    cluster.operate()
    assert cluster.says("EngineBuilt") == "False/BuildDeadlineExceeded"


@pytest.mark.parametrize(
    "last",
    [
        pod(phase="Failed", exit_code=3),
        pod(phase="Failed", exit_code=3, disrupted=True),
        pod(phase="Failed", exit_code=3, reason="DeadlineExceeded", disrupted=True),
    ],
)
def test_a_build_that_somebody_else_interrupted_is_tried_for_ever(last: PodView) -> None:
    """A pod that was deleted, preempted or drained: by its Job, and anew should the Job give up."""
    cluster = building()
    for _ in range(5):
        name = build_job(cluster)
        cluster.show(name, pods=(last,), outcome=INTERRUPTED)
        cluster.operate()
        assert build_job(cluster) == name
        cluster.show(name, active=0, failed=True, failure_reason="BackoffLimitExceeded")
        cluster.operate()
        assert cluster.says("EngineBuilt") == "False/BuildRetrying"
        cluster.wait(300)
        cluster.operate()


def test_what_the_builder_said_goes_before_the_deadline_of_its_pod() -> None:
    cluster = building()
    cluster.show(build_job(cluster), pods=(LATE,), outcome=NO_ACCURACY, active=0, failed=True)
    cluster.operate()
    assert cluster.says("EngineBuilt") == "False/AccuracyNotReached"


@pytest.mark.parametrize(
    "change",
    [
        {"replicas": 3},
        {"autoscaling": {"maxReplicas": 4}},
        {"rollout": {"strategy": "Recreate"}},
        {"serving": {"podTemplate": {"metadata": {"labels": {"team": "a"}}}}},
    ],
)
def test_what_concerns_replicas_alone_does_not_revive_a_failed_build(change: dict[str, Any]) -> None:
    """An autoscaler that writes /scale would otherwise spend a device on it each time."""
    cluster = out_of_time()
    cluster.edit(**change)
    cluster.operate()
    assert not cluster.running("build")
    assert cluster.says("EngineBuilt") == "False/BuildDeadlineExceeded"
    cluster.edit(suspend=True)
    cluster.operate()
    cluster.edit(suspend=None)
    cluster.operate()
    assert not cluster.running("build")


@pytest.mark.parametrize(
    "change",
    [{"engine": {"queueName": "q"}}, {"placement": {"accelerator": "cpu", "nodeSelector": {"pool": "b"}}}],
)
def test_what_a_build_depends_on_revives_it(change: dict[str, Any]) -> None:
    cluster = out_of_time()
    cluster.edit(**change)
    cluster.operate()
    assert len(cluster.running("build")) == 1


def test_deadline_of_a_build_that_never_started_is_no_verdict() -> None:
    cluster = building()
    cluster.show(build_job(cluster), pods=(pod(unschedulable="0/1 nodes"),))
    cluster.operate()
    cluster.fail(of="build", reason="DeadlineExceeded")
    cluster.operate()
    assert cluster.says("EngineBuilt") == "False/BuildRetrying"
    cluster.wait(300)
    cluster.operate()
    assert len(cluster.running("build")) == 1


@pytest.mark.parametrize(
    "outcome",
    [
        refused("build", "user", "RequestInvalid"),
        refused("build", "bug", "InternalError"),
        refused("build", "transient", "StorageUnavailable"),
    ],
)
def test_reasons_of_the_builder_pass_through(outcome: Outcome) -> None:
    cluster = building()
    cluster.finish(outcome)
    cluster.operate()
    assert outcome.error is not None
    told = cluster.condition("EngineBuilt")
    assert outcome.error.reason in (told["reason"], told["message"].split(":")[0])


def test_new_spec_replaces_the_running_build_and_two_never_live_together() -> None:
    cluster = building()
    old = build_job(cluster)
    cluster.edit(engine={"precision": "fp32"})
    for _ in range(3):
        cluster.operate()
        assert len(cluster.running("build")) <= 1
    assert old not in cluster.jobs
    assert build_job(cluster) != old


def test_suspend_stops_the_build_and_resume_starts_it_again() -> None:
    cluster = building()
    name = build_job(cluster)
    cluster.edit(suspend=True)
    cluster.operate()
    assert not cluster.running()
    assert cluster.says("EngineBuilt") == "False/Suspended"
    cluster.edit(suspend=None)
    cluster.operate()
    assert build_job(cluster) == name


def test_build_of_another_release_is_refused() -> None:
    cluster = building()
    name = build_job(cluster)
    cluster.show(name, active=0, succeeded=True, outcome=built("f" * 64))
    cluster.operate()
    assert cluster.says("EngineBuilt") == "False/BuildFailed"
    assert "different releases" in cluster.condition("EngineBuilt")["message"]
    assert not cluster.records


def test_lost_status_neither_builds_twice_nor_forgets_a_refusal() -> None:
    cluster = building()
    cluster.status = {}
    cluster.operate()  # resolve again: its Job is still there
    cluster.operate()
    assert len([name for name in cluster.jobs if "-build-" in name]) == 1
    cluster.finish(NO_ACCURACY)
    cluster.operate()
    cluster.status = {}
    cluster.operate()
    cluster.operate()
    assert cluster.says("EngineBuilt") == "False/AccuracyNotReached"
    assert not cluster.running()


DAMAGED = {
    "phase": "Pending",
    "failed_container": "verify",
    "exit_code": 2,
    "terminated_message": "engine refused: model.onnx has 3 bytes, the manifest says 4",
}


def lose_engine(cluster: Cluster) -> None:
    cluster.broken = {cluster.revision: DAMAGED}
    cluster.kubelet()
    cluster.deployment_controller()
    cluster.endpoint_controller()


def test_lost_engine_is_built_again_and_stuck_replicas_look_again() -> None:
    cluster = Cluster()
    cluster.settle()
    lose_engine(cluster)
    plan = cluster.operate()
    assert not cluster.records
    assert cluster.says("EngineBuilt") == "False/EngineLost"
    assert "3 bytes" in cluster.condition("EngineBuilt")["message"]
    assert any(text.startswith("Delete Job") for text in described(plan))
    cluster.operate()
    assert build_job(cluster).endswith("-2")
    cluster.wait(60)
    cluster.finish(built(built_at=cluster.now))
    plan = cluster.operate()
    assert [text for text in described(plan) if text.startswith("Apply Deployment minilm-")], "of the new manifest"
    cluster.broken = {}
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    assert served_digests(cluster) == {record.outcome.manifest_digest for record in cluster.records.values()}
    assert [name[-2:] for name in cluster.jobs if "-build-" in name] == ["-2"], "once"


IN_A_BUCKET = {"uri": "s3://engines/team-a", "secretRef": {"name": "keys"}}


def test_an_engine_in_a_bucket_needs_no_claim_of_its_own() -> None:
    cluster = Cluster(spec={**SPEC, "store": IN_A_BUCKET}, claims={"models"})
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    (record,) = cluster.records.values()
    assert (record.store_uri, record.store_claim) == ("s3://engines/team-a", "")


def test_an_engine_in_a_bucket_that_replicas_refuse_is_read_as_a_whole_before_it_is_taken_again() -> None:
    cluster = Cluster(spec={**SPEC, "store": IN_A_BUCKET})
    cluster.settle()
    lose_engine(cluster)
    cluster.operate()
    cluster.operate()
    asked = json.loads(cluster.requests[build_job(cluster)])
    assert asked["bucket"] == {"uri": "s3://engines/team-a", "check_digests": True}


@pytest.mark.parametrize("done", [True, False])
def test_a_build_for_another_store_is_not_taken_for_one_of_the_store_that_is_asked_for_now(done: bool) -> None:
    cluster = building()
    first = build_job(cluster)
    if done:
        cluster.settle()
    cluster.records.clear()  # those of the object's own store alone are seen
    cluster.edit(store=IN_A_BUCKET)
    for _ in range(4):
        cluster.operate()
        cluster.finish(resolved(), of="resolve")
    assert not cluster.records, "nobody has built into the bucket yet"
    assert build_job(cluster) == first
    assert json.loads(cluster.requests[first])["bucket"]["uri"] == "s3://engines/team-a"
    cluster.finish(built(built_at=cluster.now), of="build")
    cluster.operate()
    assert [record.store_uri for record in cluster.records.values()] == ["s3://engines/team-a"]


def served_digests(cluster: Cluster) -> set[str]:
    return {pod.manifest_digest for pod in cluster.pods.values() if pod.ready}


def test_stuck_replicas_look_again_where_the_store_has_the_engine_once_more() -> None:
    cluster = Cluster()
    cluster.settle()
    was, = cluster.records.values()
    lose_engine(cluster)
    cluster.operate()
    cluster.operate()
    cluster.wait(60)
    cluster.finish(replace(built(built_at=cluster.now), manifest_digest=was.outcome.manifest_digest))
    cluster.operate()
    cluster.broken = {}
    plan = cluster.operate()
    assert [text.split("-")[0] for text in described(plan)] == ["Delete Pod minilm"]
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"


def built_by_another_object(cluster: Cluster, fingerprint: str) -> str:
    """Its new manifest's digest."""
    record, again = cluster.records[fingerprint], f"sha256:{'c' * 64}"
    cluster.records[fingerprint] = replace(record, outcome=replace(record.outcome, manifest_digest=again))
    cluster.stored[fingerprint] = again
    return again


@pytest.mark.parametrize("strategy", ["Canary", "Recreate"])
def test_replicas_of_an_engine_that_another_object_built_again_are_brought_to_it(strategy: str) -> None:
    """Those that serve go on; one that starts refuses what it does not know."""
    cluster = Cluster(spec={**SPEC, "replicas": 3, "rollout": {"strategy": strategy}})
    cluster.settle()
    (fingerprint, record), = cluster.records.items()
    again = built_by_another_object(cluster, fingerprint)
    cluster.settle()
    assert served_digests(cluster) == {record.outcome.manifest_digest}
    del cluster.pods[min(cluster.pods)]
    jobs, answering = dict(cluster.jobs), []
    for _ in range(20):
        cluster.operate()
        cluster.controllers()
        answering.append(sum(pod.ready for pod in cluster.pods.values()))
        cluster.wait(1)
    assert served_digests(cluster) == {again}
    assert min(answering) >= 2
    assert cluster.jobs == jobs, "without a build"
    assert cluster.says("Ready") == "True/Serving"


def test_one_that_refuses_gives_its_device_to_the_next() -> None:
    cluster = Cluster(devices=1)
    cluster.settle()
    again = built_by_another_object(cluster, next(iter(cluster.records)))
    del cluster.pods[min(cluster.pods)]
    cluster.settle()
    assert served_digests(cluster) == {again}


def test_a_candidate_whose_engine_was_built_again_before_it_started_is_not_given_up() -> None:
    cluster = Cluster()
    cluster.settle()
    first = cluster.revision
    cluster.edit(engine={"maxBatchSize": 16})
    for _ in range(50):
        cluster.operate()
        cluster.settle_jobs()
        cluster.wait(1)
        if new := [view for view in cluster.deployments.values() if view.revision != first]:
            break
    again = built_by_another_object(cluster, new[0].fingerprint)
    cluster.settle()
    assert cluster.revision == new[0].revision
    assert served_digests(cluster) == {again}


def test_engine_is_not_rebuilt_for_ever() -> None:
    cluster = Cluster()
    cluster.settle()
    lose_engine(cluster)
    jobs = set()
    for _ in range(40):
        cluster.operate()
        jobs |= {job.name for job in cluster.running("build")}
        cluster.finish(built(built_at=cluster.now - timedelta(seconds=30)), of="build")
        cluster.controllers()
        cluster.wait(30)
    assert len(jobs) == 2
    assert cluster.says("RolloutComplete") == "False/EngineRefused"
    assert cluster.says("Ready") == "False/EngineRefused"

"""What the source is: found once, remembered, and asked for again only when something changed."""

from __future__ import annotations

import pytest

from enginewright.core import labels
from enginewright.core.context import LOOK_AGAIN
from enginewright.core.decide.engine.build import FOLLOW
from enginewright.core.decide.jobs import PODLESS_SECONDS
from enginewright.core.observed import PodView
from support.cluster import Cluster, described, refused, resolved


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def resolve_job(cluster: Cluster) -> str:
    return next(name for name in cluster.jobs if "-resolve-" in name)


def test_resolving_starts_with_request_and_job(cluster: Cluster) -> None:
    plan = cluster.operate()
    assert [text.rsplit("-", 1)[0] for text in described(plan)] == [
        "Create ConfigMap minilm-resolve",
        "Create Job minilm-resolve",
    ]
    assert cluster.says("SourceResolved") == "False/Resolving"
    assert cluster.says("EngineBuilt") == "Unknown/WaitingForSource"
    assert cluster.says("Ready") == "False/Resolving"
    assert not cluster.operate().actions


def test_digests_are_remembered_after_the_job_is_gone(cluster: Cluster) -> None:
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.jobs.clear()
    cluster.operate()
    assert cluster.says("SourceResolved") == "True/Resolved"
    assert cluster.status["source"]["digest"] == "sha256:" + "a" * 64
    assert not [name for name in cluster.jobs if "-resolve-" in name]


@pytest.mark.parametrize(
    ("claim", "condition", "told"),
    [
        ("models", "SourceResolved", "False/VolumeMissing"),
        ("enginewright-store", "EngineBuilt", "False/StoreMissing"),
    ],
)
def test_no_pod_before_the_volumes_exist(cluster: Cluster, claim: str, condition: str, told: str) -> None:
    cluster.claims.discard(claim)
    plan = cluster.operate()
    assert not plan.actions
    assert plan.requeue_after
    assert cluster.says(condition) == told
    assert claim in cluster.condition(condition)["message"]
    cluster.claims.add(claim)
    assert cluster.operate().actions


def test_user_error_waits_for_a_change(cluster: Cluster) -> None:
    cluster.operate()
    cluster.finish(
        refused(
            "resolve",
            "user",
            "DigestMismatch",
            "the content is not what was declared",
            field="spec.source.digest",
            value="sha256:12",
            remedy="correct the digest",
        )
    )
    cluster.operate()
    assert cluster.says("SourceResolved") == "False/DigestMismatch"
    message = cluster.condition("SourceResolved")["message"]
    for part in ("spec.source.digest", "sha256:12", "correct the digest",
                 "kubectl optimisedmodel retry minilm -n prod"):
        assert part in message
    cluster.jobs.clear()  # its time to live has passed
    for _ in range(3):
        cluster.wait(3600)
        assert not cluster.operate().actions
    assert cluster.says("Ready") == "False/DigestMismatch"


def test_a_source_that_took_too_long_is_tried_three_times(cluster: Cluster) -> None:
    """The builder, which its pod's deadline stopped, knows only that it was interrupted."""
    late, tries = PodView(name="resolve-pod", phase="Failed", exit_code=3, reason="DeadlineExceeded"), 0
    for _ in range(20):
        cluster.operate()
        for job in cluster.running("resolve"):
            tries += 1
            cluster.finish(refused("resolve", "transient", "Interrupted"))
            cluster.show(job.name, pods=(late,))
        cluster.wait(600)
    assert tries == 3
    assert cluster.says("SourceResolved") == "False/BuildDeadlineExceeded"
    assert "check that the source can be read" in cluster.condition("SourceResolved")["message"]
    cluster.wait(3600)
    assert not cluster.operate().actions
    cluster.annotations[labels.RETRY] = "1"
    cluster.operate()
    cluster.operate()
    assert len(cluster.running("resolve")) == 1


@pytest.mark.parametrize("change", ["annotation", "engine", "source"])
def test_a_change_tries_a_user_error_again(cluster: Cluster, change: str) -> None:
    cluster.operate()
    cluster.finish(refused("resolve", "user", "SourceMissing"))
    cluster.operate()
    if change == "annotation":
        cluster.annotations[labels.RETRY] = "1"
    elif change == "engine":
        cluster.edit(engine={"maxBatchSize": 4})
    else:
        cluster.edit(source={"uri": "pvc://models/other"})
    cluster.wait(5)
    cluster.operate()
    cluster.operate()
    assert len(cluster.running("resolve")) == 1
    cluster.finish(resolved())
    cluster.operate()
    assert cluster.says("SourceResolved") == "True/Resolved"


def test_what_concerns_replicas_alone_does_not_look_again(cluster: Cluster) -> None:
    cluster.operate()
    cluster.finish(refused("resolve", "user", "SourceMissing"))
    cluster.operate()
    cluster.edit(replicas=2)
    cluster.wait(5)
    cluster.operate()
    assert not cluster.running("resolve")
    assert cluster.says("SourceResolved") == "False/SourceMissing"


def test_transient_failure_is_retried_with_growing_delay(cluster: Cluster) -> None:
    delays = []
    for attempt in range(1, 8):
        while not cluster.running("resolve"):
            cluster.operate()
        cluster.finish(refused("resolve", "transient", "NetworkUnavailable", "no route"))
        plan = cluster.operate()
        assert cluster.says("SourceResolved") == "False/ResolveRetrying"
        assert f"Attempt {attempt + 1} starts at" in cluster.condition("SourceResolved")["message"]
        assert plan.requeue_after is not None
        delays.append(plan.requeue_after)
        before = cluster.status
        cluster.wait(plan.requeue_after - 1)
        cluster.operate()
        assert cluster.status == before
        assert not cluster.running()
        cluster.wait(1)
    assert delays == [10, 20, 40, 80, 160, 300, 300]


def test_bug_gives_up_after_three_attempts(cluster: Cluster) -> None:
    for _ in range(3):
        while not cluster.running("resolve"):
            cluster.operate()
        cluster.finish(refused("resolve", "bug", "InternalError", "KeyError: 'x'"))
        cluster.operate()
        cluster.wait(300)
    assert cluster.says("SourceResolved") == "False/InternalError"
    cluster.wait(3600)
    assert not cluster.operate().actions


def test_changed_source_stops_the_superseded_job(cluster: Cluster) -> None:
    cluster.operate()
    old = resolve_job(cluster)
    cluster.edit(source={"uri": "pvc://models/other"})
    plan = cluster.operate()
    assert f"Delete Job {old}" in described(plan)
    assert old not in cluster.jobs
    assert len(cluster.running("resolve")) == 1


def test_image_that_cannot_be_pulled_is_named(cluster: Cluster) -> None:
    cluster.operate()
    cluster.show(
        resolve_job(cluster),
        pods=(PodView(name="p", phase="Pending", waiting_reason="ErrImagePull", waiting_message="not found"),),
    )
    cluster.operate()
    assert cluster.says("SourceResolved") == "False/ImagePullFailed"
    assert cluster.config.images.builder in cluster.condition("SourceResolved")["message"]


def test_what_no_node_has_room_for_is_a_setting_of_the_chart(cluster: Cluster) -> None:
    cluster.operate()
    pod = PodView(name="p", phase="Pending", unschedulable="0/1 nodes are available: 1 Insufficient memory.",
                  requests={"cpu": "100m", "memory": "64Gi"})
    cluster.show(resolve_job(cluster), pods=(pod,))
    cluster.operate()
    assert cluster.says("SourceResolved") == "False/Unschedulable"
    assert cluster.condition("SourceResolved")["message"] == (
        "No node can take pod p: 0/1 nodes are available: 1 Insufficient memory. It asks for cpu: 100m and memory: "
        "64Gi; check with: kubectl describe nodes. Set a lower config.resolveResources.requests.memory of the "
        "operator's chart, or add a node with more memory to spare.")


def test_a_job_for_which_no_pod_can_be_made_is_told(cluster: Cluster) -> None:
    """A quota, or a ServiceAccount that is not there: no pod says anything."""
    cluster.operate()
    name = resolve_job(cluster)
    cluster.show(name, active=0, pods=())
    plan = cluster.operate()
    assert cluster.says("SourceResolved") == "False/Resolving", "it may come in a moment"
    assert plan.requeue_after is not None
    cluster.wait(plan.requeue_after)
    cluster.operate()
    assert cluster.says("SourceResolved") == "False/PodCannotStart"
    assert f"kubectl describe job {name} -n prod" in cluster.condition("SourceResolved")["message"]
    cluster.show(name, active=1)
    cluster.operate()
    assert cluster.says("SourceResolved") == "False/Resolving"


@pytest.mark.parametrize("of", ["resolve", "build"])
def test_it_is_told_when_its_time_is_up_whatever_happens_before(of: str, cluster: Cluster) -> None:
    """Every event begins a pass, and each pass sets the time of the next anew."""
    cluster.operate()
    if of == "build":
        cluster.finish(resolved(), of="resolve")
        cluster.operate()
    (job,) = cluster.running(of)
    cluster.show(job.name, active=0, pods=())
    condition = "SourceResolved" if of == "resolve" else "EngineBuilt"
    for seconds in (0.0, 12.0, 7.0):
        cluster.wait(seconds)
        plan = cluster.operate()
        assert "PodCannotStart" not in cluster.says(condition)
    assert plan.requeue_after is not None
    cluster.wait(plan.requeue_after)
    assert (cluster.now - job.created).total_seconds() == PODLESS_SECONDS
    plan = cluster.operate()
    assert cluster.says(condition) == "False/PodCannotStart"
    assert plan.requeue_after in (FOLLOW, LOOK_AGAIN), "no hurry after that"


@pytest.mark.parametrize(("queue", "told"), [("", "False/PodCannotStart"), ("gpus", "False/BuildPending")])
def test_nor_is_one_of_a_build_left_to_guess(queue: str, told: str, cluster: Cluster) -> None:
    cluster.edit(engine={"queueName": queue})
    cluster.operate()
    cluster.finish(resolved(), of="resolve")
    cluster.operate()
    (job,) = cluster.running("build")
    cluster.show(job.name, active=0, pods=(), suspended=False)
    cluster.wait(30)
    cluster.operate()
    assert cluster.says("EngineBuilt") == told


def test_suspend_stops_and_resume_starts_again(cluster: Cluster) -> None:
    cluster.operate()
    cluster.edit(suspend=True)
    cluster.operate()
    assert not cluster.jobs
    assert cluster.says("SourceResolved") == "False/Suspended"
    assert not cluster.operate().actions
    cluster.edit(suspend=None)
    cluster.operate()
    assert len(cluster.running("resolve")) == 1

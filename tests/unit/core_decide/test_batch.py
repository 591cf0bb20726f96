"""A data set that is run through an engine: one Job, made anew as often as it takes, and never once it is complete."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.config import OperatorConfig, Prices
from enginewright.core.observed import PodView
from enginewright.core.plan import Create
from enginewright.core.spec import Spec, parse_spec, validate
from enginewright.plugin.screen import rows
from enginewright.plugin.words import explain
from enginewright_builder.contract import ErrorReport, Outcome, ShardSummary
from support.cluster import REFUSED, SPEC, Cluster, built
from support.once import once

BATCH: dict[str, Any] = {"input": {"uri": "pvc://data/rows.npz"}, "output": {"uri": "pvc://data/answers"}, "shards": 4,
                         "parallelism": 2}
PLAIN = {name: SPEC[name] for name in ("source", "placement")}
ROWS = 1002


def shard(number: int) -> Outcome:
    return Outcome(kind="batch", ok=True, shard=ShardSummary(shard=number, shards=4, rows=250, total=ROWS,
                                                             answered=250))


@once
def begun() -> Cluster:
    """The Job is there, and no pod of it yet."""
    cluster = Cluster(spec={**PLAIN, "batch": BATCH}, config=OperatorConfig(
        prices=Prices(currency="EUR", per_hour={"cpu": 0.5})))
    cluster.claims.add("data")
    for _ in range(20):
        cluster.operate()
        if run_of(cluster):
            break
        cluster.finish(built(device_class="cpu"), of="-build-")
        cluster.settle_jobs()
        cluster.wait(1)
    cluster.operate()
    return cluster


def run_of(cluster: Cluster) -> str:
    """Its name; empty while there is none."""
    return next((job.name for job in cluster.jobs.values() if job.step == labels.COMPONENT_BATCH), "")


def complete(cluster: Cluster) -> None:
    cluster.show(run_of(cluster), succeeded=True, active=0, completed=(0, 1, 2, 3), outcome=shard(3),
                 started="2026-11-21T12:00:00Z", ended="2026-11-21T12:10:00Z")
    cluster.operate()


def test_an_engine_is_built_and_one_job_made_and_nothing_that_serves() -> None:
    cluster = begun()
    assert run_of(cluster).startswith("minilm-batch-")
    assert cluster.says("EngineBuilt") == "True/Built"
    assert cluster.says("Ready") == "False/BatchRunning"
    assert (cluster.deployments, cluster.applied, cluster.service) == ({}, {}, None)
    assert {one["type"] for one in cluster.status["conditions"]} == {
        "Ready", "SourceResolved", "EngineBuilt", "AccuracyVerified", "ObjectiveMet"}
    assert cluster.status["batch"]["fingerprint"] == cluster.status["fingerprint"]


def test_progress_and_the_end_are_told_with_speed_and_cost() -> None:
    cluster = begun()
    cluster.show(run_of(cluster), completed=(0, 2), outcome=shard(0), started="2026-11-21T12:00:00Z")
    cluster.operate()
    assert cluster.says("Ready") == "False/BatchRunning"
    assert "2 of 4 shards are done, 500 of 1002 rows" in cluster.condition("Ready")["message"]
    complete(cluster)
    assert cluster.says("Ready") == "True/BatchComplete"
    told = cluster.status["batch"]
    assert (told["rows"], told["rowsCompleted"], told["completed"]) == (ROWS, ROWS, 4)
    assert told["rowsPerSecond"] == pytest.approx(ROWS / 600, abs=0.1)
    assert (told["cost"], told["currency"]) == (pytest.approx(2 * 0.5 / 6, rel=0.01), "EUR")
    assert "Normal BatchComplete" in cluster.log


def test_what_is_complete_is_never_begun_again() -> None:
    """Not when Kubernetes has cleared the Job away, nor for another engine; but for another run."""
    cluster = begun()
    complete(cluster)
    first = run_of(cluster)
    cluster.jobs.clear()
    cluster.edit(engine={"maxBatchSize": 8})
    for _ in range(5):
        cluster.move()
    assert cluster.jobs == {}
    assert cluster.says("Ready") == "True/BatchComplete"
    cluster.edit(batch={**BATCH, "output": {"uri": "pvc://data/more"}})
    for _ in range(10):
        cluster.operate()
        if run_of(cluster):
            break
        cluster.settle_jobs()
    assert run_of(cluster) not in ("", first)
    assert "completionTime" not in cluster.status["batch"]


@pytest.mark.parametrize("change", [{"batch": {**BATCH, "parallelism": 3}},
                                    {"serving": {"resources": {"limits": {"memory": "9Gi"}}}}])
def test_a_change_stops_the_job_and_another_goes_on(change: dict[str, Any]) -> None:
    cluster = begun()
    before = cluster.jobs[run_of(cluster)].manifest_hash
    cluster.edit(**change)
    cluster.operate()
    assert run_of(cluster) == ""
    cluster.operate()
    assert cluster.jobs[run_of(cluster)].manifest_hash != before
    cluster.operate()
    assert run_of(cluster)


def test_suspended_it_stops_and_later_goes_on() -> None:
    cluster = begun()
    cluster.edit(suspend=True)
    for _ in range(3):
        cluster.operate()
    assert run_of(cluster) == ""
    assert cluster.says("Ready") == "False/Suspended"
    cluster.edit(suspend=None)
    cluster.operate()
    assert run_of(cluster)


def test_a_job_that_is_deleted_comes_again() -> None:
    cluster = begun()
    cluster.jobs.clear()
    cluster.operate()
    assert run_of(cluster)


def test_bad_input_waits_for_a_change_and_says_what() -> None:
    cluster = begun()
    error = ErrorReport(family="user", reason="BatchInputInvalid", message="sample 7: x holds NaN",
                        field="spec.batch.input.uri", value="NaN", remedy="mend what wrote them")
    cluster.show(run_of(cluster), failed=True, active=0, outcome=Outcome(kind="batch", ok=False, error=error))
    for _ in range(3):
        cluster.operate()
    assert cluster.says("Ready") == "False/BatchFailed"
    said = cluster.condition("Ready")["message"]
    assert "spec.batch.input.uri: sample 7: x holds NaN (got NaN); mend what wrote them." in said
    assert "Warning BatchFailed" in cluster.log
    cluster.jobs.clear()  # Kubernetes clears it away
    cluster.operate()
    assert run_of(cluster) == ""
    cluster.annotations[labels.RETRY] = "1"
    cluster.operate()
    assert run_of(cluster)
    assert cluster.says("Ready") == "False/BatchRunning"
    assert "failure" not in cluster.status["batch"]


def test_a_pod_that_no_node_takes_is_told() -> None:
    cluster = begun()
    pod = PodView(name="p", phase="Pending", created=cluster.now,
                  unschedulable="0/3 nodes are available: 3 Insufficient memory.", requests={"memory": "64Gi"})
    cluster.show(run_of(cluster), pods=(pod,))
    cluster.operate()
    assert cluster.says("Ready") == "False/Unschedulable"
    message = cluster.condition("Ready")["message"]
    assert "It asks for memory: 64Gi; " in message
    assert "Set a lower spec.serving.resources.requests.memory" in message


def test_volumes_that_are_missing_are_named() -> None:
    cluster = Cluster(spec={**PLAIN, "batch": BATCH})
    for _ in range(10):
        cluster.operate()
        cluster.settle_jobs()
    assert cluster.says("Ready") == "False/VolumeMissing"
    assert "Claim data, which spec.batch.input.uri names" in cluster.condition("Ready")["message"]


def test_killed_after_any_write_it_makes_one_job() -> None:
    for writes in range(4):
        cluster = begun()
        cluster.jobs.clear()
        cluster.status = {**cluster.status, "batch": {"key": cluster.status["batch"]["key"]}}
        cluster.operate(writes=writes)
        cluster.operate()
        cluster.operate()
        assert len([job for job in cluster.jobs.values() if job.step == labels.COMPONENT_BATCH]) == 1
        assert cluster.status["batch"]["job"] == run_of(cluster)


@pytest.mark.parametrize(("beside", "field"), [
    ({"replicas": 2}, "spec.replicas"), ({"autoscaling": {"maxReplicas": 2}}, "spec.autoscaling"),
    ({"quality": {}}, "spec.quality"), ({"objective": {"latency": {"milliseconds": 20}}}, "spec.objective.latency"),
    ({"objective": {"throughput": 5}}, "spec.objective.throughput"),
    ({"rollout": {"strategy": "BlueGreen"}}, "spec.rollout.strategy"),
    ({"serving": {"queue": {"maxQueueSize": 5}}}, "spec.serving.queue"),
    ({"batch": {**BATCH, "output": BATCH["input"]}}, "spec.batch.output.uri")])
def test_what_a_run_has_no_use_for_is_refused(beside: dict[str, Any], field: str) -> None:
    spec = parse_spec({**PLAIN, "batch": BATCH, **beside})
    assert isinstance(spec, Spec)
    assert [problem.field for problem in validate(spec)] == [field]


def test_pods_are_like_replicas_and_nothing_of_them_is_left_running() -> None:
    cluster = begun()
    cluster.jobs.clear()
    plan = cluster.plan()
    (job,) = [action.manifest for action in plan.serving if isinstance(action, Create)]
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 2)
    assert spec["podFailurePolicy"]["rules"][0]["action"] == "Ignore"
    assert [one["name"] for one in pod["initContainers"]] == ["verify", "server"]
    assert pod["initContainers"][1]["restartPolicy"] == "Always"
    assert "startupProbe" in pod["initContainers"][1]
    assert [one["name"] for one in pod["containers"]] == ["batch"]
    assert job["spec"]["template"]["metadata"]["labels"][labels.COMPONENT] == labels.COMPONENT_BATCH


def test_an_engine_that_the_store_lost_is_built_again() -> None:
    cluster = begun()
    cluster.jobs.clear()
    (job,) = [one.manifest for one in cluster.plan().serving if isinstance(one, Create)]
    revision = job["spec"]["template"]["metadata"]["labels"][labels.REVISION]
    cluster.operate()
    pod = PodView(name="p", created=cluster.now, revision=revision, **{**REFUSED, "phase": "Failed"})
    name = run_of(cluster)
    cluster.show(name, failed=True, active=0, pods=(pod,))
    cluster.operate()
    assert cluster.says("EngineBuilt") == "False/EngineLost"
    assert run_of(cluster) == ""
    for _ in range(10):
        cluster.operate()
        if run_of(cluster):
            break
        cluster.settle_jobs()
        cluster.wait(1)
    assert run_of(cluster) == name
    assert cluster.says("EngineBuilt") == "True/Built"


def test_other_jobs_of_the_object_are_let_alone() -> None:
    cluster = begun()
    name = run_of(cluster)
    cluster.jobs["another-batch"] = replace(cluster.jobs[name], name="another-batch")
    cluster.operate()
    assert run_of(cluster) == name
    assert "another-batch" not in cluster.jobs


def test_the_plugin_tells_how_it_stands() -> None:
    cluster = begun()
    cluster.show(run_of(cluster), completed=(0, 2), outcome=shard(0), started="2026-11-21T12:00:00Z")
    cluster.operate()
    told = explained(cluster)
    assert told[0].startswith("minilm has not answered its data set: Job minilm-batch-")
    assert any(line == "Data set: 2 of 4 shards are done, 500 of 1002 rows." for line in told)
    (row,) = rows([an_object(cluster)])
    assert (row["READY"], row["REPLICAS"], row["REASON"]) == ("False", "", "BatchRunning")
    complete(cluster)
    told = explained(cluster)
    assert told[0] == "minilm has answered its data set: All 1002 rows are answered (1.7 a second)."
    assert "Data set: 4 of 4 shards are done, 1002 of 1002 rows, 1.7 rows a second, for 0.167 EUR at most." in told
    failed = {**cluster.status["batch"], "failure": {"reason": "x", "message": "y"}}
    cluster.status = {**cluster.status, "batch": failed}
    assert any("optimisedmodel retry minilm" in line for line in explained(cluster))


def an_object(cluster: Cluster) -> dict[str, Any]:
    return {"metadata": {"name": cluster.name, "namespace": "prod", "generation": cluster.generation},
            "spec": dict(cluster.spec), "status": dict(cluster.status)}


def explained(cluster: Cluster) -> list[str]:
    found = explain(an_object(cluster), cluster.now)
    return [found.headline, *found.facts, *found.way, *found.next]


def test_a_pod_without_memory_is_told_with_the_field_of_a_run() -> None:
    cluster = begun()
    pod = PodView(name="p", phase="Failed", created=cluster.now, terminated_reason="OOMKilled", exit_code=137)
    cluster.show(run_of(cluster), failed=True, active=0, failed_shards=2, pods=(pod,))
    cluster.operate()
    told = cluster.condition("Ready")["message"]
    assert "(2 shards given up): a pod ran out of memory; raise spec.serving.resources.limits.memory." in told

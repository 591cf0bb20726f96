"""Test answers of a language model: the container that asks, what is said of its report, and what an analysis does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core.context import Memory, PassContext
from enginewright.core.decide.quality import REFRESH_SECONDS
from enginewright.core.decide.strategy import analysis
from enginewright.core.decide.strategy.analysis import own_answers
from enginewright.core.manifests import deployment, monitored
from enginewright_builder.contract import AGREEMENT, QualityReport
from support.children import children_of, good_spec
from support.cluster import SPEC, Cluster, resolved
from support.published_language_model import built_language_model

CHAT: dict[str, Any] = {
    "source": {"uri": "pvc://models/chat"}, "task": "generate", "placement": {"accelerator": "cpu"},
    "accuracy": {"metric": "agreement", "maxLoss": 0.05, "evaluation": {"uri": "pvc://models/prompts.jsonl"}},
    "rollout": {"analysis": {"seconds": 60, "mirror": False}}}


def pod(quality: dict[str, Any] | None) -> dict[str, Any]:
    children = children_of("chat", {**CHAT, **({} if quality is None else {"quality": quality})})
    record = replace(children.record, outcome=built_language_model(children.fingerprint))
    made = deployment(children.owner, children.spec, record, children.placement, children.config)
    found: dict[str, Any] = made["spec"]["template"]["spec"]
    return found


def test_a_container_beside_the_server_asks_it() -> None:
    found = pod({"sampleShare": 0.2, "window": 500})
    server, quality = found["containers"]
    assert monitored(found)
    assert quality["args"] == ["generate", "/reference", "--model=chat", "--share=0.2", "--per-minute=60",
                               "--window=500", "--port=8003", "--server-port=8000"]
    assert {one["mountPath"] for one in quality["volumeMounts"]} == {"/reference", "/tmp"}
    assert not [word for word in server["args"] if "trace" in word]
    assert "traces" not in {one["name"] for one in found["volumes"]}


def test_off_it_is_nowhere_to_be_seen() -> None:
    found = pod(None)
    assert [one["name"] for one in found["containers"]] == ["server"]
    assert not monitored(found)


def served(**quality: Any) -> Cluster:
    """Its build's record decides that it is a language model, as in test_language_model_served."""
    cluster = Cluster(spec={**SPEC, "replicas": 2, "quality": quality, "rollout": {"analysis": {"seconds": 60}}})
    publish(cluster)
    cluster.settle()
    return cluster


def publish(cluster: Cluster) -> None:
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(built_language_model(built_at=cluster.now), of="build")


def report(samples: int, mean: float, tolerance: float = 0.06) -> QualityReport:
    return QualityReport(metric=AGREEMENT, tolerance=tolerance, samples=samples, total=samples * mean)


def told(cluster: Cluster, *reports: QualityReport) -> tuple[str, str]:
    cluster.told = dict(zip(sorted(pod.name for pod in cluster.pods.values()), reports, strict=True))
    cluster.wait(REFRESH_SECONDS)
    cluster.step()
    return cluster.says("QualityHeld"), cluster.condition("QualityHeld")["message"]


@pytest.mark.parametrize(("samples", "mean", "says", "words"), [
    (0, 0.0, "Unknown/Measuring", "No test answer has been scored yet"),
    (40, 1.0, "Unknown/Measuring", "over 80 test answers of 2 replicas"),
    (400, 1.0, "True/Agreeing", "agreement 1.0000 with the source model"),
    (400, 0.5, "False/QualityDrifted", "a node's device or driver")])
def test_what_is_said_of_test_answers(samples: int, mean: float, says: str, words: str) -> None:
    cluster = served()
    said, message = told(cluster, report(samples, mean), report(samples, mean))
    assert said == says, message
    assert words in message
    assert "live answer" not in message.casefold()
    assert cluster.says("Ready").startswith("True/"), "who serves is not in question"


def test_the_replica_that_no_longer_agrees_is_named() -> None:
    cluster = served()
    bad = sorted(pod.name for pod in cluster.pods.values())[0]
    _, message = told(cluster, report(200, 0.2), report(2000, 1.0))
    assert f"Replica {bad} alone has drifted: 0.2000" in message
    assert "over 200 test answers; look at its node" in message


def context(cluster: Cluster, **quality: Any) -> PassContext:
    spec = good_spec({**CHAT, **quality})
    return PassContext(obj=cluster.view(), spec=spec, observed=cluster.observe(), config=cluster.config,
                       memory=Memory.of(cluster.view().status))


def test_an_analysis_takes_what_the_candidates_own_monitors_report() -> None:
    cluster = served()
    told(cluster, report(30, 0.1), report(30, 0.1, tolerance=0.08))
    found = own_answers(context(cluster, quality={}), cluster.revision)
    assert found is not None
    assert found.samples == 60
    assert (found.agreed, found.required) == pytest.approx((6.0, 0.92))
    assert found.disagrees
    assert found.flaw.startswith("Its answers to prompts of its build are not the source model's: 60 test answers "
                                 "agree by agreement 0.100 (")
    assert own_answers(context(cluster), cluster.revision) is None, "nobody asked for it"


def test_what_was_proven_to_disagree_a_little_does_not_disagree() -> None:
    cluster = served()
    told(cluster, report(1000, 0.95), report(1000, 0.95))
    found = own_answers(context(cluster, quality={}), cluster.revision)
    assert found is not None
    assert not found.disagrees
    assert found.enough


def test_without_a_report_it_says_so() -> None:
    found = own_answers(context(served(), quality={}), "no-such-revision")
    assert found is not None
    assert not found.disagrees
    assert found.figures == "no test answer was scored (no monitor beside it reports)"


@pytest.mark.parametrize(("stable", "candidate", "alike"), [(True, True, True), (False, False, True),
                                                            (True, False, False), (False, True, False)])
def test_lengths_are_compared_only_where_both_or_none_are_asked(stable: bool, candidate: bool, alike: bool) -> None:
    cluster = served()
    (one,) = cluster.observe().deployments
    views = (replace(one, revision="a", monitored=stable), replace(one, revision="b", monitored=candidate))
    ctx = context(cluster, quality={})
    ctx = replace(ctx, observed=replace(ctx.observed, deployments=views))
    assert analysis._watched_alike(ctx, "a", "b") is alike


def test_a_candidate_whose_test_answers_are_wrong_is_rolled_back_with_the_figures() -> None:
    cluster = served()
    cluster.edit(engine={"maxBatchSize": 8})
    cluster.operate()
    cluster.finish(built_language_model(built_at=cluster.now), of="build")
    for _ in range(12):
        cluster.operate()
        cluster.controllers()
        if (cluster.status.get("rollout") or {}).get("step") == "Analysing":
            break
    candidate = str(cluster.status["rollout"]["candidate"])
    cluster.scores[candidate] = (30, 0.1)
    for _ in range(60):
        cluster.step()
        if cluster.says("RolloutComplete") == "False/RolledBack":
            break
    assert "(OutputsDiffer): Its answers to prompts of its build are not the source model's: 30 test answers" in (
        cluster.condition("RolloutComplete")["message"])
    assert cluster.revision != candidate

"""Live requests that are sent to the candidate as well, where the spec asks for it."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.comparison.mirrored import Mirrored
from enginewright.core.context import Memory, PassContext
from enginewright.core.decide.strategy.analysis import mirrored
from enginewright.core.manifests import Owner
from enginewright.core.manifests.service import mirror_name, mirror_service
from enginewright.core.plan import Delete
from enginewright_builder.contract import QualityReport
from support.children import good_spec
from support.cluster import SPEC, Cluster
from support.once import once

MIRROR = f"Service/{mirror_name('minilm')}"


@once
def serving(analysis: dict[str, Any] | None = None, **rollout: Any) -> Cluster:
    asked = {"analysis": {"seconds": 60, **({"mirror": True} if analysis is None else analysis)}, **rollout}
    cluster = Cluster(spec={**SPEC, "replicas": 1, "quality": {}, "rollout": asked}, rate=20.0)
    cluster.settle()
    return cluster


def changed(cluster: Cluster) -> str:
    """Until the candidate is analysed."""
    cluster.edit(engine={"maxBatchSize": 8})
    for _ in range(12):
        cluster.operate()
        cluster.settle_jobs()
        cluster.controllers()
        if (cluster.status.get("rollout") or {}).get("step") == "Analysing":
            return str(cluster.status["rollout"]["candidate"])
    raise AssertionError(cluster.status)


def go(cluster: Cluster, rounds: int, until: str) -> None:
    for _ in range(rounds):
        cluster.step()
        if cluster.says("RolloutComplete") == until:
            return
    raise AssertionError(cluster.condition("RolloutComplete"))


def test_the_service_leads_to_the_candidate_for_as_long_as_it_is_analysed() -> None:
    cluster = serving()
    assert MIRROR not in cluster.applied
    new = changed(cluster)
    assert MIRROR in cluster.applied
    selector = mirror_service(Owner.of(cluster.view()), new)["spec"]["selector"]
    assert selector == labels.revision_selector("minilm", new)
    cluster.mirrored = {new: (40, 0.999)}
    cluster.settle()
    assert cluster.revision == new
    assert MIRROR not in cluster.applied


@pytest.mark.parametrize("analysis", [{}, {"mirror": True, "compareOutputs": "never"}])
def test_nothing_is_sent_where_nobody_asks_or_outputs_are_not_compared(analysis: dict[str, Any]) -> None:
    cluster = serving(analysis)
    new = changed(cluster)
    cluster.mirrored = {new: (400, 0.0)}
    assert MIRROR not in cluster.applied
    cluster.settle()
    assert cluster.revision == new
    assert MIRROR not in cluster.applied


def test_a_candidate_that_answers_live_requests_otherwise_is_rolled_back_with_the_figures() -> None:
    """Made-up inputs show nothing of it."""
    cluster = serving()
    old, new = cluster.revision, changed(cluster)
    cluster.mirrored = {new: (10, 0.4)}
    go(cluster, 5, "False/RolledBack")
    message = cluster.condition("RolloutComplete")["message"]
    assert "(OutputsDiffer): Its answers to live requests are not the stable revision's: 10 mirrored live requests " \
           "agree by cosine 0.400 (" in message
    assert "0.960 is needed)" in message
    figures = cluster.status["rollout"]["analysis"]
    assert (figures["mirrored"], figures["agreement"]) == (10, 0.4)
    assert figures["agreementLow"] < 0.4 < figures["agreementHigh"] < 0.96
    cluster.settle()
    assert cluster.revision == old
    assert MIRROR not in cluster.applied


def test_agreement_is_told_in_status_and_with_the_promotion() -> None:
    cluster = serving(autoPromote=False)
    new = changed(cluster)
    cluster.mirrored = {new: (40, 0.999)}
    go(cluster, 60, "False/WaitingForPromotion")
    assert "; 40 mirrored live requests agree by 0.999 (" in cluster.condition("RolloutComplete")["message"]
    assert MIRROR in cluster.applied, "a person may take long, and it is watched on"
    cluster.mirrored = {new: (80, 0.5)}
    go(cluster, 3, "False/RolledBack")


def test_a_few_requests_are_waited_for_and_for_no_longer_than_the_analysis_is_to_take() -> None:
    cluster = serving()
    new = changed(cluster)
    for _ in range(50):
        cluster.step()
        assert cluster.status["rollout"]["step"] == "Analysing"
    message = cluster.condition("RolloutComplete")["message"]
    assert "no live request was mirrored; 10 mirrored live requests are needed" in message
    for _ in range(25):
        cluster.step()
    assert cluster.revision == new or cluster.status["rollout"]["step"] in ("Expanding", "Switching", "Complete")
    cluster.settle()
    assert cluster.revision == new


def test_what_was_sent_to_others_does_not_count() -> None:
    """A report of an earlier candidate, at another address."""
    cluster = serving()
    new = changed(cluster)
    stable = [pod.name for pod in cluster.pods.values() if pod.revision != new]
    cluster.told = {name: QualityReport(metric="cosine", tolerance=0.01, mirrored=500, targets=("10.9.9.9",))
                    for name in stable}
    for _ in range(25):
        cluster.step()
    assert cluster.status["rollout"]["step"] == "Analysing"
    assert cluster.status["rollout"]["analysis"]["mirrored"] == 0


def test_it_ends_when_the_rollout_is_suspended_or_not_asked_for_any_more() -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"suspend": True}, {"rollout": {"analysis": {"seconds": 60}}}, {"quality": None, "rollout": {}})
    for change in changes:
        cluster = serving()
        changed(cluster)
        cluster.edit(**change)
        assert any(isinstance(action, Delete) and action.name == mirror_name("minilm")
                   for action in cluster.plan().actions), change


@pytest.mark.parametrize(("with_source", "with_stable", "kept"), [
    (0.995, 0.9, False), (0.9, 0.9, True), (0.9, 0.5, False), (0.4, 0.1, True),
])
def test_a_candidate_is_not_held_against_answers_that_are_wrong_themselves(
    with_source: float, with_stable: float, kept: bool
) -> None:
    """By as much as the stable revision's live answers have left the source model, a candidate may be off from it."""
    cluster = serving()
    new = changed(cluster)
    (stable,) = [pod.name for pod in cluster.pods.values() if pod.revision != new]
    targets = tuple({pod.ip for pod in cluster.pods.values() if pod.revision == new})
    cluster.told = {stable: QualityReport(metric="cosine", tolerance=0.01, samples=400, total=400 * with_source,
                                          mirrored=400, agreed=400 * with_stable, targets=targets)}
    go(cluster, 100, "True/Complete" if kept else "False/RolledBack")
    assert (cluster.revision == new) == kept


def verdict_on(samples: int, total: float, mirrored_requests: int, agreed: float) -> Mirrored:
    """``samples`` live answers of the stable revision, with the source model, and the candidate's with it."""
    cluster = serving()
    new = changed(cluster)
    (stable,) = [pod for pod in cluster.pods.values() if pod.revision != new]
    targets = tuple({pod.ip for pod in cluster.pods.values() if pod.revision == new})
    cluster.told = {stable.name: QualityReport(metric="cosine", tolerance=0.01, samples=samples, total=total,
                                               mirrored=mirrored_requests, agreed=agreed, targets=targets)}
    view = cluster.view()
    ctx = PassContext(obj=view, observed=cluster.observe(), config=cluster.config, spec=good_spec(dict(cluster.spec)),
                  memory=Memory.of(view.status))
    found = mirrored(ctx, stable.revision, new)
    assert found is not None
    return found


@pytest.mark.parametrize(("samples", "total", "with_stable"), [(1, 0.0, 0.1), (5, 4.5, 0.9), (29, 28.0, 0.9)])
def test_a_few_bad_answers_of_the_stable_revision_excuse_no_candidate(
    samples: int, total: float, with_stable: float
) -> None:
    """One of one that is wrong would, by its mean, allow all."""
    assert verdict_on(samples, total, 400, 400 * with_stable).disagrees


@pytest.mark.parametrize("count", [1, 2, 3, 5, 10, 30, 300])
def test_what_mends_answers_that_are_all_wrong_is_not_held_against_them_however_few(count: int) -> None:
    assert not verdict_on(count, 0.0, count, 0.0).disagrees

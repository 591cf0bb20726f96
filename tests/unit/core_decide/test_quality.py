"""Condition QualityHeld, and going back by itself where that is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.core.decide.quality import REFRESH_SECONDS
from enginewright.core.way_back import needs_kept
from enginewright_builder.contract import QualityReport
from support.cluster import SPEC, Cluster
from support.once import once

FIRST, SECOND = ({"engine": {"maxBatchSize": size}} for size in (8, 16))
CRASH: dict[str, Any] = {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server"}


@once
def serving(quality: dict[str, Any] | None = None, **spec: Any) -> Cluster:
    cluster = Cluster(spec={**SPEC, **FIRST, "replicas": 1, "quality": quality or {}, **spec})
    cluster.settle()
    return cluster


def said(cluster: Cluster, samples: int, mean: float) -> str:
    cluster.scores[cluster.revision] = (samples, mean)
    cluster.wait(REFRESH_SECONDS)
    cluster.step()
    return cluster.says("QualityHeld")


def move(cluster: Cluster, rounds: int = 1) -> None:
    for _ in range(rounds):
        cluster.move(5)


def test_off_it_is_nowhere_to_be_seen() -> None:
    cluster = Cluster()
    cluster.settle()
    cluster.scores[cluster.revision] = (5000, 0.0)
    cluster.step()
    assert "QualityHeld" not in {entry["type"] for entry in cluster.status["conditions"]}
    assert "quality" not in cluster.status


@pytest.mark.parametrize(("samples", "mean", "says", "words"), [
    (29, 0.0, "Unknown/Measuring", ("over 29 live answers", "At least 688 answers")),
    (687, 1.0, "Unknown/Measuring", ("over 687 live answers of 1 replica",)),
    (688, 1.0, "True/Agreeing", ("cosine 1.0000", "0.99 is needed")),
    (2000, 0.995, "Unknown/Undecided", ("too near to say", "spec.quality.window")),
    (2000, 0.9, "False/QualityDrifted", ("have drifted: cosine 0.9000", "optimisedmodel rollback ")),
    (30, 0.0, "False/QualityDrifted", ("cosine 0.0000 with the source model (0.0000 to 0.2057;",)),
], ids=lambda value: str(value).replace("/", "-"))
def test_what_is_said(samples: int, mean: float, says: str, words: tuple[str, ...]) -> None:
    cluster = serving()
    assert said(cluster, samples, mean) == says
    assert all(word in cluster.condition("QualityHeld")["message"] for word in words), cluster.condition("QualityHeld")
    assert cluster.says("Ready") == "True/Serving", "who serves is not in question"
    figures = cluster.status["quality"]
    assert (figures["samples"], figures["agreement"], figures["revision"]) == (samples, mean, cluster.revision)
    assert figures["low"] <= figures["agreement"] <= figures["high"]


def test_without_a_monitor_that_answers_it_is_not_measured_and_nobody_is_bothered() -> None:
    cluster = serving()
    assert cluster.says("QualityHeld") == "Unknown/NotMeasured"
    (pod,) = cluster.pods
    assert cluster.condition("QualityHeld")["message"].endswith(
        f" The monitor of {pod} does not answer yet: kubectl logs {pod} -c quality -n prod says why.")
    assert "quality" not in cluster.status
    assert not [line for line in cluster.log if "NotMeasured" in line]


def told(cluster: Cluster, *reports: QualityReport) -> str:
    """As the replicas of what serves report."""
    cluster.told = dict(zip(sorted(pod.name for pod in cluster.pods.values()), reports, strict=True))
    cluster.wait(REFRESH_SECONDS)
    cluster.step()
    return cluster.says("QualityHeld")


def report(samples: int, mean: float, **fields: Any) -> QualityReport:
    return QualityReport(metric="cosine", tolerance=0.01, samples=samples, total=samples * mean, **fields)


def test_without_a_sample_there_is_no_figure() -> None:
    cluster = serving()
    assert told(cluster, report(0, 0.0)) == "Unknown/Measuring"
    assert cluster.condition("QualityHeld")["message"] == (
        "No live answer has been scored yet. At least 688 answers are needed to say.")
    assert "quality" not in cluster.status


def test_what_can_never_be_measured_is_not_said_to_be_measured() -> None:
    cluster = serving()
    assert told(cluster, report(0, 0.0, problem="tensors of this type: x (float16)")) == "Unknown/NotMeasured"
    assert cluster.condition("QualityHeld")["message"].endswith("tensors of this type: x (float16).")
    assert "quality" not in cluster.status


@pytest.mark.parametrize(("samples", "mean", "says"), [
    (10, 1.0, "Unknown/Measuring"), (2000, 1.0, "True/Agreeing"), (2000, 0.995, "Unknown/Undecided"),
    (2000, 0.5, "False/QualityDrifted"),
])
def test_a_problem_is_shown_whatever_is_said(samples: int, mean: float, says: str) -> None:
    cluster = serving()
    assert told(cluster, report(samples, mean, problem="the server does not trace")) == says
    assert cluster.condition("QualityHeld")["message"].endswith(" the server does not trace.")


@pytest.mark.parametrize(("age", "minutes"), [(601.0, 10), (1199.0, 10), (1201.0, 20), (3600.0, 40)])
def test_a_window_of_long_ago_says_nothing_of_now(age: float, minutes: int) -> None:
    cluster = serving()
    assert told(cluster, report(2000, 0.5, age_seconds=600.0)) == "False/QualityDrifted"
    assert told(cluster, report(2000, 0.5, age_seconds=age)) == "Unknown/NotMeasured"
    assert f"no sampled traffic for more than {minutes} minutes." in cluster.condition("QualityHeld")["message"]


def test_one_bad_replica_of_three_is_named_and_no_revision_is_given_up_for_it() -> None:
    cluster, _, second = drifted(replicas=3)
    cluster.scores = {}
    move(cluster, 60)
    good = report(2000, 0.9999)
    assert told(cluster, good, good, report(30, 0.0)) == "Unknown/Undecided"
    bad = max(pod.name for pod in cluster.pods.values())
    assert f"Replica {bad} alone has drifted: 0.0000 (0.0000 to 0.2" in cluster.condition("QualityHeld")["message"]
    move(cluster, 60)
    assert cluster.replicas() == {second: 3}


def test_what_agreed_goes_on_to_agree_while_nothing_speaks_against_it() -> None:
    cluster = serving()
    assert said(cluster, 2000, 0.995) == "Unknown/Undecided"
    assert said(cluster, 2000, 1.0) == "True/Agreeing"
    assert said(cluster, 2000, 0.995) == "True/Agreeing"
    assert said(cluster, 2000, 0.989) == "Unknown/Undecided", "below what is required, if not for sure"
    assert said(cluster, 2000, 0.995) == "Unknown/Undecided"


def test_only_a_drift_and_its_end_are_news() -> None:
    cluster = serving()
    for samples, mean in ((10, 1.0), (2000, 1.0), (2000, 0.5), (2000, 0.5), (2000, 1.0)):
        said(cluster, samples, mean)
    news = [line.partition(":")[0] for line in cluster.log if "Agreeing" in line or "Quality" in line]
    assert news == ["Normal Agreeing", "Warning QualityDrifted", "Normal Agreeing"]


def test_figures_are_refreshed_sparingly() -> None:
    """Every write of status wakes the object: figures that moved are none by themselves."""
    cluster = serving()
    said(cluster, 1000, 1.0)
    before = cluster.status
    cluster.scores[cluster.revision] = (1005, 1.0)
    cluster.step()
    assert cluster.status == before
    cluster.wait(REFRESH_SECONDS)
    cluster.step()
    assert cluster.status["quality"]["samples"] == 1005
    assert "over 1005 live answers" in cluster.condition("QualityHeld")["message"]
    cluster.scores[cluster.revision] = (2000, 0.5)
    cluster.step()
    assert cluster.says("QualityHeld") == "False/QualityDrifted", "what changes is said at once"


def test_it_looks_again_though_nothing_happens() -> None:
    assert serving().plan().requeue_after == 30.0


def drifted(rollout: dict[str, Any] | None = None, **spec: Any) -> tuple[Cluster, str, str]:
    """A second revision that serves and has drifted; the first one's name and the second's."""
    cluster = serving({"rollback": True}, rollout=rollout or {"analysis": {"seconds": 60}}, **spec)
    first = cluster.revision
    cluster.edit(**SECOND)
    cluster.settle()
    second = cluster.revision
    assert second != first
    cluster.scores[second] = (500, 0.5)
    return cluster, first, second


@pytest.mark.parametrize("rollout", [
    {"analysis": {"seconds": 60}}, {"analysis": {"seconds": 60}, "autoPromote": False, "steps": [{"weight": 20}]},
    {"strategy": "BlueGreen"}, {"strategy": "Recreate"}, {"maxSurge": 0},
], ids=["canary", "canary with steps, by hand", "blue-green", "recreate", "no surge"])
def test_what_has_drifted_is_left_for_what_served_before(rollout: dict[str, Any]) -> None:
    cluster = serving({"rollback": True}, rollout={**rollout, "autoPromote": True})
    first = cluster.revision
    cluster.edit(**SECOND)
    cluster.settle()
    second = cluster.revision
    cluster.edit(rollout=rollout)
    cluster.scores[second] = (500, 0.5)
    cluster.slower[first] = 5.0  # it lost to the one that has drifted
    cluster.similarity[first] = 0.1
    jobs = dict(cluster.jobs)
    move(cluster, 60)
    assert cluster.replicas() == {first: 1}
    assert cluster.revision == first
    assert cluster.jobs == jobs, "without a build"
    assert cluster.says("RolloutComplete") == cluster.says("Ready") == "False/RolledBack"
    message = cluster.condition("RolloutComplete")["message"]
    for word in (f"Revision {second} was given up (QualityDrifted)", f"Revision {first}, the last good", "serves again",
                 "have drifted"):
        assert word in message
    assert cluster.log.count("Warning RolledBack") == 1


def test_it_stays_where_it_went_until_the_spec_changes() -> None:
    cluster, first, second = drifted()
    move(cluster, 60)
    cluster.scores = {first: (2000, 1.0)}
    move(cluster, 60)
    assert cluster.replicas() == {first: 1}
    assert cluster.says("QualityHeld") == "True/Agreeing"
    cluster.edit(engine={"maxBatchSize": 4})
    cluster.scores = {}
    move(cluster, 60)
    assert cluster.revision not in (first, second)
    assert cluster.says("Ready") == "True/Serving"


def test_unasked_nothing_is_left() -> None:
    cluster, _, second = drifted()
    cluster.edit(quality={})
    move(cluster, 30)
    assert cluster.replicas() == {second: 1}
    assert cluster.says("QualityHeld") == "False/QualityDrifted"
    assert cluster.says("RolloutComplete") == "True/Complete"


def test_the_first_revision_of_all_has_nowhere_to_go_back_to() -> None:
    cluster = serving({"rollback": True})
    first = cluster.revision
    cluster.scores[first] = (500, 0.5)
    move(cluster, 30)
    assert cluster.replicas() == {first: 1}


def test_a_last_good_one_that_does_not_start_leaves_the_other_serving_and_is_not_tried_for_ever() -> None:
    cluster, first, second = drifted()
    cluster.broken[first] = CRASH
    messages = set()
    for _ in range(40):
        move(cluster)
        messages.add(cluster.condition("RolloutComplete")["message"])
    assert cluster.replicas() == {second: 1}
    assert [words for words in messages if "have drifted" in words and "The way back failed" in words]
    tried = next(entry for entry in cluster.status["revisions"] if entry["revision"] == first)
    assert (tried["outcome"], tried["reason"]) == ("RolledBack", "Crashing")
    assert cluster.says("QualityHeld") == "False/QualityDrifted"
    log = list(cluster.log)
    move(cluster, 40)
    assert cluster.log == log, "it is left at that"


def test_if_the_last_good_one_drifts_as_well_it_serves_on() -> None:
    cluster, first, _ = drifted()
    move(cluster, 60)
    cluster.scores[first] = (500, 0.1)
    move(cluster, 40)
    assert cluster.replicas() == {first: 1}
    assert cluster.says("QualityHeld") == "False/QualityDrifted"


def test_what_was_kept_is_read_only_where_it_may_be_asked_for() -> None:
    cluster = serving()
    assert not needs_kept(cluster.view())
    cluster.edit(quality={"rollback": True})
    assert needs_kept(cluster.view())
    cluster.edit(quality="rubbish")
    assert not needs_kept(cluster.view())

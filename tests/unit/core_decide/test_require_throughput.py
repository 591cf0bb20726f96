"""Condition ThroughputHeld and rollout.requireThroughput: a new engine beside the one that serves, by both builds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core import labels
from support.cluster import SPEC, Cluster, built, resolved
from support.once import once
from support.published_language_model import built_language_model, language_model

STRATEGIES = ("Canary", "BlueGreen", "Recreate")
FAST: dict[str, Any] = {"throughput_at_objective": 900.0}
SLOW: dict[str, Any] = {"throughput_at_objective": 600.0}
LIKE: dict[str, Any] = {"throughput_at_objective": 730.0}
NONE: dict[str, Any] = {"throughput_at_objective": None, "objective_met": False}


@once
def serving(**rollout: Any) -> Cluster:
    """A model of which one replica does 900 inferences a second."""
    cluster = Cluster(spec={**SPEC, "objective": {"latency": {"milliseconds": 20}}, "rollout": {
        "analysis": {"seconds": 10}, **rollout}})
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(built(**FAST))
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    return cluster


def change(cluster: Cluster, measured: dict[str, Any], **edit: Any) -> None:
    """A new spec whose engine the build has just ``measured``."""
    cluster.edit(**{"engine": {"precision": "fp32"}, **edit})
    cluster.operate()
    cluster.finish(built(built_at=cluster.now, **measured), of="build")
    cluster.settle()


def types(cluster: Cluster) -> set[str]:
    return {entry["type"] for entry in cluster.status["conditions"]}


def test_the_first_revision_is_compared_with_nothing() -> None:
    assert "ThroughputHeld" not in types(serving())
    assert "throughput" not in serving().status


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_slower_engine_is_rolled_out_and_said_to_be_slower(strategy: str) -> None:
    cluster = serving(strategy=strategy)
    old = cluster.revision
    change(cluster, SLOW)
    new = cluster.revision
    assert new != old
    assert cluster.says("Ready") == "True/Serving"
    assert cluster.says("ThroughputHeld") == "False/BuiltSlower"
    assert cluster.condition("ThroughputHeld")["message"] == (
        f"One replica of revision {new} does 600 inferences a second within p99 20 ms, as its build measured; one of "
        f"revision {old}, which served before, does 900: 33% less, and spec.rollout.analysis.maxSlowdown 0.25 allows "
        f"20%.")
    assert "Warning BuiltSlower" in cluster.log


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_where_the_throughput_is_required_it_never_starts(strategy: str) -> None:
    cluster = serving(strategy=strategy, requireThroughput=True)
    old = cluster.revision
    change(cluster, SLOW)
    assert cluster.replicas() == {old: 1}
    assert cluster.says("RolloutComplete") == cluster.says("Ready") == "False/BuiltSlower"
    message = cluster.condition("RolloutComplete")["message"]
    assert "does not start, as spec.rollout.requireThroughput is true. One replica of revision" in message
    assert f"set spec.rollout.requireThroughput to false; revision {old} goes on serving." in message
    assert cluster.says("Available") == "True/ServingPrevious"


@pytest.mark.parametrize(("measured", "allowed", "says"), [
    (FAST, 0.25, "True/AsFast"), (LIKE, 0.25, "True/AsFast"), (SLOW, 0.25, "False/BuiltSlower"),
    (LIKE, 0.1, "False/BuiltSlower"), (SLOW, 0.5, "True/AsFast"), (NONE, 10, "False/BuiltSlower")])
def test_what_the_live_analysis_allows_is_allowed_here(measured: dict[str, Any], allowed: float, says: str) -> None:
    cluster = serving(analysis={"seconds": 10, "maxSlowdown": allowed})
    change(cluster, measured)
    assert cluster.says("ThroughputHeld") == says


def test_it_starts_as_soon_as_the_throughput_is_not_required() -> None:
    cluster = serving(requireThroughput=True)
    change(cluster, SLOW)
    cluster.edit(rollout={"analysis": {"seconds": 10}})
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    assert cluster.says("ThroughputHeld") == "False/BuiltSlower"


@pytest.mark.parametrize(("measured", "edit", "words"), [
    ({**SLOW, "device_class": "NVIDIA-L4"}, {}, "a replica has 1 × NVIDIA-L4 now, and had 1 × CPU"),
    ({**SLOW, "device_count": 2}, {}, "a replica has 2 × CPU now, and had 1 × CPU"),
    (SLOW, {"objective": {"latency": {"milliseconds": 5}}}, "the objective is p99 5 ms now, and was p99 20 ms")])
def test_figures_of_another_measure_are_not_compared_and_refuse_nothing(
    measured: dict[str, Any], edit: dict[str, Any], words: str
) -> None:
    cluster = serving(requireThroughput=True)
    change(cluster, measured, **edit)
    assert cluster.says("Ready") == "True/Serving"
    assert cluster.says("ThroughputHeld") == "Unknown/NotComparable"
    assert words in cluster.condition("ThroughputHeld")["message"]


def test_where_neither_keeps_the_objective_there_is_nothing_to_compare() -> None:
    cluster = serving()
    change(cluster, NONE)
    change(cluster, NONE, engine={"precision": "int8"})
    assert cluster.says("ThroughputHeld") == "Unknown/NotComparable"
    assert "neither keeps the objective" in cluster.condition("ThroughputHeld")["message"]


def test_of_a_revision_that_an_earlier_release_promoted_the_objective_is_not_known() -> None:
    cluster = serving()
    entry = dict(cluster.status["revisions"][0])
    entry["target"] = {name: value for name, value in entry["target"].items() if name != "objective"}
    cluster.status = {**cluster.status, "revisions": [entry]}
    change(cluster, SLOW)
    assert "is not known" in cluster.condition("ThroughputHeld")["message"]


def test_a_user_may_go_back_to_a_slower_one() -> None:
    cluster = serving()
    fast = cluster.revision
    change(cluster, SLOW)
    slow = cluster.revision
    change(cluster, FAST, engine={"precision": "auto"})
    assert cluster.revision == fast
    cluster.edit(rollout={"analysis": {"seconds": 10}, "requireThroughput": True})
    cluster.annotations[labels.ROLLBACK_TO] = slow
    cluster.settle()
    assert cluster.revision == slow
    assert "ThroughputHeld" not in types(cluster)


def test_another_revision_of_the_same_engine_keeps_what_was_said_of_it() -> None:
    cluster = serving()
    change(cluster, SLOW)
    cluster.edit(serving={"queue": {"maxSize": 100}})
    cluster.settle()
    assert cluster.says("ThroughputHeld") == "False/BuiltSlower"


def test_with_approvals_a_user_reads_it_before_anything_stops() -> None:
    cluster = serving(strategy="Recreate", autoPromote=False)
    old = cluster.revision
    change(cluster, SLOW)
    assert cluster.says("RolloutComplete") == "False/WaitingForPromotion"
    assert cluster.replicas() == {old: 1}
    assert cluster.says("ThroughputHeld") == "False/BuiltSlower"


def test_it_is_said_until_another_engine_is_asked_for() -> None:
    cluster = serving()
    change(cluster, SLOW)
    change(cluster, SLOW, engine={"precision": "int8"})
    assert cluster.says("ThroughputHeld") == "True/AsFast"


def test_a_language_model_is_compared_by_its_tokens() -> None:
    cluster = Cluster(spec=SPEC)
    figures = language_model().tokens
    for rate, precision in ((640.0, "auto"), (320.0, "fp32")):
        cluster.edit(engine={"precision": precision})
        cluster.operate()
        cluster.finish(resolved(), of="resolve")
        cluster.operate()
        measured = replace(figures, output_rate=rate)
        cluster.finish(built_language_model(built_at=cluster.now, tokens=measured), of="build")
        cluster.settle()
    assert cluster.says("ThroughputHeld") == "False/BuiltSlower"
    assert "does 320 tokens a second within any latency" in cluster.condition("ThroughputHeld")["message"]

"""rollout.requireObjective: a revision that misses spec.objective.latency is refused, and nothing is guessed."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.core import labels
from enginewright.plugin import wishes
from support.cluster import SPEC, Cluster, built, resolved
from support.once import once

OBJECTIVE: dict[str, Any] = {"latency": {"percentile": 99, "milliseconds": 20}}
SLOW: dict[str, Any] = {"objective_met": False, "p50_ms": 21.0, "p99_ms": 34.2, "requests": 400}
FAST: dict[str, Any] = {"objective_met": True, "p50_ms": 5.0, "p99_ms": 9.0, "requests": 400}
FEW: dict[str, Any] = {"objective_met": False, "p50_ms": 5.0, "p99_ms": 34.2, "requests": 25}


def spec(**rollout: Any) -> dict[str, Any]:
    return {**SPEC, "objective": OBJECTIVE, "rollout": {
        "analysis": {"seconds": 60}, "requireObjective": True, **rollout}}


def first(measured: dict[str, Any], **rollout: Any) -> Cluster:
    """The first revision, with an engine of which the build ``measured`` that."""
    cluster = Cluster(spec=spec(**rollout))
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(built(**measured))
    cluster.settle()
    return cluster


@once
def serving(**rollout: Any) -> Cluster:
    return first(FAST, **rollout)


def change(cluster: Cluster, measured: dict[str, Any]) -> set[str]:
    """A new spec, and what was built of it; gives the revisions that have been there since."""
    old = set(cluster.replicas())
    cluster.edit(engine={"precision": "fp32"})
    cluster.operate()
    cluster.finish(built(built_at=cluster.now, **measured), of="build")
    seen: set[str] = set()
    for _ in range(5):
        cluster.step()
        seen |= set(cluster.replicas()) - old
    return seen


def go(cluster: Cluster, minutes: int, until: str) -> None:
    for _ in range(minutes):
        cluster.operate()
        cluster.controllers()
        if cluster.says("RolloutComplete") == until:
            return
        cluster.wait(60)
    raise AssertionError(f"rollout says {cluster.condition('RolloutComplete')}")


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen", "Recreate"])
def test_one_that_the_build_shows_to_miss_it_never_starts(strategy: str) -> None:
    cluster = serving(strategy=strategy)
    old = cluster.revision
    assert change(cluster, SLOW) == set()
    cluster.settle()
    assert cluster.says("RolloutComplete") == cluster.says("Ready") == "False/ObjectiveMissed"
    message = cluster.condition("RolloutComplete")["message"]
    assert "the build measured p99 34.2 ms of p99 20 ms allowed" in message
    assert "Raise spec.objective.latency.milliseconds, use faster hardware, or set" in message
    assert f"revision {old} goes on serving" in message
    assert cluster.says("ObjectiveMet") == "False/NotMet"
    assert cluster.says("Available") == "True/ServingPrevious"
    assert "Warning ObjectiveMissed" in cluster.log
    assert cluster.replicas() == {old: 1}


def test_it_starts_as_soon_as_the_objective_is_not_required() -> None:
    cluster = serving()
    change(cluster, SLOW)
    cluster.edit(rollout={"analysis": {"seconds": 60}})
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"


def test_no_promotion_by_hand_overrides_a_miss() -> None:
    cluster = serving()
    change(cluster, SLOW)
    revision = cluster.condition("RolloutComplete")["message"].split()[1]
    cluster.annotations[labels.PROMOTE] = revision
    cluster.settle()
    assert cluster.says("RolloutComplete") == "False/ObjectiveMissed"


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen", "Recreate"])
def test_the_first_revision_does_not_start_either(strategy: str) -> None:
    cluster = first(SLOW, strategy=strategy)
    assert cluster.replicas() == {}
    assert cluster.says("RolloutComplete") == "False/ObjectiveMissed"
    assert "nothing serves until then" in cluster.condition("RolloutComplete")["message"]


def test_one_that_starts_is_stopped_when_the_objective_becomes_required() -> None:
    cluster = Cluster(spec=spec(requireObjective=False))
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(built(**SLOW))
    cluster.operate()
    assert len(cluster.replicas()) == 1
    cluster.edit(rollout={"requireObjective": True})
    cluster.settle()
    assert cluster.replicas() == {}


def test_what_serves_stays_when_the_objective_becomes_required() -> None:
    cluster = first(SLOW, requireObjective=False)
    old = cluster.revision
    cluster.edit(rollout={"requireObjective": True})
    cluster.settle()
    assert cluster.replicas() == {old: 1}
    assert cluster.says("Ready") == "True/Serving"


def test_a_candidate_that_shares_the_traffic_gives_it_back_when_the_objective_becomes_required() -> None:
    cluster = first(FAST, requireObjective=False)
    cluster.edit(replicas=3)
    cluster.settle()
    old = cluster.revision
    assert len(change(cluster, SLOW)) == 1
    assert len(cluster.replicas()) == 2
    cluster.edit(rollout={"analysis": {"seconds": 60}, "requireObjective": True})
    cluster.settle()
    assert cluster.replicas() == {old: 3}
    assert cluster.says("RolloutComplete") == "False/ObjectiveMissed"


def test_a_user_may_go_back_to_one_that_misses_it() -> None:
    cluster = first(SLOW, requireObjective=False)
    slow = cluster.revision
    change(cluster, FAST)
    cluster.settle()
    assert cluster.revision != slow
    cluster.edit(rollout={"analysis": {"seconds": 60}, "requireObjective": True})
    cluster.annotations[labels.ROLLBACK_TO] = slow
    cluster.settle()
    assert cluster.revision == slow


def test_requests_that_kept_it_and_are_too_few_to_say_so_are_unknown() -> None:
    cluster = serving(strategy="Recreate")
    assert change(cluster, {**FAST, "objective_met": False, "requests": 120, "requests_to_show": 205}) == set()
    assert cluster.says("RolloutComplete") == "Unknown/ObjectiveUnknown"
    assert "(to say that it is met takes 205 requests, and the build measured 120)" in cluster.condition(
        "RolloutComplete")["message"]


@pytest.mark.parametrize(("strategy", "analysis"), [("BlueGreen", 60), ("Recreate", 60), ("Canary", 0)])
def test_where_no_live_traffic_shows_it_too_few_requests_of_the_build_are_unknown(strategy: str, analysis: int) -> None:
    cluster = serving(strategy=strategy, analysis={"seconds": analysis})
    assert change(cluster, FEW) == set()
    assert cluster.says("RolloutComplete") == "Unknown/ObjectiveUnknown"
    message = cluster.condition("RolloutComplete")["message"]
    assert "(p99 takes 100 requests, and the build measured 25), of too few requests to know" in message
    revision = message.split()[1]
    assert f"kubectl annotate --overwrite om minilm {labels.PROMOTE}={revision} -n prod" in message
    cluster.annotations[labels.PROMOTE] = revision
    cluster.settle()
    assert cluster.revision == revision


def test_too_few_requests_show_a_miss_where_half_of_them_take_too_long() -> None:
    cluster = serving()
    assert change(cluster, {**FEW, "p50_ms": 21.0}) == set()
    assert cluster.says("RolloutComplete") == "False/ObjectiveMissed"


def test_an_analysis_shows_what_the_build_does_not_know() -> None:
    cluster = serving()
    (new,) = change(cluster, FEW)
    cluster.p99 = {new: 12.0, cluster.revision: 11.0}
    go(cluster, 5, "False/Analysing")
    for _ in range(5):
        cluster.wait(60)
        cluster.operate()
    assert "p99 is known after 10 windows of a minute and 100 requests" in (
        cluster.condition("RolloutComplete")["message"])
    go(cluster, 15, "True/Complete")
    assert cluster.revision == new


def test_what_nobody_measures_waits_for_a_user() -> None:
    cluster = serving()
    (new,) = change(cluster, FEW)
    go(cluster, 30, "False/WaitingForSamples")
    message = cluster.condition("RolloutComplete")["message"]
    assert "p99 takes 100 requests, of which the build measured fewer, and replicas do not export it" in message
    assert f"Promote it unmeasured with kubectl optimisedmodel promote minilm {new} -n prod" in message
    asked, _ = wishes.promote({"metadata": {"name": "minilm"}, "status": cluster.status}, new)
    assert asked == {labels.PROMOTE: new}, "the plugin does what the message says"
    cluster.annotations[labels.PROMOTE] = new
    cluster.settle()
    assert cluster.revision == new


def test_one_that_misses_it_live_is_rolled_back_though_the_stable_one_misses_it_too() -> None:
    cluster = serving()
    old = cluster.revision
    (new,) = change(cluster, FAST)
    cluster.p99 = {new: 24.0, old: 23.0}
    go(cluster, 15, "False/RolledBack")
    message = cluster.condition("RolloutComplete")["message"]
    assert "(ObjectiveMissed): It misses the objective: p99 24 ms" in message
    assert "of 20 ms allowed, over 10 windows of 100 requests or more" in message
    cluster.settle()
    assert cluster.replicas() == {old: 1}


def test_what_a_user_promotes_by_name_need_not_be_shown() -> None:
    cluster = serving()
    (new,) = change(cluster, FEW)
    cluster.annotations[labels.PROMOTE] = new
    cluster.settle()
    assert cluster.revision == new


def test_the_last_step_alone_waits_for_it() -> None:
    cluster = serving(steps=[{"weight": 20}, {"weight": 50}])
    (new,) = change(cluster, FAST)
    cluster.p99 = {new: 12.0, cluster.revision: 11.0}
    go(cluster, 5, "False/Analysing")
    first_step = cluster.status["rollout"].get("weightStep")
    for _ in range(4):
        cluster.operate()
        cluster.controllers()
        cluster.wait(60)
    assert (first_step, cluster.status["rollout"]["weightStep"]) == (None, 1)
    assert cluster.says("RolloutComplete") == "False/Analysing"
    go(cluster, 15, "True/Complete")

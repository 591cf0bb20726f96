"""Where live answers have drifted: which revision is gone back to, and what serves if that one does not start."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.core import labels
from support.cluster import SPEC, Cluster
from support.once import once

FIRST, SECOND, THIRD = ({"engine": {"maxBatchSize": size}} for size in (8, 16, 32))
CRASH: dict[str, Any] = {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server"}
DRIFTED = (2000, 0.5)


def move(cluster: Cluster, rounds: int = 1) -> list[str]:
    """What Available said in each round."""
    said = []
    for _ in range(rounds):
        cluster.move(5)
        said.append(cluster.says("Available"))
    return said


@once
def serving(quality: dict[str, Any] | None, **rollout: Any) -> Cluster:
    cluster = Cluster(spec={**SPEC, **FIRST, "replicas": 1, "quality": quality,
                            "rollout": {"analysis": {"seconds": 60}, **rollout}})
    cluster.settle()
    return cluster


def edited(cluster: Cluster, **spec: Any) -> str:
    """The revision that an edit leads to, when it serves."""
    before = cluster.revision
    cluster.edit(**spec)
    cluster.settle()
    move(cluster, 60)
    assert cluster.revision != before
    assert cluster.says("Ready") == "True/Serving"
    return cluster.revision


@pytest.mark.parametrize("crash", [CRASH, {"phase": "Running", "restarts": 7, "exit_code": 137}])
def test_recreate_returns_to_what_has_drifted_where_the_last_good_one_does_not_start(crash: dict[str, Any]) -> None:
    cluster = serving({"rollback": True}, strategy="Recreate")
    first = cluster.revision
    second = edited(cluster, **SECOND)
    cluster.scores[second] = DRIFTED
    cluster.broken[first] = crash
    told = set()
    for _ in range(40):
        move(cluster)
        told.add(cluster.condition("RolloutComplete")["message"])
    assert any(f"Revision {second} is to serve again" in words and "The way back failed: Replica" in words
               for words in told), told
    assert cluster.replicas() == {second: 1}
    assert set(move(cluster, 100)) == {"True/Serving"}, "the way back is not tried for ever"
    assert cluster.says("QualityHeld") == "False/QualityDrifted"
    assert cluster.says("RolloutComplete") == "True/Complete"
    tried = next(entry for entry in cluster.status["revisions"] if entry["revision"] == first)
    assert (tried["outcome"], tried["reason"]) == ("RolledBack", "Crashing")


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen", "Recreate"])
@pytest.mark.parametrize("early", [True, False], ids=["before it is counted", "after"])
@pytest.mark.parametrize("mended", [True, False])
def test_a_retry_tries_a_way_back_that_failed_once_more(strategy: str, early: bool, mended: bool) -> None:
    cluster = serving({"rollback": True}, strategy=strategy)
    first = cluster.revision
    second = edited(cluster, **SECOND)
    cluster.scores[second] = DRIFTED
    cluster.broken[first] = CRASH
    while not any(pod.revision == first and pod.restarts for pod in cluster.pods.values()):
        move(cluster)
    if not early:
        move(cluster, 40)
        assert cluster.replicas() == {second: 1}
    cluster.annotations[labels.RETRY] = "again"
    before = set(cluster.pods)
    if mended:
        del cluster.broken[first]
    tried = set()
    for _ in range(60):
        move(cluster)
        tried |= {pod.name for pod in cluster.pods.values() if pod.revision == first} - before
    assert tried
    assert cluster.replicas() == {first if mended else second: 1}
    assert cluster.says("RolloutComplete") == ("False/RolledBack" if mended else "True/Complete")
    quiet = list(cluster.log)
    move(cluster, 60)
    assert cluster.log == quiet, "it is left at that"


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen", "Recreate"])
def test_a_retry_goes_on_with_a_way_back_that_is_under_way(strategy: str) -> None:
    """What a user asks for another try of is what is being tried: with Recreate what has drifted does not run, and must
    not come back instead."""
    cluster = serving({"rollback": True}, strategy=strategy)
    first = cluster.revision
    second = edited(cluster, **SECOND)
    cluster.scores[second] = DRIFTED
    cluster.broken[first] = {**CRASH, "restarts": 1}
    while not any(pod.revision == first and pod.restarts for pod in cluster.pods.values()):
        move(cluster)
    cluster.annotations[labels.RETRY] = "again"
    before = set(cluster.pods)
    move(cluster, 20)
    told = cluster.condition("RolloutComplete")["message"]
    assert told.startswith(f"Revision {second} was given up (QualityDrifted)")
    assert set(cluster.pods) == before
    cluster.broken.clear()
    move(cluster, 60)
    assert cluster.replicas() == {first: 1}
    assert set(cluster.pods) <= before
    assert cluster.says("Ready") == "False/RolledBack", "the wish was for the way back: it is done"
    cluster.annotations[labels.RETRY] = "what was given up"
    tried: set[str] = set()
    for _ in range(10):
        move(cluster)
        tried |= {pod.revision for pod in cluster.pods.values()}
    assert second in tried


def test_recreate_does_not_leave_the_way_back_once_it_has_served() -> None:
    cluster = serving({"rollback": True}, strategy="Recreate")
    first = cluster.revision
    second = edited(cluster, **SECOND)
    cluster.scores[second] = DRIFTED
    move(cluster, 40)
    assert cluster.replicas() == {first: 1}
    assert cluster.says("Ready") == "False/RolledBack"
    cluster.broken[first] = CRASH
    cluster.pods = {}
    move(cluster, 40)
    assert cluster.replicas() == {first: 1}
    cluster.broken.clear()
    cluster.pods = {}
    assert move(cluster, 10)[-1] == "True/ServingPrevious"


@pytest.mark.parametrize("strategy", ["Canary", "Recreate"])
def test_the_same_engine_is_nothing_to_go_back_to(strategy: str) -> None:
    cluster = serving({"rollback": True}, strategy=strategy)
    fingerprint = cluster.status["fingerprint"]
    second = edited(cluster, quality={"rollback": True, "window": 4000})
    assert cluster.status["fingerprint"] == fingerprint, "the window is the monitor's own"
    cluster.scores[second] = DRIFTED
    assert "False/NoReplica" not in move(cluster, 60)
    assert cluster.replicas() == {second: 1}
    assert cluster.says("Ready") == "True/Serving"
    assert cluster.says("QualityHeld") == "False/QualityDrifted"


def test_an_older_engine_is_gone_back_to_past_the_same_one() -> None:
    cluster = serving({"rollback": True})
    first = cluster.revision
    edited(cluster, **SECOND)
    third = edited(cluster, quality={"rollback": True, "window": 4000})
    cluster.scores[third] = DRIFTED
    move(cluster, 60)
    assert cluster.replicas() == {first: 1}
    assert cluster.says("Ready") == "False/RolledBack"


@pytest.mark.parametrize("strategy", ["Canary", "Recreate"])
def test_an_engine_that_nobody_measures_is_not_gone_back_to(strategy: str) -> None:
    cluster = serving(None, strategy=strategy)
    second = edited(cluster, **SECOND, quality={"rollback": True})
    cluster.scores[second] = DRIFTED
    assert "False/NoReplica" not in move(cluster, 60)
    assert cluster.replicas() == {second: 1}
    assert cluster.says("QualityHeld") == "False/QualityDrifted", "the alarm stays on"
    assert cluster.says("Ready") == "True/Serving"

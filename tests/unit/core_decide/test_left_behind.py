"""Pods of a Deployment that was deleted stay until the garbage collector comes: they say nothing of the revision's next
try."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.observed import DeploymentView, Observed, PodView
from enginewright.core.serving import pods_of
from support.cluster import SPEC, START, Cluster, built
from support.once import once

CRASH: dict[str, Any] = {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server"}


@once
def serving(strategy: str) -> Cluster:
    cluster = Cluster(spec={**SPEC, "rollout": {"strategy": strategy, "analysis": {"seconds": 0}}})
    cluster.settle()
    return cluster


def crashing(strategy: str) -> tuple[Cluster, str, str]:
    """While another revision crashes, which the operator has not seen yet; the name of the one that served before, and
    of that."""
    cluster = serving(strategy)
    first = cluster.revision
    cluster.edit(engine={"maxBatchSize": 16})
    for _ in range(40):
        cluster.operate()
        if cluster.running():
            cluster.finish(built(built_at=cluster.now), of="build")
        second = str(cluster.status["rollout"].get("candidate") or first)
        cluster.broken = {second: CRASH} if second != first else {}
        cluster.controllers()
        cluster.wait(1)
        if any(pod.revision == second and pod.restarts for pod in cluster.pods.values()):
            return cluster, first, second
    raise AssertionError(cluster.condition("RolloutComplete"))


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen", "Recreate"])
def test_the_failed_replicas_of_one_try_do_not_end_the_next(strategy: str) -> None:
    cluster, _, second = crashing(strategy)
    cluster.collecting = False
    cluster.annotations[labels.RETRY] = "again"
    while not cluster.left:
        cluster.step()
    cluster.broken = {}
    cluster.settle()
    assert any(pod.revision == second and pod.restarts for pod in cluster.pods.values()), "they are still there"
    cluster.collecting = True
    cluster.settle()
    assert (cluster.revision, cluster.says("Ready")) == (second, "True/Serving")
    assert set(cluster.replicas()) == {second}


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen"])
def test_the_next_try_fails_by_its_own_replicas(strategy: str) -> None:
    cluster, first, second = crashing(strategy)
    cluster.collecting = False
    cluster.annotations[labels.RETRY] = "again"
    cluster.settle()
    given_up = cluster.status["rollout"]["rolledBack"]
    assert (given_up["revision"], given_up["retry"]) == (second, "again")
    names = {pod.name for pod in cluster.pods.values() if pod.revision == second}
    assert len(names) == 2, "one of each try"
    assert max(names, key=lambda name: int(name.rpartition("-")[2])) in given_up["message"]
    assert set(cluster.replicas()) == {first}


# Seconds after the Deployment at which each pod was made, how many pods the Deployment counts, and which are its own.
@pytest.mark.parametrize(("made", "counted", "own"), [
    ([0], 1, [0]),
    ([0], 0, [0]),  # its counts are late
    ([-60], 0, []),
    ([-60, 0], 1, [1]),
    ([-60, -60, 0], 1, [2]),
    ([-1], 1, [0]),  # by the clock of another apiserver, or adopted
    ([-1, 0], 2, [0, 1]),
    ([None], 0, [0]),
    ([], 1, []),
])
def test_whose_a_pod_is(made: Sequence[float | None], counted: int, own: list[int]) -> None:
    deployed = DeploymentView(name="m-a", uid="u", revision="a", fingerprint="f", generation=1, observed_generation=1,
                              created=START, spec_replicas=1, replicas=counted)
    pods = tuple(
        PodView(name=str(number), phase="Running", revision="a",
                created=None if seconds is None else START + timedelta(seconds=seconds))
        for number, seconds in enumerate(made))
    assert [int(pod.name) for pod in pods_of(Observed(now=START, deployments=(deployed,), pods=pods), "a")] == own
    assert pods_of(Observed(now=START, pods=pods), "a") == ()

"""A spec that changes again while a rollout is under way: the newest wins, and the half-rolled one is dropped without a
gap in what serves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from enginewright.core.conditions import find
from enginewright.core.decide import decide
from enginewright.core.reasons import Condition
from support.cluster import SPEC, Cluster
from support.once import once

FIRST, SECOND, THIRD = ({"engine": {"maxBatchSize": size}} for size in (8, 16, 32))
# Step, strategy, replicas: as a rollout stands at the end of a pass. Only a canary of several expands one by one.
STEPS = [(step, strategy, replicas) for step in ("Starting", "Analysing", "WaitingForPromotion", "Switching")
         for strategy in ("Canary", "BlueGreen") for replicas in (1, 4)] + [("Expanding", "Canary", 4)]


@dataclass
class SlowCluster(Cluster):
    """Replicas take their time to get ready, so that capacity which is taken too early is missed."""

    def kubelet(self) -> None:
        young = {name: pod for name, pod in self.pods.items()
                 if not pod.ready and pod.created and self.now - pod.created < timedelta(seconds=8)}
        super().kubelet()
        self.pods |= young


@once
def in_step(step: str, strategy: str, replicas: int) -> tuple[Cluster, str, str]:
    """A cluster in that step of its second rollout; the revision that serves and the one half rolled out."""
    rollout = {"strategy": strategy, "analysis": {"seconds": 10}, "autoPromote": step != "WaitingForPromotion"}
    cluster = SlowCluster(spec={**SPEC, **FIRST, "replicas": replicas, "rollout": rollout})
    cluster.settle()
    first = cluster.revision
    cluster.edit(**SECOND)
    for _ in range(120):
        move(cluster, replicas=0)
        rolled = cluster.status.get("rollout", {})
        if (rolled.get("step"), rolled.get("stable")) == (step, first) and rolled.get("candidate"):
            return cluster, first, rolled["candidate"]
    raise AssertionError(f"{strategy} never stands in {step} at the end of a pass")


def move(cluster: Cluster, replicas: int, surge: int = 1) -> None:
    """A second of everything, during which enough ready replicas must have been behind the Service, and no more pods
    been there than a canary may make."""
    cluster.move()
    if cluster.spec["rollout"]["strategy"] == "Canary" and replicas:
        assert len(cluster.pods) <= replicas + surge
    behind = sum(entry.ready for entry in cluster.endpoints)
    assert behind >= replicas, f"{behind} of {replicas} behind the Service"


def last(cluster: Cluster, replicas: int, gone: str) -> None:
    for _ in range(240):
        move(cluster, replicas)
        if cluster.says("Ready") == "True/Serving":
            break
    assert cluster.says("Ready") == "True/Serving", cluster.condition("RolloutComplete")
    assert set(cluster.replicas().values()) == {replicas}
    assert gone not in cluster.replicas()
    assert "candidate" not in cluster.status["rollout"]


@pytest.mark.parametrize(("step", "strategy", "replicas"), STEPS)
def test_the_newest_wins(step: str, strategy: str, replicas: int) -> None:
    cluster, first, second = in_step(step, strategy, replicas)
    cluster.edit(**THIRD, rollout={"strategy": strategy, "analysis": {"seconds": 10}})
    last(cluster, replicas, second)
    assert cluster.revision not in (first, second)


@pytest.mark.parametrize(("step", "strategy", "replicas"), STEPS)
def test_put_back_to_what_serves_the_half_rolled_one_is_dropped(step: str, strategy: str, replicas: int) -> None:
    cluster, first, second = in_step(step, strategy, replicas)
    cluster.edit(**FIRST, rollout={"strategy": strategy, "analysis": {"seconds": 10}})
    last(cluster, replicas, second)
    assert cluster.revision == first


def draining(cluster: Cluster, rounds: int = 120) -> list[str]:
    """What is said while revisions stop, once each, in order."""
    said: list[str] = []
    for _ in range(rounds):
        cluster.move()
        message = cluster.condition("RolloutComplete")["message"]
        if cluster.says("RolloutComplete") == "False/Draining" and message not in said:
            said.append(message)
    return said


@pytest.mark.parametrize(("step", "strategy", "replicas"), [entry for entry in STEPS if entry[0] != "Switching"])
def test_what_served_all_along_is_not_said_to_take_over(step: str, strategy: str, replicas: int) -> None:
    cluster, first, second = in_step(step, strategy, replicas)
    cluster.edit(**FIRST, rollout={"strategy": strategy, "analysis": {"seconds": 10}})
    said = draining(cluster)
    assert said[-1] == f"Revision {first} serves; revision {second}, which is not asked for any more, stops."
    assert not any(f"{first} took over" in message for message in said)


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen"])
def test_what_takes_the_traffic_is_said_to_take_over(strategy: str) -> None:
    cluster, first, second = in_step("Switching", strategy, 4)
    assert draining(cluster)[-1] == f"Revision {second} took over; revision {first} stops."
    cluster.edit(**FIRST, rollout={"strategy": strategy, "analysis": {"seconds": 10}})
    assert draining(cluster)[-1] == f"Revision {first} took over; revision {second} stops."


def test_nor_does_a_candidate_take_over_from_one_that_never_served() -> None:
    """Its Deployment is on its way out while the next one gets ready."""
    cluster = SlowCluster(spec={**SPEC, **FIRST, "replicas": 2})
    while not cluster.replicas():
        cluster.move()
    (first,) = cluster.replicas()
    left = replace(cluster.observe().deployments[0], deleting=True)
    cluster.edit(**SECOND)
    cluster.settle()
    late = replace(cluster.observe(), deployments=(left, *cluster.observe().deployments))
    known = {"server": cluster.view().status["server"]}
    plan = decide(replace(cluster.view(), status=known), late, cluster.config)
    told = find(plan.status["conditions"], Condition.ROLLOUT_COMPLETE)["message"]
    assert told == f"Revision {cluster.revision} serves; revision {first}, which is not asked for any more, stops."


@pytest.mark.parametrize(("step", "strategy", "replicas"), STEPS)
def test_another_number_of_replicas_is_no_other_rollout(step: str, strategy: str, replicas: int) -> None:
    cluster, _, second = in_step(step, strategy, replicas)
    cluster.edit(replicas=replicas + 1, rollout={"strategy": strategy, "analysis": {"seconds": 10}})
    for _ in range(240):
        move(cluster, replicas, surge=replicas + 1)
        if cluster.says("Ready") == "True/Serving":
            break
    for _ in range(30):
        move(cluster, replicas, surge=replicas + 1)
    assert cluster.says("Ready") == "True/Serving"
    assert cluster.replicas() == {second: replicas + 1}

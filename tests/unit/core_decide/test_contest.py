"""Another field manager writes replicas of ours: put back once, then said and not fought."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core import labels
from support.cluster import SPEC, Cluster, described

HPA = "kube-controller-manager"


def serving(**spec: Any) -> tuple[Cluster, str]:
    cluster = Cluster(spec={**SPEC, **spec})
    cluster.settle()
    return cluster, f"minilm-{cluster.revision}"


def foreign(cluster: Cluster, name: str, replicas: int, manager: str = HPA) -> None:
    cluster.deployments[name] = replace(cluster.deployments[name], spec_replicas=replicas, replicas_manager=manager)
    cluster.controllers()


def put_back(cluster: Cluster) -> list[str]:
    """What a pass does."""
    return described(cluster.operate())


def test_the_first_time_it_is_put_back() -> None:
    cluster, name = serving()
    foreign(cluster, name, 5)
    assert put_back(cluster) == [f"Scale {name} 1"]
    assert cluster.says("ScalingActive") == "True/Manual"
    assert cluster.status["contest"]["manager"] == HPA


@pytest.mark.parametrize("replicas", [0, 5])
def test_a_second_time_it_is_said_and_not_fought(replicas: int) -> None:
    cluster, name = serving()
    foreign(cluster, name, replicas)
    put_back(cluster)
    cluster.wait(30)
    foreign(cluster, name, replicas)
    for _ in range(10):
        assert put_back(cluster) == []
        cluster.wait(300)
    told = cluster.condition("ScalingActive")
    assert (told["status"], told["reason"]) == ("False", "ReplicasContested")
    for word in (HPA, name, f"to {replicas}", "asks for (1)", "/scale", "kubectl optimisedmodel retry minilm -n prod"):
        assert word in told["message"]
    assert cluster.says("Ready") == "False/ReplicasNotReady"


def test_once_an_hour_it_is_tried_again() -> None:
    cluster, name = serving()
    scaled = 0
    for _ in range(3 * 60):
        foreign(cluster, name, 5)
        scaled += len(put_back(cluster))
        cluster.wait(60)
    assert scaled == 3


def test_at_once_on_demand() -> None:
    cluster, name = serving()
    for _ in range(2):
        foreign(cluster, name, 5)
        put_back(cluster)
    cluster.annotations[labels.RETRY] = "now"
    assert put_back(cluster) == [f"Scale {name} 1"]


def test_who_agrees_is_left_alone_and_forgotten() -> None:
    cluster, name = serving()
    foreign(cluster, name, 5)
    put_back(cluster)
    foreign(cluster, name, 1)
    cluster.wait(3601)
    assert put_back(cluster) == []
    assert "contest" not in cluster.status
    assert cluster.says("ScalingActive") == "True/Manual"


def test_another_manager_is_put_back_as_well() -> None:
    cluster, name = serving()
    foreign(cluster, name, 5)
    put_back(cluster)
    foreign(cluster, name, 3, manager="kubectl")
    assert put_back(cluster) == [f"Scale {name} 1"]


def test_a_rollout_goes_on_beside_a_contested_deployment() -> None:
    cluster, name = serving(replicas=2)
    for _ in range(2):
        foreign(cluster, name, 3)
        put_back(cluster)
    assert cluster.says("ScalingActive") == "False/ReplicasContested"
    cluster.edit(engine={"maxBatchSize": 4})
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    assert list(cluster.replicas().values()) == [2]
    assert cluster.says("ScalingActive") == "True/Manual"

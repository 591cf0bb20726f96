"""Whoever is paged reads why a replica is missing in the condition, also when no rollout speaks of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright_builder.contract import EXIT_USER
from support.cluster import SPEC, Cluster, built, refused

CRASH: dict[str, Any] = {"phase": "Running", "restarts": 4, "terminated_reason": "OOMKilled",
                         "failed_container": "server"}
REFUSES: dict[str, Any] = {"phase": "Pending", "failed_container": "verify", "exit_code": EXIT_USER,
                           "terminated_message": "model.onnx: its digest is another"}
NO_IMAGE: dict[str, Any] = {"phase": "Pending", "waiting_reason": "ImagePullBackOff"}
NO_ROOM: dict[str, Any] = {"phase": "Pending", "unschedulable": "0/1 nodes are available: 1 Insufficient cpu."}
SAID = [
    (CRASH, "restarted 4 times (OOMKilled, container server)"),
    (REFUSES, "refuses the engine before loading it: model.onnx: its digest is another"),
    (NO_IMAGE, "cannot get its image (ImagePullBackOff; "),
    (NO_ROOM, "No node can take pod "),
]


def serving() -> Cluster:
    cluster = Cluster(spec={**SPEC, "replicas": 2})
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    return cluster


def strike(cluster: Cluster, flaw: dict[str, Any], *, every: bool = False) -> None:
    for name in list(cluster.pods) if every else list(cluster.pods)[-1:]:
        cluster.pods[name] = replace(cluster.pods[name], ready=False, **flaw)
    for name in cluster.replicas():
        cluster._count(f"minilm-{name}")
    cluster.endpoint_controller()
    cluster.operate()


def said(cluster: Cluster, kind: str) -> str:
    return str(cluster.condition(kind)["message"])


@pytest.mark.parametrize(("flaw", "words"), [pair for pair in SAID if pair[0] is not REFUSES])
def test_once_the_rollout_is_over_ready_says_it(flaw: dict[str, Any], words: str) -> None:
    cluster = serving()
    strike(cluster, flaw)
    assert cluster.says("Ready") == "False/ReplicasNotReady"
    assert said(cluster, "Ready").startswith("1 of 2 replicas of revision")
    assert words in said(cluster, "Ready")
    assert cluster.says("Available") == "True/Serving"
    assert words not in said(cluster, "Available")


@pytest.mark.parametrize(("flaw", "words"), SAID)
@pytest.mark.parametrize("state", ["another was given up", "another is built", "the next cannot be built"])
def test_where_another_revision_is_asked_for_available_says_it_of_what_serves(state: str, flaw: dict[str, Any],
                                                                             words: str) -> None:
    cluster = serving()
    cluster.edit(engine={"precision": "fp32"})
    cluster.operate()
    if state == "another was given up":
        cluster.finish(built(built_at=cluster.now), of="build")
        cluster.operate()
        cluster.deployment_controller()
        new = next(pod for pod in cluster.pods.values() if pod.revision == cluster.status["rollout"]["candidate"])
        cluster.pods[new.name] = replace(new, ready=False, **CRASH)
        cluster.operate()
        assert cluster.says("RolloutComplete") == "False/RolledBack"
        cluster.settle()
    elif state == "the next cannot be built":
        cluster.finish(refused("build", "user", "AccuracyNotReached"), of="build")
        cluster.operate()
    strike(cluster, flaw)
    assert cluster.says("Available") == "True/ServingPrevious"
    assert words in said(cluster, "Available")


@pytest.mark.parametrize(("flaw", "words"), [pair for pair in SAID if pair[0] is not REFUSES])
def test_where_nothing_answers_available_says_why(flaw: dict[str, Any], words: str) -> None:
    cluster = serving()
    strike(cluster, flaw, every=True)
    assert cluster.says("Available") == "False/NoReplica"
    assert words in said(cluster, "Available")


def test_the_image_of_another_revision_than_the_one_asked_for_is_not_made_up() -> None:
    cluster = serving()
    cluster.edit(serving={"image": "example/triton:2"}, engine={"precision": "fp32"})
    cluster.operate()
    strike(cluster, NO_IMAGE)
    assert "its server image" in said(cluster, "Available")
    assert "example/triton:2" not in said(cluster, "Available")


def test_what_is_well_is_not_explained() -> None:
    cluster = serving()
    cluster.edit(engine={"precision": "fp32"})
    cluster.operate()
    assert said(cluster, "Available").endswith("answers; that of the current spec does not yet.")


def test_pods_that_may_not_be_made_are_told_though_there_is_none_to_say_so() -> None:
    """A quota that is full, mostly."""
    cluster = serving()
    name = f"minilm-{cluster.revision}"
    refused_pods = 'pods "minilm-x" is forbidden: exceeded quota: team'
    cluster.edit(replicas=3)
    cluster.operate()
    cluster.deployments[name] = replace(cluster.deployments[name], refused=refused_pods)
    cluster.operate()
    assert said(cluster, "Ready") == (f"2 of 3 replicas of revision {cluster.revision} ready. Deployment {name} cannot "
                                      f"make its pods: {refused_pods}.")


def test_while_a_deployment_exchanges_its_pods_ready_does_not_say_that_all_are_there() -> None:
    cluster = serving()
    name = f"minilm-{cluster.revision}"
    cluster.deployments[name] = replace(cluster.deployments[name], replicas=3)
    cluster.operate()
    assert cluster.says("Ready") == "False/ReplicasNotReady"
    assert "2 of 2" not in said(cluster, "Ready")
    assert f"Deployment {name} asks for 2, has 3" in said(cluster, "Ready")


def test_pods_that_somebody_else_has_changed_are_told_of() -> None:
    """The Deployment is left as it is: nothing but this would say that these are not the pods that were proven."""
    cluster = serving()
    name = f"minilm-{cluster.revision}"
    cluster.deployments[name] = replace(cluster.deployments[name], pods_manager="kubectl-set")
    cluster.operate()
    assert cluster.says("RolloutComplete") == "True/Complete"
    assert f"Field manager kubectl-set has changed the pods of Deployment {name}" in said(cluster, "RolloutComplete")


def test_what_has_no_ready_replica_is_not_said_to_go_on_serving_while_an_engine_is_built() -> None:
    cluster = serving()
    old = cluster.revision
    cluster.edit(engine={"precision": "fp32"})
    cluster.operate()
    assert f"Revision {old} goes on serving." in said(cluster, "RolloutComplete")
    strike(cluster, NO_ROOM, every=True)
    assert cluster.says("RolloutComplete") == "Unknown/WaitingForEngine"
    assert f"Revision {old} has no ready replica." in said(cluster, "RolloutComplete")

"""Builds whose engine the server image proves: which container is named, and whose end it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core.observed import PodView
from enginewright_builder.contract import ErrorReport, Outcome
from support.cluster import SPEC, Cluster, resolved

LATE = "the tritonserver at 127.0.0.1:8000 was not ready within 180 s"
NOT_STARTED = Outcome(kind="build", ok=False, error=ErrorReport(
    family="user", reason="ServerDidNotStart", field="spec.serving.image", message=LATE, value="127.0.0.1:8000",
    remedy="read the server's own log"))
LOST = Outcome(kind="build", ok=False, error=ErrorReport(
    family="user", reason="ServerLoadFailed", message="tritonserver went away while it loaded 'm'"))
IMAGE = "registry.example.com/server:2"


def building() -> Cluster:
    cluster = Cluster(spec={**SPEC, "serving": {"image": IMAGE}})
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    return cluster


def pod(**fields: Any) -> PodView:
    return replace(PodView(name="build-pod", phase="Failed", exit_code=2), **fields)


def end(cluster: Cluster, outcome: Outcome, ended: PodView) -> None:
    cluster.show(cluster.running("build")[0].name, outcome=outcome)
    cluster.fail(of="build", pods=(ended,), reason="PodFailurePolicy")
    cluster.operate()


@pytest.mark.parametrize(("step", "container"), [("resolve", "build"), ("ladder", "build"), ("finalists", "build"),
                                                 ("sweep", "prove"), ("publish", "prove")])
def test_the_container_to_follow_is_named(step: str, container: str) -> None:
    cluster = building()
    cluster.progress(step, 0.5)
    cluster.operate()
    name = cluster.running("build")[0].name
    assert f"logs -f job/{name} -c {container}" in cluster.condition("EngineBuilt")["message"]


def test_a_server_image_that_cannot_be_had_is_named() -> None:
    cluster = building()
    waiting = PodView(name="p", phase="Pending", waiting_reason="ImagePullBackOff", waiting_message="no such image")
    cluster.show(cluster.running("build")[0].name, pods=(waiting,))
    cluster.operate()
    assert cluster.says("EngineBuilt") == "False/ImagePullFailed"
    assert f"server image {IMAGE}" in cluster.condition("EngineBuilt")["message"]


def test_a_server_that_does_not_start_is_told_with_its_last_line() -> None:
    cluster = building()
    end(cluster, NOT_STARTED, pod(server_end="Error", server_log="one\ntritonserver: not found\n"))
    assert cluster.says("EngineBuilt") == "False/ServerDidNotStart"
    told = cluster.condition("EngineBuilt")["message"]
    assert LATE in told
    assert "The server's last line: tritonserver: not found" in told
    assert not cluster.running(), "another pod would do the same"


def test_a_server_without_memory_is_no_fault_of_the_image() -> None:
    """Whatever the prover took it for."""
    cluster = building()
    end(cluster, LOST, pod(server_end="OOMKilled"))
    assert cluster.says("EngineBuilt") == "False/BuildRetrying"
    told = cluster.condition("EngineBuilt")["message"]
    assert told.startswith("OutOfMemory: The server that proves the engine in pod build-pod ran out of memory")
    assert "spec.engine.resources.limits.memory" in told


LOOPS: dict[str, Any] = {"server_end": "Error", "server_log": "tritonserver: not found", "exit_code": None}


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_server_that_never_stays_up_is_given_up(phase: str) -> None:
    """Whether it stayed long enough for the prover to be started or not."""
    cluster = building()
    name = cluster.running("build")[0].name
    cluster.show(name, pods=(pod(phase=phase, server_restarts=1, **LOOPS),))
    cluster.operate()
    assert cluster.says("EngineBuilt") == "False/" + ("Building" if phase == "Running" else "BuildPending")
    cluster.show(name, pods=(pod(phase=phase, server_restarts=2, **LOOPS),))
    cluster.operate()
    assert cluster.says("EngineBuilt") == "False/ServerDidNotStart"
    told = cluster.condition("EngineBuilt")["message"]
    assert "ends as soon as it is started (3 times)" in told
    assert "The server's last line: tritonserver: not found" in told
    assert not cluster.running()
    cluster.wait(3600)
    assert not cluster.operate().actions
    cluster.edit(serving={"image": "registry.example.com/server:3"})
    cluster.operate()
    assert len(cluster.running("build")) == 1


def test_one_that_is_killed_for_its_memory_again_and_again_is_tried_again() -> None:
    cluster = building()
    killed = pod(phase="Running", server_restarts=2, **{**LOOPS, "server_end": "OOMKilled"})
    cluster.show(cluster.running("build")[0].name, pods=(killed,))
    cluster.operate()
    assert cluster.says("EngineBuilt") == "False/BuildRetrying"
    assert "OutOfMemory" in cluster.condition("EngineBuilt")["message"]


def test_a_server_that_runs_has_no_last_line() -> None:
    cluster = building()
    end(cluster, NOT_STARTED, pod())
    assert "last line" not in cluster.condition("EngineBuilt")["message"]

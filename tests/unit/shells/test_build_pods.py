"""A build's pod with a container for each step, as kubelets tell of it."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.observe.pods import LastWords, last_words, out_of_reach, pod_view, working_container

RUNNING: dict[str, Any] = {"running": {"startedAt": "2026-11-25T10:00:00Z"}}
INITIALISING: dict[str, Any] = {"waiting": {"reason": "PodInitializing"}}
PULLING: dict[str, Any] = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
DONE: dict[str, Any] = {"terminated": {"exitCode": 0, "reason": "Completed", "message": "outcome of the build"}}


def ended(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def pod(phase: str, build: Any, server: Any, prove: Any, *, last: Any = None, ready: bool = False) -> dict[str, Any]:
    def status(name: str, state: Any, **more: Any) -> dict[str, Any]:
        return {"name": name, "ready": "running" in state, "restartCount": 0, "state": state, **more}

    again = {"lastState": last, "restartCount": 1} if last else {}
    return {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"initContainers": [{"name": "build"}, {"name": "server", "restartPolicy": "Always"}],
                 "containers": [{"name": "prove"}]},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
                   "initContainerStatuses": [status("build", build), status("server", server, **again)],
                   "containerStatuses": [status("prove", prove)]}}


@pytest.mark.parametrize(("raw", "phase", "container"), [
    (pod("Pending", INITIALISING, INITIALISING, INITIALISING), "Pending", "prove"),
    (pod("Pending", RUNNING, INITIALISING, INITIALISING), "Running", "build"),
    (pod("Pending", DONE, INITIALISING, INITIALISING), "Running", "prove"),
    (pod("Pending", DONE, PULLING, INITIALISING), "Pending", "prove"),
    (pod("Running", DONE, RUNNING, RUNNING), "Running", "prove"),
    (pod("Failed", ended(2), INITIALISING, INITIALISING), "Failed", "build"),
    (pod("Failed", DONE, ended(143), ended(2)), "Failed", "prove"),
    (pod("Succeeded", DONE, ended(143), DONE), "Succeeded", "prove"),
], ids=["begins", "builds", "between", "no server image", "proves", "not built", "not proven", "proven"])
def test_where_it_stands_and_who_tells(raw: dict[str, Any], phase: str, container: str) -> None:
    assert (pod_view(raw).phase, working_container(raw)) == (phase, container)


def test_a_server_image_that_cannot_be_pulled_is_told() -> None:
    view = pod_view(pod("Pending", DONE, PULLING, INITIALISING))
    assert (view.waiting_reason, view.waiting_message) == ("ImagePullBackOff", "no such image")


@pytest.mark.parametrize(("raw", "failed", "code"), [
    (pod("Failed", ended(137, "OOMKilled"), INITIALISING, INITIALISING), "build", 137),
    (pod("Failed", DONE, ended(143), ended(137, "OOMKilled")), "prove", 137),
    (pod("Succeeded", DONE, ended(143), DONE), "", 0),
    (pod("Running", DONE, RUNNING, RUNNING, last=ended(1)), "", 0),
], ids=["the build", "the proof", "nobody", "the server, which is there again"])
def test_who_failed(raw: dict[str, Any], failed: str, code: int) -> None:
    view = pod_view(raw)
    assert (view.failed_container, view.exit_code) == (failed, code)


@pytest.mark.parametrize(("server", "last", "end"), [
    (RUNNING, None, ("", "")),
    (ended(143, message="shutting down"), None, ("", "")),
    (ended(0, "Completed"), None, ("", "")),
    (RUNNING, ended(127, message="tritonserver: not found"), ("Error", "tritonserver: not found")),
    (ended(143), ended(1, message="a library is missing"), ("Error", "a library is missing")),
    (ended(137, "OOMKilled"), None, ("OOMKilled", "")),
    (RUNNING, ended(137, "OOMKilled"), ("OOMKilled", "")),
], ids=["runs", "ended with the pod", "ended well", "crashed", "crashed, then ended", "killed", "killed and back"])
def test_a_server_that_ended_by_itself(server: Any, last: Any, end: tuple[str, str]) -> None:
    view = pod_view(pod("Running", DONE, server, RUNNING, last=last))
    assert (view.server_end, view.server_log) == end


def test_the_outcome_is_what_the_builder_said_last() -> None:
    raw = pod("Failed", DONE, ended(143, message="the server's log"), ended(2, message="outcome of the proof"))
    assert list(last_words(raw)) == [LastWords("outcome of the proof", well=False),
                                     LastWords("outcome of the build", well=True)]


def test_a_server_that_is_not_ready_does_not_put_the_pod_out_of_reach() -> None:
    assert not out_of_reach(pod("Running", DONE, ended(1), RUNNING))
    assert out_of_reach(pod("Running", DONE, RUNNING, RUNNING))

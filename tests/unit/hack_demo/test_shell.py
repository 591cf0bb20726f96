"""What the demo, the drill and the end-to-end tests ask of a cluster alike."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from demo import shell, watch
from rollouts import cluster, drill

MODEL: dict[str, Any] = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def test_a_program_that_takes_too_long_is_ended() -> None:
    with pytest.raises(shell.StepError, match="'sleep 600' did not finish within 0 s"):
        shell.run("sleep", "600", timeout=0.1)


def test_what_a_program_that_fails_said_last_is_told() -> None:
    with pytest.raises(shell.StepError, match="ended with 3\nwhy"):
        shell.run("sh", "-c", "echo why >&2; exit 3")


def test_what_runs_beside_a_block_ends_with_it(tmp_path: Path) -> None:
    """With what it has started itself. A pipe that both hold open is closed by the end of the last."""
    os.mkfifo(tmp_path / "pipe")
    with shell.beside("sh", "-c", f"exec > {tmp_path / 'pipe'}; echo begun; sleep 600 & wait"):
        pipe = (tmp_path / "pipe").open()
        assert pipe.readline() == "begun\n"
    with pipe:
        assert pipe.read() == ""


@pytest.mark.parametrize(("verb", "late", "asked", "ends"), [
    ("apply", 2, 3, "done"), ("get", 3, 4, "done"), ("apply", 9, 4, "request timed out"), ("exec", 1, 1, "timed out")])
def test_kubectl_asks_again_while_etcd_waits_for_its_disk(verb: str, late: int, asked: int, ends: str,
                                                          tmp_path: Path) -> None:
    kubectl, calls = tmp_path / "kubectl", tmp_path / "calls"
    kubectl.write_text(f"#!/bin/sh\necho call >> {calls}\n"
                       f"[ $(wc -l < {calls}) -gt {late} ] && echo done && exit\n"
                       f"echo 'Error from server: {shell.ETCD_LATE}' >&2; exit 1\n")
    kubectl.chmod(0o755)
    kube = shell.Kube(kubectl=str(kubectl), kubeconfig="k", helm="helm")
    if ends == "done":
        assert kube(verb, "-f", "-") == "done\n"
    else:
        with pytest.raises(shell.StepError, match=ends):
            kube(verb, "-f", "-")
    assert len(calls.read_text().splitlines()) == asked


@pytest.mark.parametrize(("status", "first"), [
    (None, []), ("pending-install", ["uninstall"]), ("pending-upgrade", ["rollback"]),
    ("pending-rollback", ["rollback"])])
def test_helm_goes_on_after_an_interrupted_call(status: str | None, first: list[str], tmp_path: Path) -> None:
    """As `helm list --pending` says: the words are Helm's."""
    program, calls = tmp_path / "program", tmp_path / "calls"
    pending = [] if status is None else [{"name": "enginewright", "status": status}]
    program.write_text(f"#!/bin/sh\necho $2 >> {calls}\n[ $2 != list ] || echo '{json.dumps(pending)}'\n")
    program.chmod(0o755)
    kube = shell.Kube(kubectl=str(program), kubeconfig="k", helm=str(program))
    kube.upgrade_install("enginewright", "system", tmp_path, {})
    assert calls.read_text().split() == ["list", *first, "upgrade", "rollout"]


def test_a_namespace_enforces_the_strictest_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []

    def run(*command: str, stdin: bytes, timeout: float) -> str:
        said.append((command, json.loads(stdin)))
        return ""

    monkeypatch.setattr(shell, "run", run)
    shell.Kube(kubectl="kubectl", kubeconfig="k", helm="helm").make_namespace("a")
    ((command, body),) = said
    assert command == ("kubectl", "--kubeconfig=k", "apply", "-f", "-")
    assert (body["kind"], body["metadata"]["name"]) == ("Namespace", "a")
    assert body["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}


def test_a_condition_that_is_missing() -> None:
    assert watch.condition(MODEL, "Ready") == cluster.condition(MODEL, "Ready") == {"type": "Ready", "status": "True"}
    assert watch.condition(MODEL, "Available") == {}
    with pytest.raises(shell.StepError, match="has no condition Available"):
        cluster.condition(MODEL, "Available")


@pytest.mark.parametrize(("logs", "step"), [
    ([("build", 0.1, "fetch"), ("build", 0.2, "export")], "export"),
    ([("build", 0.5, "ladder"), ("prove", 0.6, "sweep")], "sweep"),
    ([("prove", 0.6, "sweep"), ("build", 0.5, "ladder")], "sweep"), ([], None)])
def test_how_far_a_build_is_by_the_container_that_works(logs: list[tuple[str, float, str]], step: str | None,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """kubectl tells of containers in no order, and of one that has not started in words of its own."""
    lines = [json.dumps({"event": "progress", "step": name, "fraction": fraction, "detail": container})
             for container, fraction, name in logs]
    monkeypatch.setattr(shell.Kube, "__call__", lambda *_: "\n".join(["error: container prove waits", "7", *lines]))
    found = watch._newest_progress(shell.Kube(kubectl="", kubeconfig="", helm=""), "demo", "minilm")
    assert (found and found["step"]) == step


@pytest.mark.parametrize(
    ("ready", "reason", "fingerprint", "promoted"),
    [("True", "Complete", "new", True), ("True", "Complete", "old", False), ("False", "RolledBack", "old", False)],
)
def test_how_a_candidate_ended(
    monkeypatch: pytest.MonkeyPatch, ready: str, reason: str, fingerprint: str, promoted: bool
) -> None:
    conditions = [{"type": "Ready", "status": ready}, {"type": "RolloutComplete", "reason": reason, "message": "m"}]
    model = {"metadata": {"generation": 1}, "status": {
        "observedGeneration": 1, "conditions": conditions, "engine": {"fingerprint": fingerprint}}}

    class Corner:
        def model(self) -> dict[str, Any]:
            return model

    found = drill.Drill.__new__(drill.Drill)
    monkeypatch.setattr(found, "corner", Corner(), raising=False)
    monkeypatch.setattr(drill.Drill, "_look", lambda self: None)
    assert found._settled("new") is promoted

"""A server image of the user's choice is asked what it has. It may lie about itself; it can do nothing else."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.config import Images, OperatorConfig
from enginewright.core.manifests import Owner, ask_job
from enginewright.observe.keys import Key
from enginewright.observe.reports import JobReports, Report, Said
from enginewright_builder import ask
from enginewright_builder.contract import Outcome, ResolvedSource
from support.children import good_spec

SPEC: dict[str, Any] = {
    "source": {"uri": "s3://models/net", "secretRef": {"name": "secret-of-the-bucket"}},
    "store": {"uri": "s3://engines/a", "secretRef": {"name": "secret-of-the-store"},
              "serviceAccountName": "engines"},
    "placement": {"accelerator": "cpu"},
    "serving": {"image": "registry.example/anything:1"},
}


def refused(path: Path) -> str:
    outcome = ask.ask(path)
    assert outcome.error
    assert outcome.error.reason == "ServerImageUnfit"
    return outcome.error.message


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """The builder's container would read a file of its own, and the operator would show it."""
    (tmp_path / "own").write_text(json.dumps({"backends": ["of-the-builder"], "libraries": []}))
    (tmp_path / "facts.json").symlink_to(tmp_path / "own")
    assert "cannot be read" in refused(tmp_path / "facts.json")


def test_a_pipe_is_not_waited_for_and_a_folder_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "facts.json")
    assert "cannot be read" in refused(tmp_path / "facts.json")
    assert "cannot be read" in refused(tmp_path)
    assert "cannot be read" in refused(tmp_path / "absent")


def test_no_more_is_read_than_facts_have(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    with path.open("wb") as writer:
        writer.truncate(1 << 40)  # sparse
    assert "more than 65,536 bytes" in refused(path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "facts.json").write_bytes(b"\xff\xfe{}")
    assert "not valid" in refused(tmp_path / "facts.json")


class Silent:
    def follow(self, key: Key, wanted: Any) -> None: ...

    def said(self, uid: str) -> Said:
        return Said(tried=True)


@pytest.mark.parametrize(("name", "counts"), [(labels.CONTAINER_EXAMINE, False), (labels.CONTAINER_ASK, True)])
def test_its_container_cannot_speak_for_the_builder(name: str, counts: bool) -> None:
    forged = Outcome(kind="resolve", ok=True,
                     source=ResolvedSource(digest="sha256:" + "f" * 64, format="onnx", size_bytes=1))
    ended = {"name": name, "state": {"terminated": {"exitCode": 0, "message": forged.to_json()}}}
    pod = {"metadata": {"name": "p", "uid": "u", "namespace": "prod",
                        "creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")},
           "spec": {"containers": [{"name": "ask"}]},
           "status": {"phase": "Failed", "initContainerStatuses": [ended]}}
    told = JobReports(Silent()).of(Key("prod", "minilm"), {"job": [pod]})["job"]
    assert told == Report(outcome=forged if counts else None)


def pod_of_ask_job() -> dict[str, Any]:
    config = OperatorConfig(images=Images(builder="registry.example/builder:1"))
    job = ask_job(Owner(name="net", namespace="prod", uid="u"), good_spec(SPEC), config, "0123abcd")
    pod: dict[str, Any] = job["spec"]["template"]["spec"]
    return pod


def test_its_pod_has_nothing_worth_taking() -> None:
    pod = pod_of_ask_job()
    assert "serviceAccountName" not in pod
    assert pod["automountServiceAccountToken"] is False
    assert {frozenset(volume) - {"name"} for volume in pod["volumes"]} == {frozenset({"emptyDir"})}
    for container in (*pod["initContainers"], *pod["containers"]):
        assert "envFrom" not in container
        assert not [entry for entry in container.get("env", ()) if "valueFrom" in entry]
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"]
        assert security["runAsNonRoot"]
        assert not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}


def test_it_writes_into_memory_of_a_fixed_size_and_sees_the_program_read_only() -> None:
    pod = pod_of_ask_job()
    (foreign,) = (one for one in (*pod["initContainers"], *pod["containers"])
                  if one["image"] == "registry.example/anything:1")
    assert {mount["name"]: bool(mount.get("readOnly")) for mount in foreign["volumeMounts"]} == {
        "program": True, "facts": False}
    facts = next(volume for volume in pod["volumes"] if volume["name"] == "facts")
    assert facts["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Mi"}
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in foreign["env"]
    assert all(not key.startswith("nvidia.com/") for key in foreign["resources"].get("limits", {}))

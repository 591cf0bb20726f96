"""The pod of a build whose engine the server image proves: who holds the device, and who sees what."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from enginewright.act.traced import traced
from enginewright.core import labels
from enginewright.core.config import OperatorConfig
from enginewright.core.manifests.proof import MODELS, SCRIPT, WITNESS_PATH
from enginewright.core.planner.objects import views_of
from enginewright_builder.triton import witness
from enginewright_builder.triton.process import cpu_seconds_in, memory_in
from enginewright_builder.triton.witness import Witness
from support.children import children_of
from support.specs import tensor_specs

JSON = dict[str, Any]
CONFIG = OperatorConfig(job_env={"HTTPS_PROXY": "http://proxy.example:3128"})
CPU: JSON = {"source": {"uri": "pvc://models/a"}, "placement": {"accelerator": "cpu"}}
GPUS: JSON = {"source": {"uri": "pvc://models/a"}, "placement": {"gpu": {"product": "NVIDIA-H200", "count": 2}}}


def job(spec: JSON, config: OperatorConfig = CONFIG) -> JSON:
    found: JSON = children_of("m", spec, config).all()["build_job"]
    return found


def containers(spec: JSON) -> dict[str, JSON]:
    pod = job(spec)["spec"]["template"]["spec"]
    assert [one["name"] for one in pod["initContainers"]] == ["build", "server"]
    assert [one["name"] for one in pod["containers"]] == ["prove"]
    return {one["name"]: one for one in [*pod["initContainers"], *pod["containers"]]}


def mounts(container: JSON, *, writable: bool = False) -> set[str]:
    return {mount["name"] for mount in container["volumeMounts"] if not (writable and mount.get("readOnly"))}


@given(tensor_specs())
def test_the_server_sees_its_models_alone_and_changes_none(raw: JSON) -> None:
    found = containers(raw)
    server = found["server"]
    assert server["restartPolicy"] == "Always"
    assert mounts(server) == {"work", "witness", "model-control", "server-tmp", "server-shm"}
    assert mounts(server, writable=True) == {"witness", "server-tmp", "server-shm"}
    assert next(one["subPath"] for one in server["volumeMounts"] if one["name"] == "work") == "models"
    assert "envFrom" not in server
    for name in ("build", "prove"):
        assert {"store", "signing-keys", "work"} <= mounts(found[name])
        assert not {"server-tmp", "server-shm"} & mounts(found[name])
    assert not any(name == "request" or name.startswith("source-") for name in mounts(found["prove"]))
    assert {"witness", "model-control", "signing-keys"}.isdisjoint(mounts(found["prove"], writable=True))


@given(tensor_specs())
def test_the_device_goes_from_one_to_the_next_and_is_asked_for_once(raw: JSON) -> None:
    pod = job(raw)["spec"]["template"]["spec"]
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {}}
    there = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {**pod, "nodeName": "n"}}
    [seen] = views_of([node, there])
    plain = {**pod, "initContainers": [], "containers": pod["initContainers"][:1]}
    [before] = views_of([node, {**there, "spec": {**plain, "nodeName": "n"}}])
    assert [one.devices for one in seen.pods] == [one.devices for one in before.pods]
    build, server = pod["initContainers"]
    assert build["resources"] == server["resources"]
    [prove] = pod["containers"]
    assert "claims" not in prove["resources"]
    assert not any(name.startswith("nvidia.com/") for name in prove["resources"]["limits"])
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in prove["env"]


def test_bad_input_of_either_half_is_not_tried_again() -> None:
    rules = job(CPU)["spec"]["podFailurePolicy"]["rules"]
    assert [rule["onExitCodes"]["containerName"] for rule in rules if "onExitCodes" in rule] == ["build", "prove"]


def test_what_the_user_and_the_installation_add_is_for_both_halves_and_not_for_the_server() -> None:
    # One has a name that only begins like those of claims with sources, which the prover does not mount.
    names = ("ca", "source-ca")
    added = {"spec": {"volumes": [{"name": name, "configMap": {"name": "company-ca"}} for name in names],
                      "containers": [{"name": "build", "env": [{"name": "SSL_CERT_FILE", "value": "/ca/ca.crt"}],
                                      "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in names]}]}}
    found = containers({**CPU, "engine": {"podTemplate": added}})
    for name in ("build", "prove"):
        assert {"SSL_CERT_FILE", "HTTPS_PROXY"} <= {one["name"] for one in found[name]["env"]}
        assert set(names) <= mounts(found[name])
    assert not set(names) & mounts(found["server"])
    assert {one["name"] for one in found["server"]["env"]} == {"NVIDIA_VISIBLE_DEVICES"}


def test_both_halves_go_on_with_the_trace() -> None:
    pod = traced(job(GPUS), {"TRACEPARENT": "00-1"})["spec"]["template"]["spec"]
    told = {one["name"]: "TRACEPARENT" in {entry["name"] for entry in one.get("env", ())}
            for one in [*pod["initContainers"], *pod["containers"]]}
    assert told == {"build": True, "server": False, "prove": True}


def test_the_server_answers_on_loopback_with_a_key() -> None:
    args = containers(CPU)["server"]["args"]
    assert {f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")} <= set(args)
    assert "--model-control-mode=explicit" in args
    assert f"--http-restricted-api=model-repository:{labels.KEY_HEADER}" in args[2]


@pytest.fixture
def script(tmp_path: Path) -> str:
    """With its folders here, and a port on which nobody else listens."""
    (tmp_path / "key").write_text("secret\n")
    (tmp_path / "tcp").write_text("  0: 0100007F:1F40 00000000:0000 0A 00000000:00000000\n")
    return (SCRIPT.replace(WITNESS_PATH, str(tmp_path)).replace(labels.KEY_FILE, str(tmp_path / "key"))
            .replace("/proc/net/tcp", str(tmp_path / "tcp")).replace(MODELS, str(tmp_path)))


@contextlib.contextmanager
def running(script: str, folder: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """In a session of its own, of which nobody is left afterwards."""
    with (folder / "said").open("wb") as said:
        begun = subprocess.Popen(["/bin/sh", "-c", script, "sh", *command], cwd=folder, stdout=said,
                                 start_new_session=True)
    try:
        yield begun
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(begun.pid, signal.SIGKILL)
        begun.wait(timeout=240)


def test_what_the_shell_leaves_and_starts(script: str, tmp_path: Path) -> None:
    began = time.time()
    (tmp_path / ".asked").write_text("1\n")
    until = 'until [ -s memory ] && [ -s ready ]; do sleep 0.05; done; echo "$@"'
    with running(script, tmp_path, "/bin/sh", "-c", until, "server", "--a=1") as server:
        assert server.wait(timeout=240) == 0
    assert (tmp_path / "said").read_text().split() == [
        "--a=1", "--http-restricted-api=model-repository:enginewright-model-control=secret",
        "--grpc-restricted-protocol=model-repository:enginewright-model-control=secret"]
    started, ready = (float((tmp_path / name).read_text()) for name in ("started", "ready"))
    assert began - 1 < started <= ready
    said = (tmp_path / "memory").read_text()
    assert 0 < memory_in(said).held < memory_in(said).resident
    assert cpu_seconds_in(said) > 0
    assert re.search(r"^VmHWM:\s+\d+ kB$", said, re.MULTILINE)


def test_the_shell_answers_each_time_that_the_prover_asks(script: str, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witness, "ANSWER_SECONDS", 240.0)
    asks = Witness(tmp_path, tmp_path)
    with running(script, tmp_path, "/bin/sh", "-c", "sleep 240", "server"):
        said = [asyncio.run(asks.processes()) for _ in range(2)]
    assert [text.splitlines()[0] for text in said] == ["asked 1", "asked 2"]
    assert all(memory_in(text).resident > 0 for text in said)


def test_without_a_key_no_server_is_started(script: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("\n")
    with running(script, tmp_path, "touch", "begun") as server:
        assert server.wait(timeout=240) != 0
    assert not (tmp_path / "begun").exists()

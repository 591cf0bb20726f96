"""A server of an image that the user chose, or one that was broken into, leaves a Python package in its ``/tmp``, for
containers of ours in the same pod that start in their ``/tmp``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.manifests import batch_job, deployment
from enginewright.plugin.report_pod import PRINT
from support.children import Children, children_of
from support.in_a_job import ROOT
from support.published_language_model import built_language_model

JSON = dict[str, Any]
ON_CPU: JSON = {"source": {"uri": "pvc://models/a"}, "placement": {"accelerator": "cpu"}}
SPECS: dict[str, JSON] = {
    "captures": {**ON_CPU, "quality": {"capture": {}}, "store": {"uri": "pvc://engines/team-a"}},
    "gpu": {"source": {"uri": "pvc://models/a"}, "placement": {"gpu": {"product": "NVIDIA-H200"}}, "quality": {},
            "store": {"uri": "s3://engines/a", "secretRef": {"name": "keys"}}},
    "language model": {**ON_CPU, "quality": {}, "serving": {"image": "registry.example/server-vllm:1"}},
    "batch": {**ON_CPU, "batch": {"input": {"uri": "pvc://data/rows.npz"}, "output": {"uri": "pvc://data/answers"}}},
}
# What a server writes for ours, which read it as a stranger's.
HANDED_OVER = {labels.VOLUME_TRACES, "witness", "facts"}
OF_USERS = (labels.CONTAINER_SERVER, labels.CONTAINER_FITS, labels.CONTAINER_EXAMINE)


def pods(kind: str) -> list[JSON]:
    children = children_of("m", SPECS[kind])
    made = [one for one in children.all().values() if one["kind"] in ("Job", "Deployment")]
    if kind == "batch":
        made.append(batch_job(children.owner, children.spec, children.record, children.placement, children.config))
    if kind == "language model":
        made.append(replica_of_language_model(children))
    return [one["spec"]["template"]["spec"] for one in made]


def replica_of_language_model(children: Children) -> JSON:
    outcome = replace(built_language_model(), fingerprint=children.fingerprint, manifest_digest="sha256:" + "d" * 64)
    record = replace(children.record, outcome=outcome)
    return deployment(children.owner, children.spec, record, children.placement, children.config)


def containers(pod: JSON) -> list[JSON]:
    return [*pod.get("initContainers", []), *pod["containers"]]


@pytest.mark.parametrize("kind", SPECS)
def test_no_container_of_ours_mounts_what_a_server_writes(kind: str) -> None:
    found = pods(kind)
    for pod in found:
        written = {mount["name"] for one in containers(pod) if one["name"] in OF_USERS
                   for mount in one["volumeMounts"] if not mount.get("readOnly")}
        for one in containers(pod):
            if one["name"] not in OF_USERS:
                shared = written & {mount["name"] for mount in one["volumeMounts"]}
                assert shared <= HANDED_OVER, one["name"]
    names = {one["name"] for pod in found for one in containers(pod)}
    assert {"captures": labels.CONTAINER_QUALITY, "batch": labels.CONTAINER_BATCH}.get(kind, "server") in names


def commands() -> dict[str, list[str]]:
    """Of our containers that start a module, by its name."""
    found = [one["command"] for kind in SPECS for pod in pods(kind) for one in containers(pod)
             if one["name"] not in OF_USERS and "-m" in one.get("command", [])]
    return {words[-1]: words for words in [*found, PRINT]}


MODULES = [f"enginewright_builder.{name}" for name in ("ask", "quality", "show", "verify")]


def test_these_are_all_modules() -> None:
    assert sorted(commands()) == MODULES


@pytest.mark.parametrize("module", MODULES)
def test_a_package_in_the_working_folder_is_not_taken_for_the_images(module: str, tmp_path: Path) -> None:
    package, ran = tmp_path / "tmp" / "enginewright_builder", tmp_path / "ran"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"open({str(ran)!r}, 'w')\n")
    (_, *words) = commands()[module]
    with subprocess.Popen([sys.executable, *words, "/no-such-folder"], cwd=package.parent, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "builders")}) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "the monitor ended" in line:  # and would be started again
                process.send_signal(signal.SIGTERM)
    assert not ran.exists()

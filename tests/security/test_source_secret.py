"""A Secret of ``spec.source.secretRef`` by a user who may write Secrets and models, and make no pods: its entries are
variables of the containers that mount the key of engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from enginewright.core import labels
from enginewright_builder.contract import SOURCE_VARIABLES, STORE_VARIABLES
from support.children import children_of
from support.fake_hub import REPOSITORY, TOKEN, FakeHub, commit_of, serving
from support.in_a_job import resolve_container, resolved
from support.models import mlp

JSON = dict[str, Any]
SOURCE: JSON = {"uri": f"hf://{REPOSITORY}/net.onnx", "secretRef": {"name": "mine"}}
SPECS: dict[str, JSON] = {
    "cpu": {"source": SOURCE, "placement": {"accelerator": "cpu"}},
    "gpu": {"source": SOURCE, "placement": {"gpu": {"product": "NVIDIA-H200"}}},
    "generate": {"source": {**SOURCE, "uri": f"hf://{REPOSITORY}"}, "task": "generate",
                 "placement": {"accelerator": "cpu"}, "objective": {"tokens": {"ttftMilliseconds": 500}},
                 "accuracy": {"evaluation": {"uri": "pvc://models/prompts.jsonl"}}},
    "bucket": {"source": SOURCE, "placement": {"accelerator": "cpu"},
               "store": {"uri": "s3://engines/a", "secretRef": {"name": "mine"}}},
}
NO_DEVICE = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}


def containers(kind: str, step: str) -> dict[str, JSON]:
    pod = children_of("m", SPECS[kind]).all()[f"{step}_job"]["spec"]["template"]["spec"]
    return {one["name"]: one for one in [*pod.get("initContainers", []), *pod["containers"]]}


@pytest.mark.parametrize("kind", SPECS)
def test_an_entry_of_a_secret_is_a_variable_that_nothing_but_the_builder_reads(kind: str) -> None:
    pods = [template["spec"] for child in children_of("m", SPECS[kind]).all().values()
            if (template := child.get("spec", {}).get("template"))]
    found = [entry for pod in pods for one in [*pod.get("initContainers", []), *pod["containers"]]
             for entry in one.get("envFrom", [])]
    assert SOURCE_VARIABLES in [entry.get("prefix") for entry in found]
    assert {entry.get("prefix") for entry in found} <= {SOURCE_VARIABLES, STORE_VARIABLES}


def test_what_was_given_no_device_sees_none_whatever_its_image_says() -> None:
    for kind, step in [*((kind, "resolve") for kind in SPECS), ("cpu", "build"), ("generate", "build")]:
        for name, one in containers(kind, step).items():
            assert NO_DEVICE in one.get("env", []), (kind, step, name)
    with_one = [name for name, one in containers("gpu", "build").items() if NO_DEVICE not in one.get("env", [])]
    assert with_one == [labels.CONTAINER_BUILD, labels.CONTAINER_SERVER]


def test_no_entry_chooses_what_runs_and_credentials_arrive(tmp_path: Path) -> None:
    (tmp_path / "claim").mkdir()
    (tmp_path / "claim" / "sitecustomize.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    commit = commit_of("one")
    hub = FakeHub(revisions={commit: {"net.onnx": mlp().SerializeToString()}}, branches={"main": commit}, private=True)
    with serving(hub):
        secret = {"HF_TOKEN": f"{TOKEN}\n", "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "claim"),
                  "LD_PRELOAD": str(tmp_path / "claim" / "x.so"), "PYTHONPATH": str(tmp_path / "claim"),
                  "PYTHONINSPECT": "1", "NVIDIA_VISIBLE_DEVICES": "all"}
        container = resolve_container(SOURCE["uri"], "mine")
        outcome, said = resolved(SOURCE["uri"], container, {"mine": secret}, tmp_path / "job")
    assert outcome.ok, outcome.error
    assert not (tmp_path / "ran").exists(), "sitecustomize.py of the claim ran"
    assert "x.so" not in said, "the loader looked for the library"

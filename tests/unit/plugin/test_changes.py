"""What a changed manifest costs, said before anybody applies it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from enginewright.plugin.changes import NOTHING, difference, lines, plain
from support.cluster import SPEC

ROOT = Path(__file__).resolve().parents[3]
READ_AGAIN = ("the operator reads the source and its data again; if their content has changed, it builds another "
              "engine unless the store has it, and rolls it out by Canary")


def manifest(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "minilm"}, "spec": {**copy.deepcopy(SPEC), **spec}}


@pytest.mark.parametrize(("change", "effect"), [
    ({}, NOTHING),
    ({"engine": {}}, NOTHING),  # defaults, spelled out or not
    ({"engine": {"maxBatchSize": 16}}, "another engine: built unless the store has it, then rolled out by Canary"),
    ({"accuracy": {"maxLoss": 0.2}, "rollout": {"strategy": "Recreate"}},
     "another engine: built unless the store has it, then rolled out by Recreate"),
    ({"serving": {"image": "mine:2"}}, "another engine: built unless the store has it, then rolled out by Canary"),
    ({"serving": {"resources": {"requests": {"cpu": "3"}}}},
     "no build: the same engine in new pods, rolled out by Canary"),
    ({"autoscaling": {"maxReplicas": 9}}, "no build and no new revision: it takes effect at once"),
    ({"replicas": 7}, "no build and no new revision: it takes effect at once"),
])
def test_the_effect_is_the_operators_own_verdict(change: dict[str, Any], effect: str) -> None:
    assert difference(manifest(), manifest(**change)).effect == effect


@pytest.mark.parametrize(("changed", "effect"), [
    ({"gpu": {"product": "NVIDIA-H200"}},
     "another engine: built unless the store has it, then rolled out by Canary"),
    ({"minReplicas": 3}, "no build and no new revision: it takes effect at once"),
    ({"nodeSelector": {"pool": "a"}}, "no build: the same engine in new pods, rolled out by Canary"),
])
def test_of_a_fleet_each_class_counts(changed: dict[str, Any], effect: str) -> None:
    cpu = {"name": "cpu", "accelerator": "cpu"}
    gpu = {"name": "gpu", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}
    before = manifest(placement={"classes": [cpu, gpu]})
    after = manifest(placement={"classes": [cpu, {**gpu, **changed}]})
    assert difference(before, after).effect == effect


@pytest.mark.parametrize(("section", "changed", "effect"), [
    ("autoscaling", {"maxReplicas": 5}, "no build and no new revision: it takes effect at once"),
    ("accuracy", {"maxLoss": 0.05}, "another engine: built unless the store has it, then rolled out by Canary"),
    ("accuracy", {"evaluation": {"uri": "pvc://models/other.jsonl"}}, READ_AGAIN),
    ("engine", {"calibration": {"uri": "pvc://models/other.jsonl"}}, READ_AGAIN),
])
def test_of_a_model_that_names_its_data(section: str, changed: dict[str, Any], effect: str) -> None:
    """Their digests are found by the operator: the manifest has none."""
    before = yaml.safe_load((ROOT / "hack/demo/minilm.yaml").read_text())
    after = copy.deepcopy(before)
    after["spec"][section] |= changed
    assert difference(before, after).effect == effect


def test_another_source_is_read_again() -> None:
    assert difference(manifest(), manifest(source={"uri": "pvc://models/other"})).effect == READ_AGAIN


def test_changes_are_named_with_defaults_filled_in() -> None:
    told = difference(manifest(), manifest(engine={"maxBatchSize": 16}))
    (change,) = plain(told)["changes"]
    assert (change["path"], change["after"]) == ("spec.engine.maxBatchSize", 16)
    assert lines("prod/minilm", told)[1] == f"  spec.engine.maxBatchSize: {change['before']} -> 16"


def test_what_was_not_there_is_said_so() -> None:
    told = difference(manifest(), manifest(engine={"calibration": {"uri": "pvc://models/calibration.npz"}}))
    assert lines("prod/minilm", told)[1].startswith("  spec.engine.calibration: (none) -> {")


def test_a_new_object() -> None:
    assert difference(None, manifest()).effect.startswith("it is new: ")


@pytest.mark.parametrize("bad", [
    {"engine": {"precision": "fp7"}},
    {"autoscaling": {"minReplicas": 5, "maxReplicas": 2}},
])
def test_what_would_be_refused_is_told_instead(bad: dict[str, Any]) -> None:
    told = difference(manifest(), manifest(**bad))
    assert told.problems
    assert not told.effect
    assert lines("prod/minilm", told)[0] == "prod/minilm: the operator would refuse it"

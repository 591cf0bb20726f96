"""The schema for editors takes what is good, and marks what the apiserver would refuse by shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from jsonschema import Draft7Validator

import generate
from enginewright.core.labels import API_VERSION, KIND
from support.specs import valid_specs

SCHEMA = json.loads(generate.SCHEMA.read_text())
CHECK = Draft7Validator(SCHEMA)
EXAMPLES = sorted((generate.ROOT / "examples").glob("*.yaml"))


def faults(**spec: Any) -> list[str]:
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "m"}, "spec": spec}
    return [error.json_path for error in CHECK.iter_errors(document)]


def test_it_is_a_schema() -> None:
    Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.name))
def test_examples_are_good(path: Path) -> None:
    ours = [one for one in yaml.safe_load_all(path.read_text()) if one and one.get("kind") == KIND]
    assert [error.message for one in ours for error in CHECK.iter_errors(one)] == []


@given(spec=valid_specs())
def test_what_the_operator_takes_is_good(spec: dict[str, Any]) -> None:
    assert faults(**spec) == []


@pytest.mark.parametrize(("wrong", "where"), [
    ({"engine": {"precison": "fp16"}}, "$.spec.engine"),
    ({"engine": {"precision": "fp64"}}, "$.spec.engine.precision"),
    ({"accuracy": {"maxLoss": 0}}, "$.spec.accuracy.maxLoss"),
    ({"accuracy": {"tolerance": 0.1}}, "$.spec.accuracy"),
    ({"store": {"uri": "s3://Bucket"}}, "$.spec.store.uri"),
    ({"autoscaling": {}}, "$.spec.autoscaling"),
])
def test_a_fault_is_marked_where_it_is(wrong: dict[str, Any], where: str) -> None:
    assert faults(source={"uri": "pvc://models/a"}, **wrong) == [where]

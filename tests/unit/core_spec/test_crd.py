"""The CRD cannot drift from the models: it is made from them, and what is committed is what they give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

import generate
from enginewright.core.spec import Spec
from enginewright.core.spec.crd import crd
from enginewright.core.spec.rules import RULES
from enginewright.core.spec.structural import structural
from enginewright.core.status import Status
from support.schemas import object_schema

SCHEMA = object_schema()


def nodes(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], f"{path}[*]")


ALL = [*nodes(SCHEMA["properties"]["spec"], "spec"), *nodes(SCHEMA["properties"]["status"], "status")]


def test_what_is_committed_is_what_the_models_give() -> None:
    stale = [path.name for path, text in generate.wanted().items() if path.read_text() != text]
    assert stale == [], "run: make generate"


def test_the_committed_crd_is_the_one_of_the_models() -> None:
    assert yaml.load(generate.CRD.read_text(), yaml.CSafeLoader) == crd()


def test_every_node_is_structural() -> None:
    for path, node in ALL:
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path
        assert not {"$ref", "const", "oneOf", "allOf", "title", "exclusive"} & node.keys(), path
        assert not ("properties" in node and "additionalProperties" in node), path


def test_every_field_is_explained() -> None:
    """All but old names and what Kubernetes users know: cpu and memory of requests and limits, what a list or map
    holds."""
    known = (".requests.", ".limits.")
    schema = object_schema(old_names=False)["properties"]
    parts = [found for part in ("spec", "status") for found in nodes(schema[part], part)]
    fields = [(path, node) for path, node in parts if "." in path and not path.endswith("]")]
    assert [path for path, node in fields if "description" not in node and not any(k in path for k in known)] == []


def test_lists_and_maps_of_the_spec_are_bounded() -> None:
    """Else the apiserver cannot bound the cost of a rule over them."""
    for path, node in nodes(SCHEMA["properties"]["spec"], "spec"):
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if isinstance(node.get("additionalProperties"), dict):
            assert "maxProperties" in node, path


@pytest.mark.parametrize(("block", "default"), [
    ("engine", {"backend": "auto", "precision": "auto", "maxBatchSize": 32, "stopWhen": "budgetSpent",
                "fallback": "none"}),
    ("rollout", {"strategy": "Canary", "maxSurge": 1, "scaleDownDelaySeconds": 30, "autoPromote": True, "analysis": {
        "seconds": 60, "maxSlowdown": 0.25, "minRequests": 60, "compareOutputs": "auto"}}),
])
def test_defaults_are_written_out(block: str, default: dict[str, Any]) -> None:
    assert SCHEMA["properties"]["spec"]["properties"][block]["default"] == default


@pytest.mark.parametrize("block", ["interface", "autoscaling", "replicas", "source", "store"])
def test_what_may_be_absent_has_no_default(block: str) -> None:
    assert "default" not in SCHEMA["properties"]["spec"]["properties"][block]


def test_defaults_of_the_schema_are_those_of_the_models() -> None:
    properties = SCHEMA["properties"]["spec"]["properties"]
    defaults = {name: node["default"] for name, node in properties.items() if "default" in node}
    source = {"source": {"uri": "pvc://m/a"}}
    assert Spec.model_validate({**source, **defaults}) == Spec.model_validate(source)


def test_rules_stand_where_they_were_meant_to() -> None:
    for path, rules in RULES.items():
        node = SCHEMA
        for step in filter(None, path.split(".")):
            node = node["properties"][step.removesuffix("[]")]
            node = node["items"] if step.endswith("[]") else node
        assert [rule["rule"] for rule in node["x-kubernetes-validations"]] == [rule.rule for rule in rules]


def test_columns_read_fields_that_exist() -> None:
    summary = SCHEMA["properties"]["status"]["properties"]["summary"]["properties"]
    for column in crd()["spec"]["versions"][0]["additionalPrinterColumns"]:
        if column["jsonPath"].startswith(".status.summary."):
            assert column["jsonPath"].removeprefix(".status.summary.") in summary, column["name"]


def test_scale_reads_fields_that_exist() -> None:
    scale = crd()["spec"]["versions"][0]["subresources"]["scale"]
    assert "replicas" in SCHEMA["properties"]["spec"]["properties"]
    assert {"replicas", "selector"} <= SCHEMA["properties"]["status"]["properties"].keys()
    assert scale["specReplicasPath"] == ".spec.replicas"


def test_status_has_every_field_of_its_model() -> None:
    names = {field.alias for field in Status.model_fields.values()}
    assert SCHEMA["properties"]["status"]["properties"].keys() == names | {"internal"}


class Odd(BaseModel):
    value: int | list[int]


class Older(BaseModel):
    value: tuple[int, str]


@pytest.mark.parametrize("model", [Odd, Older])
def test_what_has_no_structural_form_is_refused(model: type[BaseModel]) -> None:
    with pytest.raises(ValueError, match="structural form"):
        structural(model)

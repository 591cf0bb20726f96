"""A CRD of another release, told by what its schema lacks."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.spec.served import missing_fields
from support.schemas import object_schema


def published(schema: dict[str, Any]) -> dict[str, Any]:
    kind = {"group": labels.GROUP, "version": labels.VERSION, "kind": labels.KIND}
    others = {"group": labels.GROUP, "version": labels.VERSION, "kind": f"{labels.KIND}List"}
    return {"components": {"schemas": {
        "list": {"x-kubernetes-group-version-kind": [others]},
        "one": {**schema, "x-kubernetes-group-version-kind": [kind]},
    }}}


@pytest.fixture
def schema() -> dict[str, Any]:
    return copy.deepcopy(object_schema())


def below(schema: dict[str, Any], path: str) -> dict[str, Any]:
    for name in path.split("."):
        schema = schema["items"] if name == "[]" else schema["properties"][name]
    return schema


def test_the_crd_of_this_release_lacks_nothing(schema: dict[str, Any]) -> None:
    assert missing_fields(published(schema)) == ()


@pytest.mark.parametrize(("parent", "name", "said"), [
    ("spec", "engine", "spec.engine"),
    ("spec.engine", "precision", "spec.engine.precision"),
    ("status", "fingerprint", "status.fingerprint"),
    ("status.candidates.[]", "verdict", "status.candidates[].verdict"),
])
def test_what_is_missing_is_named(schema: dict[str, Any], parent: str, name: str, said: str) -> None:
    del below(schema, parent)["properties"][name]
    assert missing_fields(published(schema)) == (said,)


def test_a_newer_crd_lacks_nothing(schema: dict[str, Any]) -> None:
    below(schema, "spec")["properties"]["later"] = {"type": "string"}
    assert missing_fields(published(schema)) == ()


def test_a_document_without_the_kind_is_no_verdict() -> None:
    with pytest.raises(ValueError, match="publishes no schema of OptimisedModel"):
        missing_fields({"components": {"schemas": {}}})

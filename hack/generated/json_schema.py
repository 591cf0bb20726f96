"""docs/schema: what editors check and complete manifests by, a JSON schema (draft 7) of each kind, from the schema that
the apiserver has. What only CEL says, between fields, is left to the apiserver."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]
# Of what may be a number too, of which a pattern says nothing.
_MATCHES = re.compile(r"(?:type\(self\) == string \? )?self\.matches\(r'([^']*)'\)(?: : .*)?", re.DOTALL)


def render(crd: Mapping[str, Any]) -> str:
    spec = crd["spec"]
    (version,) = spec["versions"]
    root = _node(version["schema"]["openAPIV3Schema"])
    root["properties"] |= {
        "apiVersion": {"const": f"{spec['group']}/{version['name']}"},
        "kind": {"const": spec["names"]["kind"]},
        "metadata": {"type": "object", "description": "Name, namespace, labels and annotations."},
        "status": {"type": "object", "description": "What the operator says; it alone writes this."},
    }
    root["required"] = ["apiVersion", "kind", "metadata", *root["required"]]
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": spec["names"]["kind"]}
    return json.dumps({**head, **root}, indent=1, ensure_ascii=False) + "\n"


def _node(node: Mapping[str, Any]) -> Schema:
    found: Schema = {name: value for name, value in node.items()
                     if not name.startswith("x-kubernetes-") and name not in ("properties", "items", "format")}
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if found.pop(exclusive, False):  # OpenAPI 3.0 says it with a boolean
            found[exclusive] = found.pop(bound)
    for rule in node.get("x-kubernetes-validations", ()):
        if pattern := _MATCHES.fullmatch(rule["rule"]):
            found["pattern"] = pattern[1]
    if "properties" in node:
        found["properties"] = {name: _node(child) for name, child in node["properties"].items()}
        found["additionalProperties"] = bool(node.get("x-kubernetes-preserve-unknown-fields"))
    if "items" in node:
        found["items"] = _node(node["items"])
    if isinstance(node.get("additionalProperties"), Mapping):
        found["additionalProperties"] = _node(node["additionalProperties"])
    return found

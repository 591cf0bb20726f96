"""From pydantic's JSON schema to the structural schema that an apiserver takes.

The rules are those of "Extend the Kubernetes API with CustomResourceDefinitions" (structural schemas): every node has
a type, nothing is referenced, null is no type of its own. Only what our models use is converted; anything else is
refused loudly rather than passed on to be dropped in silence.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from enginewright.core.spec.base import REMEDY_KEY

Schema = dict[str, Any]

_KEPT = ("type", "description", "format", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems",
         "maxItems", "minProperties", "maxProperties", "required")
_KNOWN = {"title", "default", "$defs", "exclusiveMinimum", "exclusiveMaximum", "properties", "items",
            "additionalProperties", "propertyNames", "anyOf", "$ref", REMEDY_KEY, *_KEPT}


def structural(model: type[BaseModel]) -> Schema:
    """The schema of ``model``. Raises ValueError for a construct that has no structural form."""
    root = model.model_json_schema(by_alias=True, mode="validation")
    return _node(root, root.get("$defs", {}))


def _node(node: Schema, definitions: dict[str, Schema]) -> Schema:
    if "$ref" in node:
        target = definitions[node["$ref"].removeprefix("#/$defs/")]
        outside: Schema = {key: node[key] for key in ("description", "default") if key in node}
        return _node({**target, **outside}, definitions)
    if "anyOf" in node:
        return _any_of(node, definitions)
    if "patternProperties" in node:  # a map whose keys have a pattern, which a structural schema cannot say
        (values,) = node["patternProperties"].values()
        rest = {key: value for key, value in node.items() if key not in ("patternProperties", "propertyNames")}
        return _node({**rest, "additionalProperties": values}, definitions)
    if "const" in node:
        rest = {key: value for key, value in node.items() if key != "const"}
        return _node({**rest, "enum": [node["const"]]}, definitions)
    if unknown := {key for key in node if key not in _KNOWN and not key.startswith("x-kubernetes-")}:
        raise ValueError(f"no structural form for {sorted(unknown)} in {node}")
    if "type" not in node:
        raise ValueError(f"every node needs a type: {node}")
    result = {key: node[key] for key in _KEPT if key in node}
    result |= {key: value for key, value in node.items() if key.startswith("x-kubernetes-")}
    if "description" in result:
        result["description"] = " ".join(result["description"].split())
    _bounds(node, result)
    _pattern(node, result)
    _children(node, result, definitions)
    _default(node, result)
    return result


def _any_of(node: Schema, definitions: dict[str, Schema]) -> Schema:
    branches = [branch for branch in node["anyOf"] if branch.get("type") != "null"]
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    if len(branches) == 1:
        return _node({**branches[0], **rest}, definitions)
    if {branch.get("type") for branch in branches} == {"integer", "string"}:
        return _int_or_string(rest, *sorted(branches, key=lambda branch: str(branch["type"])))
    raise ValueError(f"no structural form for this union: {node}")


def _int_or_string(rest: Schema, number: Schema, text: Schema) -> Schema:
    """The bounds of the number and the pattern of the text in one CEL rule, with the remedy as its message: keywords
    would hold for both types."""
    description = {"description": rest["description"]} if "description" in rest else {}
    bounds = [f"self {sign} {number[key]}" for key, sign in (("minimum", ">="), ("maximum", "<=")) if key in number]
    rule = f"type(self) == string ? self.matches(r'{text['pattern']}') : {' && '.join(bounds)}"
    return {**description, "maxLength": text["maxLength"], "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-validations": [{"rule": rule, "message": rest[REMEDY_KEY]}]}


def _bounds(node: Schema, result: Schema) -> None:
    """OpenAPI v3.0, unlike JSON schema, says exclusive with a boolean."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in node:
            result |= {bound: node[exclusive], exclusive: True}
    if node["type"] == "integer":
        result["format"] = "int64"
    elif node["type"] == "number":
        result["format"] = "double"


def _pattern(node: Schema, result: Schema) -> None:
    """A pattern with a remedy becomes a CEL rule: the apiserver then says what to write, not the regular expression."""
    if REMEDY_KEY in node and "pattern" in result:
        rule = f"self.matches(r'{result.pop('pattern')}')"
        result["x-kubernetes-validations"] = [{"rule": rule, "message": node[REMEDY_KEY]}]


def _children(node: Schema, result: Schema, definitions: dict[str, Schema]) -> None:
    if "properties" in node:
        result["properties"] = {name: _node(child, definitions) for name, child in node["properties"].items()}
        for name, child in result["properties"].items():
            # An object that may be left out, but not one that may be absent (``anyOf`` with null). Its default is
            # written out: the apiserver holds it against the object's rules before it fills in what is inside.
            if "$ref" in node["properties"][name] and name not in node.get("required", []) and _defaults(child):
                child["default"] = _defaults(child)
    elif names := node.get("propertyNames", {}).get("enum"):
        result["properties"] = dict.fromkeys(names, _node(node["additionalProperties"], definitions))
        del result["maxProperties"]
    elif isinstance(node.get("additionalProperties"), dict):
        result["additionalProperties"] = _node(node["additionalProperties"], definitions)
    if "items" in node:
        inherited = {REMEDY_KEY: node[REMEDY_KEY]} if REMEDY_KEY in node else {}
        result["items"] = _node({**inherited, **node["items"]}, definitions)


def _default(node: Schema, result: Schema) -> None:
    """Only defaults that say something are written into objects; absent means the same as empty, zero or false."""
    if default := node.get("default"):
        result["default"] = default
        if isinstance(default, str | int | float):  # kubectl explain does not show defaults by itself
            result["description"] += f" Defaults to {str(default).lower() if default is True else default}."


def _defaults(schema: Schema) -> Schema:
    return {name: child["default"] for name, child in schema.get("properties", {}).items() if "default" in child}

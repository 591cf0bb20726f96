"""Does the cluster's CustomResourceDefinition know every field that this operator reads and writes?

The chart upgrades the CRD with the operator unless ``crds.install`` is false. An apiserver drops fields that
its CRD lacks without a word, in spec as in status, so an operator that is newer than the CRD must notice by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from enginewright.core import labels
from enginewright.core.spec.crd import crd


def missing_fields(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths such as ``spec.engine.precision`` that our CRD has and the served one lacks, without those below them.

    ``document`` is the OpenAPI v3 document of the API's group and version, as the apiserver publishes it. Raises
    ``ValueError`` where it does not hold the kind.
    """
    return tuple(_missing(_ours(), _schema(document), ""))


@cache
def _ours() -> Mapping[str, Any]:
    """Made once: that takes 0.06 s of a processor, in which nothing else of the operator goes on."""
    properties = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    # What metadata holds is the apiserver's own.
    return {"properties": {part: properties[part] for part in ("spec", "status")}}


def served(status: Mapping[str, Any], missing: Iterable[str]) -> Mapping[str, Any]:
    """What an apiserver keeps of ``status`` whose CRD lacks the fields ``missing``."""
    kept: Any = status
    for path in missing:
        first, *rest = path.replace("[]", ".[]").replace("*", ".*").split(".")
        if first == "status" and rest:
            kept = _without(kept, rest)
    return dict(kept)


def _without(value: Any, path: list[str]) -> Any:
    """``value`` without the field at ``path``, whose parts are names, ``[]`` for every item of a list and ``*`` for
    every value of a mapping."""
    name, rest = path[0], path[1:]
    if name == "[]":
        return [_without(item, rest) for item in value] if isinstance(value, list) else value
    if not isinstance(value, Mapping):
        return value
    if name == "*":
        return {key: _without(item, rest) for key, item in value.items()}
    if not rest:
        return {key: item for key, item in value.items() if key != name}
    return {key: _without(item, rest) if key == name else item for key, item in value.items()}


def _schema(document: Mapping[str, Any]) -> Mapping[str, Any]:
    kind = {"group": labels.GROUP, "version": labels.VERSION, "kind": labels.KIND}
    for schema in document.get("components", {}).get("schemas", {}).values():
        if kind in schema.get("x-kubernetes-group-version-kind", ()):
            return dict(schema)
    raise ValueError(f"the apiserver publishes no schema of {labels.KIND}")


def _missing(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> Iterator[str]:
    if theirs.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, schema in ours.get("properties", {}).items():
        known = theirs.get("properties", {}).get(name)
        if known is None:
            yield f"{path}{name}"
        else:
            yield from _missing(schema, known, f"{path}{name}.")
    for word, mark in (("items", "[]."), ("additionalProperties", "*.")):
        if isinstance(ours.get(word), Mapping) and isinstance(theirs.get(word), Mapping):
            yield from _missing(ours[word], theirs[word], f"{path.removesuffix('.')}{mark}")

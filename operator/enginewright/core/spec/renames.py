"""Fields that had another name before, and how a spec that still has the old one is read.

The schema keeps old names for one release, so that the apiserver drops nothing of a stored object; it refuses to add
them to an object. ``parse_spec`` reads a spec through :func:`current`, and ``enginewright migrate``
writes what that gives.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from enginewright.core.spec.base import MAX_NAME
from enginewright.core.spec.structural import Schema

JSON = dict[str, Any]
# What a value becomes: the path below the object that holds the old field, and the value. None: nothing is left of it.
Change = Callable[[Any], tuple[str, Any] | None]


@dataclass(frozen=True, kw_only=True)
class Rename:
    """``parent`` is a path below ``spec``, with [] for each item of a list. ``new`` is what the documents call the new
    field, below ``parent``; empty where none took its place. A new field that stands at its ``default`` gives way to
    the old one: the apiserver writes defaults into stored objects. ``schema`` is what the old field still is for the
    apiserver."""

    parent: str
    old: str
    new: str
    change: Change
    schema: Schema
    default: Any = None

    @property
    def old_path(self) -> str:
        return f"spec.{self.parent}.{self.old}"

    @property
    def fate(self) -> str:
        """What became of it: a clause whose subject is the old field."""
        return f"is now spec.{self.parent}.{self.new}" if self.new else "has no meaning any more"


def _moved(parent: str, old: str, new: str, schema: Schema, *, default: Any = None) -> Rename:
    return Rename(parent=parent, old=old, new=new, change=lambda value: (new, value), schema=schema, default=default)


def _first(path: str) -> Change:
    return lambda values: (path, values[0]) if isinstance(values, list) and values else None


def _seconds(most: int) -> Schema:
    return {"type": "integer", "format": "int64", "minimum": 0, "maximum": most}


def _gone(_: Any) -> None:
    return None


def _named(*names: str, **more: Schema) -> Schema:
    texts = {name: {"type": "string", "minLength": 1, "maxLength": MAX_NAME} for name in names}
    return {"type": "object", "required": list(names), "properties": {**texts, **more}}


_POLICIES: Schema = {"type": "array", "maxItems": 8, "items": {
    "type": "object", "required": ["type", "value", "periodSeconds"], "properties": {
        "type": {"type": "string", "enum": ["Pods", "Percent"]},
        "value": {"type": "integer", "format": "int64", "minimum": 1, "maximum": 10_000},
        "periodSeconds": {"type": "integer", "format": "int64", "minimum": 1, "maximum": 1800}}}}


def _key(value: Any) -> tuple[str, Any] | None:
    if not isinstance(value, dict):
        return "configMapKeyRef", value
    kept = {name: item for name, item in value.items() if name != "kind"}
    return "secretKeyRef" if value.get("kind") == "Secret" else "configMapKeyRef", kept


_TEXTS: Schema = {"type": "array", "items": {"type": "string", "maxLength": 63}, "maxItems": 16}

RENAMES: tuple[Rename, ...] = (
    *(Rename(parent=f"{place}.gpu", old="products", new="product", change=_first("product"), schema=_TEXTS)
      for place in ("placement", "placement.classes[]")),
    _moved("accuracy", "tolerance", "maxLoss", {
        "type": "number", "format": "double", "minimum": 0, "exclusiveMinimum": True, "maximum": 1}, default=0.01),
    _moved("rollout", "analysisSeconds", "analysis.seconds", _seconds(86_400), default=60),
    _moved("autoscaling", "scaleUpPolicies", "behavior.scaleUp.policies", _POLICIES),
    _moved("autoscaling", "scaleDownPolicies", "behavior.scaleDown.policies", _POLICIES),
    _moved("autoscaling", "scaleUpStabilizationSeconds", "behavior.scaleUp.stabilizationWindowSeconds", _seconds(3600),
           default=0),
    _moved("autoscaling", "scaleDownStabilizationSeconds", "behavior.scaleDown.stabilizationWindowSeconds",
           _seconds(86_400)),
    *(_moved(place, "credentialsFrom", "secretRef", _named("name")) for place in ("source", "store")),
    Rename(parent="source.signature", old="keyFrom", new="configMapKeyRef or secretKeyRef", change=_key,
           schema=_named("name", "key", kind={"type": "string", "enum": ["ConfigMap", "Secret"]})),
    *(Rename(parent=place, old="mode", new="", change=_gone, schema={"type": "string", "enum": ["auto", "fixed"]})
      for place in ("batching", "instances")),
    Rename(parent="batching", old="adaptive", new="", change=_gone, schema={"type": "boolean"}),
    Rename(parent="serving", old="runtime", new="", change=_gone, schema={"type": "string", "enum": ["triton"]}),
)


def current(raw: Mapping[str, Any]) -> JSON:
    """``raw``, a spec that may be any rubbish, under today's names. What is no old field stays as it is."""
    spec: JSON = copy.deepcopy(dict(raw))
    for rename in RENAMES:
        for parent in _parents(spec, rename.parent.split(".")):
            _move(parent, rename)
    return spec


def old_names(raw: Mapping[str, Any]) -> tuple[Rename, ...]:
    """Those whose old field ``raw`` has."""
    return tuple(one for one in RENAMES if any(one.old in parent for parent in _parents(raw, one.parent.split("."))))


def with_old_names(spec: Schema) -> None:
    """Adds the old fields to ``spec``, the structural schema of a spec."""
    for rename in RENAMES:
        node = spec
        for step in rename.parent.split("."):
            node = node["properties"][step.removesuffix("[]")]
            node = node["items"] if step.endswith("[]") else node
        node["properties"][rename.old] = {
            **copy.deepcopy(rename.schema),
            "description": f"Old: {rename.old_path} {rename.fate}. Read for one release; enginewright migrate "
                           "rewrites it."}


def uses(rename: Rename, root: str) -> str:
    """CEL: whether the spec ``root`` has the old field."""
    return " && ".join(_has(root, [*rename.parent.split("."), rename.old]))


def _has(at: str, steps: list[str]) -> Iterator[str]:
    for number, step in enumerate(steps):
        at = f"{at}.{step.removesuffix('[]')}"
        yield f"has({at})"
        if step.endswith("[]"):
            yield f"{at}.exists(one, {' && '.join(_has('one', steps[number + 1:]))})"
            return


def _parents(at: Any, steps: list[str]) -> Iterator[Any]:
    if not isinstance(at, Mapping):
        return
    if not steps:
        yield at
        return
    below = at.get(steps[0].removesuffix("[]"))
    if not steps[0].endswith("[]"):
        yield from _parents(below, steps[1:])
        return
    for item in below if isinstance(below, list) else ():
        yield from _parents(item, steps[1:])


def _move(parent: JSON, rename: Rename) -> None:
    if rename.old not in parent:
        return
    changed = rename.change(parent.pop(rename.old))
    if changed is None:
        return
    *way, name = changed[0].split(".")
    for step in way:
        if not isinstance(parent.get(step), dict):
            parent[step] = {}
        parent = parent[step]
    if parent.get(name) in (None, rename.default):
        parent[name] = changed[1]

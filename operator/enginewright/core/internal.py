"""What the operator alone remembers in status lies under one field, ``status.internal``.

In a pass it stands where it belongs, beside what people read: ``rollout.readinessLosses``, ``source.specKey``. The
shells call :func:`joined` on what the apiserver gave and :func:`stored` on what is written, so that nothing in between
knows of the field. Older operators wrote all of it in its places: :func:`joined` takes that as well, and the schema
keeps those places for one release, so that the apiserver drops nothing before the operator has moved it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

INTERNAL: Final = "internal"
DESCRIPTION: Final = ("What the operator remembers from one pass to the next. Read nothing from it: it changes without "
                      "notice.")
# Paths in a pass, and below the field the same.
PATHS: Final = (
    "contest", "handover", "pin", "rollout.failedSwitches", "rollout.readinessLosses", "rollout.restarts",
    "rollout.retry", "rollout.rolledBack.retry",
    *(f"{block}.{name}" for block in ("source", "server", "build") for name in ("key", "specKey", "retry")
      if (block, name) != ("build", "key")), "server.digests",
)
# What no release has written outside the field: a CRD of before drops it there.
NEVER_OUTSIDE: Final = frozenset({"rollout.failedSwitches", "rollout.retry"})
# What had another name when it had its own place.
OLD_NAMES: Final = {"rollout.readinessLosses": "rollout.falls"}
JSON = dict[str, Any]


def joined(raw: object) -> JSON:
    """The status that an apiserver gave, any rubbish included, with everything in its place."""
    if not isinstance(raw, Mapping):
        return {}
    found = _opened({name: value for name, value in raw.items() if name != INTERNAL})
    for path, old in OLD_NAMES.items():
        value = _taken(found, old.split("."))
        if value is not None:
            _put(found, path.split("."), value)
    remembered = raw.get(INTERNAL)
    return _merged(found, remembered) if isinstance(remembered, Mapping) else found


def block(raw: object, name: str) -> JSON:
    """One block of what :func:`joined` gives, without the cost of all others."""
    remembered = raw.get(INTERNAL) if isinstance(raw, Mapping) else None
    inside = {name: remembered[name]} if isinstance(remembered, Mapping) and name in remembered else {}
    found = joined({name: raw.get(name), INTERNAL: inside}).get(name) if isinstance(raw, Mapping) else None
    return found if isinstance(found, dict) else {}


def stored(status: Mapping[str, Any], *, old_places: bool = False) -> JSON:
    """``status`` of a pass as it is written; with ``old_places`` as older operators wrote it, for a cluster whose CRD
    lacks the field; without what they did not know."""
    rest = _opened(status)
    if old_places:
        for path in NEVER_OUTSIDE:
            _taken(rest, path.split("."))
        for path, old in OLD_NAMES.items():
            value = _taken(rest, path.split("."))
            if value is not None:
                _put(rest, old.split("."), value)
        return rest
    inside: JSON = {}
    for path in PATHS:
        value = _taken(rest, path.split("."))
        if value is not None:
            _put(inside, path.split("."), value)
    return {**rest, INTERNAL: inside} if inside else rest


def has_old_places(raw: object) -> bool:
    """Whether an older operator wrote this status: then the operator writes it once more."""
    return isinstance(raw, Mapping) and any(
        _at(raw, OLD_NAMES.get(path, path).split(".")) is not None for path in PATHS)


def with_internal(schema: JSON, *, old_places: bool) -> None:
    """Moves the fields in ``schema``, the structural schema of a status in a pass; ``old_places`` keeps them where they
    were as well."""
    inside: JSON = {"type": "object", "description": DESCRIPTION, "properties": {}}
    for path in PATHS:
        *way, name = path.split(".")
        here, there = schema, inside
        for step in way:
            here = here["properties"][step]
            there = there["properties"].setdefault(step, {
                "type": "object", "description": here["description"], "properties": {}})
        there["properties"][name] = node = here["properties"].pop(name)
        here["required"] = [one for one in here.get("required", ()) if one != name]
        if not here["required"]:
            del here["required"]
        if old_places and path not in NEVER_OUTSIDE:
            old = OLD_NAMES.get(path, path)
            here["properties"][old.rpartition(".")[2]] = {
                **copy.deepcopy(node), "description": f"Old: status.{old} is now status.{INTERNAL}.{path}. The "
                                                      "operator moves it when it next looks at the object."}
    schema["properties"][INTERNAL] = inside


def _opened(status: Mapping[str, Any]) -> JSON:
    """``status``, in which what :data:`PATHS` lead through may be changed. The rest is shared and stays."""
    return {name: {key: dict(one) if isinstance(one, dict) else one for key, one in value.items()}
            if isinstance(value, dict) else value for name, value in status.items()}


def _at(value: Any, path: list[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _taken(parent: Any, path: list[str]) -> Any:
    """What was at ``path``, which goes; and with it what is left empty around it."""
    name, *rest = path
    if not isinstance(parent, dict) or name not in parent:
        return None
    if not rest:
        return parent.pop(name)
    value = _taken(parent[name], rest)
    if parent[name] == {} and value is not None:
        del parent[name]
    return value


def _put(parent: JSON, path: list[str], value: Any) -> None:
    *way, name = path
    for step in way:
        parent = parent.setdefault(step, {})
    parent[name] = value


def _merged(below: JSON, above: Any) -> JSON:
    for name, value in above.items():
        known = below.get(name)
        below[name] = _merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return below

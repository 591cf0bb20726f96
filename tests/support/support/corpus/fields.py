"""Wrong values, and odd but right ones, of every field, from the schema that the apiserver has."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from support.corpus.case import Case, Path, Raw, at, changed, dotted, without
from support.corpus.ends import by_rule
from support.corpus.wholes import WHOLES
from support.schemas import object_schema

Schema = Mapping[str, Any]
_NO_QUANTITIES: tuple[Any, ...] = (1.5, True, [], "a b", -1)
UNKNOWN = "unknown"
# Texts that few patterns take.
_TEXTS = ("a b", "-", "é", "A/../b?c", "x\ny", "http://", "{}")
_MATCHES = re.compile(r"(?:type\(self\) == string \? )?self\.matches\(r'([^']*)'\)(?: : .*)?", re.DOTALL)


def nodes() -> Iterator[tuple[Path, Schema, Raw]]:
    """Every field of ``spec`` with its schema and a good spec that has it. A list is gone through by its first item, a
    map by its first key."""
    root = object_schema(old_names=False)["properties"]["spec"]
    yield from _below((), root)


def _below(path: Path, schema: Schema) -> Iterator[tuple[Path, Schema, Raw]]:
    whole = next((one for one in WHOLES if _has(one, path)), None)
    assert whole is not None, f"no whole spec has {dotted(path)}"
    yield path, schema, whole
    for name, child in schema.get("properties", {}).items():
        yield from _below((*path, name), child)
    if "items" in schema:
        yield from _below((*path, 0), schema["items"])
    if "additionalProperties" in schema:
        yield from _below((*path, next(iter(at(whole, path)))), schema["additionalProperties"])


def _has(spec: Raw, path: Path) -> bool:
    try:
        at(spec, path)
    except (KeyError, IndexError):
        return False
    return True


def pattern(schema: Schema) -> str:
    """Empty where there is none. A pattern with a remedy is a CEL rule."""
    for rule in schema.get("x-kubernetes-validations", ()):
        if found := _MATCHES.fullmatch(rule["rule"]):
            return found[1]
    return str(schema.get("pattern", ""))


def bad_fields() -> Iterator[Case]:
    """Each with one wrong value, in a spec that is good without it."""
    for path, schema, whole in nodes():
        for what, value in _wrong(schema, at(whole, path)) if path else ():
            yield Case(field=dotted(path), what=what, spec=changed(whole, path, value))
        yield from _wrong_objects(path, schema, whole)


def _wrong_objects(path: Path, schema: Schema, whole: Raw) -> Iterator[Case]:
    if "properties" in schema:
        yield Case(field=dotted((*path, "colour")), what=UNKNOWN, spec=changed(whole, (*path, "colour"), "red"))
    for name in schema.get("required", ()):
        yield Case(field=dotted((*path, name)), what="missing", spec=without(whole, (*path, name)))
        yield Case(field=dotted((*path, name)), what="null", spec=changed(whole, (*path, name), None))
    if "items" in schema:
        yield Case(field=dotted((*path, 0)), what="null", spec=changed(whole, (*path, 0), None))


def _written(value: Any) -> str:
    """As users write it."""
    return json.dumps(value, ensure_ascii=False)


def _wrong(schema: Schema, good: Any) -> Iterator[tuple[str, Any]]:
    if schema.get("x-kubernetes-int-or-string"):
        yield from ((_written(value), value) for value in _NO_QUANTITIES)
        return
    kind = schema["type"]
    yield from ((_written(value), value) for value in _other_types(kind))
    yield from _OUTSIDE[kind](schema, good)


def _other_types(kind: str) -> tuple[Any, ...]:
    return {"string": (7, ["a"]), "integer": ("7", 1.5, True), "number": ("0.5", True), "boolean": ("true", 1),
            "array": ("a", {"a": 1}), "object": ("a", [])}[kind]


def _texts(schema: Schema, good: str) -> Iterator[tuple[str, Any]]:
    if options := schema.get("enum"):
        wrong = ("nonsense", str(options[-1]).swapcase(), f"{options[-1]} ", "")
        yield from ((_written(value), value) for value in wrong if value not in options)
        return
    if most := schema.get("maxLength"):
        yield f"{most + 1} characters", (good or "a") + "a" * (most + 1 - len(good or "a"))
    if schema.get("minLength"):
        yield "empty", ""
    form = pattern(schema)
    refused = [text for text in _TEXTS if form and not re.search(form, text)]
    yield from ((_written(text), text) for text in refused[:4])


def _numbers(schema: Schema, _: Any) -> Iterator[tuple[str, Any]]:
    step = 1 if schema["type"] == "integer" else 0.001
    if "minimum" in schema:
        low = schema["minimum"]
        yield "below the least", low if schema.get("exclusiveMinimum") else low - step
        yield "negative", -5
    if "maximum" in schema:
        high = schema["maximum"]
        yield "above the most", high if schema.get("exclusiveMaximum") else high + step
        yield "absurd", 10**15


def _lists(schema: Schema, good: list[Any]) -> Iterator[tuple[str, Any]]:
    if schema.get("minItems"):
        yield "empty", []
    if most := schema.get("maxItems"):
        yield f"{most + 1} items", many(good[0], most + 1)


def many(item: Any, count: int) -> list[Any]:
    """Of different names, where items have one; of rising numbers where they have weights."""
    found = [copy.deepcopy(item) for _ in range(count)]
    for number, one in enumerate(found):
        if isinstance(one, dict) and "name" in one:
            one["name"] = f"n{number}"
        if isinstance(one, dict) and "weight" in one:
            one["weight"] = number + 1
    return found


def _maps(schema: Schema, good: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if most := schema.get("maxProperties"):
        value = next(iter(good.values()))
        yield f"{most + 1} entries", {f"k{number}": value for number in range(most + 1)}


def _flags(_: Schema, __: Any) -> Iterator[tuple[str, Any]]:
    yield "'yes'", "yes"


_OUTSIDE: Mapping[str, Any] = {"string": _texts, "integer": _numbers, "number": _numbers, "array": _lists,
                               "object": _maps, "boolean": _flags}


def odd_fields() -> Iterator[Case]:
    """Each with one value at an end of what its field takes, in a spec that is good."""
    return (case for case in _at_ends() if not by_rule(case.field, case.what))


def bad_ends() -> Iterator[Case]:
    """Those that the field takes and a rule refuses."""
    for case in _at_ends():
        if rule := by_rule(case.field, case.what):
            yield replace(case, apiserver=rule == "apiserver")


def _at_ends() -> Iterator[Case]:
    for path, schema, whole in nodes():
        for what, value in _edges(schema, at(whole, path)) if path else ():
            yield Case(field=dotted(path), what=what, spec=changed(whole, path, value))
        for name in schema.get("properties", ()):
            if name not in schema.get("required", ()) and _has(whole, (*path, name)):
                yield Case(field=dotted((*path, name)), what="null", spec=changed(whole, (*path, name), None))


def _edges(schema: Schema, good: Any) -> Iterator[tuple[str, Any]]:
    if schema.get("x-kubernetes-int-or-string"):
        good_text = "1" if re.search(pattern(schema), "1") else "1..1"
        yield from ((_written(value), value) for value in (good_text, 1))
        return
    yield from _INSIDE[schema["type"]](schema, good)
    if "default" in schema:
        yield "its default", schema["default"]


def _good_texts(schema: Schema, good: str) -> Iterator[tuple[str, Any]]:
    yield from ((_written(option), option) for option in schema.get("enum", ()))
    if not schema.get("enum") and (most := schema.get("maxLength")):
        longest = good + "a" * (most - len(good))
        if re.search(pattern(schema), longest):
            yield f"{most} characters", longest
    if not schema.get("enum") and not schema.get("minLength") and re.search(pattern(schema), ""):
        yield "empty", ""


def _good_numbers(schema: Schema, _: Any) -> Iterator[tuple[str, Any]]:
    if "minimum" in schema:
        yield "the least", 1e-9 if schema.get("exclusiveMinimum") else schema["minimum"]
    if "maximum" in schema:
        yield "the most", schema["maximum"] - (1e-9 if schema.get("exclusiveMaximum") else 0)
    if schema["type"] == "number":
        low, high = schema.get("minimum", 0), schema.get("maximum", 100)
        yield "in between", (low + high) / 2


def _good_lists(schema: Schema, good: list[Any]) -> Iterator[tuple[str, Any]]:
    if not schema.get("minItems"):
        yield "empty", []
    if most := schema.get("maxItems"):
        yield f"{most} items", many(good[0], most)


def _good_maps(schema: Schema, good: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if not schema.get("required"):
        yield "empty", {}
    if most := schema.get("maxProperties"):
        value = next(iter(good.values()))
        yield f"{most} entries", {f"k{number}": value for number in range(most)}


def _good_flags(_: Schema, __: Any) -> Iterator[tuple[str, Any]]:
    yield from (("true", True), ("false", False))


_INSIDE: Mapping[str, Any] = {"string": _good_texts, "integer": _good_numbers, "number": _good_numbers,
                              "array": _good_lists, "object": _good_maps, "boolean": _good_flags}

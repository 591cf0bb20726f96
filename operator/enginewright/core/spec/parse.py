"""From the raw ``spec`` of an object to :class:`Spec`, or to what is wrong with it."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from enginewright.core.problems import Problem
from enginewright.core.spec.locate import KEY, Location, fields_of, key_remedy, model_at, real_path, written_remedy
from enginewright.core.spec.model import Spec
from enginewright.core.spec.renames import current

ParsedSpec = Spec | tuple[Problem, ...]

MAX_SHOWN = 120


def parse_spec(raw: Mapping[str, Any]) -> ParsedSpec:
    """The typed spec, or every problem of shape, type, bound and unknown field. Never raises on any input.

    Rules between fields are :func:`enginewright.core.spec.validate.validate`'s: call it on the result.
    """
    try:
        return _parsed(json.dumps(dict(raw), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        return (Problem(field="spec", value=type(raw).__name__, message=f"not JSON: {error}",
                        remedy="write plain values: objects, lists, texts, finite numbers, booleans"),)


@lru_cache(maxsize=256)  # a pass reads its spec several times, and most passes find what the one before found
def _parsed(text: str) -> ParsedSpec:
    """From JSON: strict there means what the apiserver means by types, and lists are not tuples' enemies."""
    try:
        return Spec.model_validate_json(json.dumps(_given(current(json.loads(text)))), strict=True, by_alias=True,
                                        by_name=False)
    except ValidationError as error:
        return _problems(error)


def _given(value: Any, path: tuple[str, ...] = ()) -> Any:
    """``value`` without fields that are null, as the apiserver stores it. Of a pod's template it drops none."""
    if path[-2:] == ("podTemplate", "spec"):
        return value
    if isinstance(value, dict):
        return {name: _given(item, (*path, str(name))) for name, item in value.items() if item is not None}
    return [_given(item, path) for item in value] if isinstance(value, list) else value


def show(value: object) -> str:
    """``value`` as JSON, cut to fit a condition."""
    text = json.dumps(value, ensure_ascii=False, default=_as_given)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def _as_given(value: object) -> object:
    """A part of a spec by what the user wrote of it."""
    return value.model_dump(mode="json", by_alias=True, exclude_unset=True) if isinstance(value, BaseModel) else str(
        value)


def _problems(error: ValidationError) -> tuple[Problem, ...]:
    by_field: dict[str, Problem] = {}
    for detail in error.errors(include_url=False):
        problem = _problem(detail)
        if problem.field in by_field:  # one for each branch of a union, such as a number or a text
            problem = dataclasses.replace(problem, message=_MALFORMED)
        by_field[problem.field] = problem
    for field in _short_without(error, by_field):
        del by_field[field]
    return tuple(by_field.values())


def _short_without(error: ValidationError, found: Mapping[str, Problem]) -> Iterator[str]:
    """Lists that pydantic finds too short because it has not counted items that are wrong themselves."""
    for detail in error.errors(include_url=False):
        field = _dotted(tuple(real_path(Spec, detail["loc"])))
        if detail["type"] == "too_short" and any(other.startswith(f"{field}[") for other in found):
            yield field


def _problem(detail: ErrorDetails) -> Problem:
    path = tuple(real_path(Spec, detail["loc"]))
    kind = detail["type"]
    value = "nothing" if kind == "missing" else show(detail["input"])
    message = _MESSAGES.get(kind) or _beyond(detail) or _lower(detail["msg"])
    return Problem(field=_dotted(path), value=value, message=message, remedy=_remedy(path, detail))


_MALFORMED = "is not a valid value"
_MESSAGES = {"missing": "is required", "extra_forbidden": "is not a field",
             "literal_error": "is not a valid value", "string_pattern_mismatch": _MALFORMED,
             "string_type": "is not a text", "int_type": "is not a whole number",
             "int_from_float": "is not a whole number", "float_type": "is not a number",
             "bool_type": "is not true or false", "tuple_type": "is not a list", "dict_type": "is not an object",
             "mapping_type": "is not an object", "model_type": "is not an object"}
_BEYOND = {"ge": "is less than", "gt": "is not greater than", "le": "is more than", "lt": "is not less than",
           "min_length": "has fewer than", "max_length": "has more than"}


def _beyond(detail: ErrorDetails) -> str:
    """Empty where no limit was passed."""
    context = detail.get("ctx", {})
    if context.get("min_length") == 1:
        return "is empty"
    return next((f"{words} {_limit(key, detail)}" for key, words in _BEYOND.items() if key in context), "")


def _limit(key: str, detail: ErrorDetails) -> str:
    """With what is counted, where it limits a length."""
    limit, counted = detail["ctx"][key], detail["ctx"].get("field_type")
    if not key.endswith("length"):
        return _plain(limit)
    one, several = {"Tuple": ("item", "items"), None: ("character", "characters")}.get(counted, ("entry", "entries"))
    return f"{limit} {one if limit == 1 else several}"


def _plain(number: float) -> str:
    """All of its digits, and no point behind a whole number."""
    return str(int(number)) if number == int(number) else str(number)


def _remedy(path: Location, detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return _remedy_for_unknown(path)
    of_key = detail["loc"][-1:] == (KEY,) and path[-1:] != (KEY,)
    if written := (key_remedy(Spec, path[:-1]) if of_key else "") or written_remedy(Spec, path):
        return written
    if kind == "literal_error":
        return f"write one of {context['expected']}"
    bounds = [f"{words} {_plain(context[key])}" for key, words in _BOUNDS.items() if key in context]
    if bounds:
        return f"write a number {' and '.join(bounds)}"
    lengths = [f"{words} {_limit(key, detail)}" for key, words in _LENGTHS.items() if key in context]
    if lengths:
        return f"write {' and '.join(lengths)}"
    if kind == "model_type" and (model := model_at(Spec, path)) and "uri" in fields_of(model):
        return "write {uri: pvc://…}"
    return _BY_TYPE.get(kind.split("_")[0], "see kubectl explain om." + _dotted(_names(path)))


_BOUNDS = {"ge": "of at least", "gt": "greater than", "le": "of at most", "lt": "less than"}
_LENGTHS = {"min_length": "at least", "max_length": "at most"}
_BY_TYPE = {"missing": "add it", "int": "write a whole number", "float": "write a number", "string": "write a text",
            "bool": "write true or false", "tuple": "write a list", "dict": "write an object",
            "model": "write an object"}


def _remedy_for_unknown(path: Location) -> str:
    model = model_at(Spec, path[:-1])
    known = sorted(fields_of(model)) if model else []
    near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.7)
    return f"did you mean {near[0]}?" if near else f"remove it; known fields are {', '.join(known)}"


def _dotted(path: Location) -> str:
    text = "spec"
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text


def _names(path: Location) -> Location:
    return [step for step in path if isinstance(step, str)]


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]

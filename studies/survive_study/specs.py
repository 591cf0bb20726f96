"""Changes of a spec: one value of one field, from the schema of the CRD."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from enginewright.core.spec import Spec, parse_spec, validate
from support.corpus import Case, bad_ends, odd_fields

Raw = dict[str, Any]
# The time that a rollout takes is the study's: no replica has a network to be analysed by.
BASIS: Raw = {"source": {"uri": "pvc://models/minilm"}, "placement": {"accelerator": "cpu"},
              "rollout": {"analysis": {"seconds": 0}}}
# What would have the study wait for minutes, or for what this control plane does not have.
LEFT_OUT = ("spec.rollout.analysis.seconds", "spec.rollout.steps", "spec.rollout.gateway", "spec.placement.classes",
            "spec.rollout.scaleDownDelaySeconds", "spec.source.uri")
# Of replicas that a spec asks for: Kubernetes makes some twenty pods a second, of all sequences together.
MOST_REPLICAS = 20


def changes() -> list[Case]:
    return [replace(case, spec=_few(case.spec)) for case in odd_fields() if not case.field.startswith(LEFT_OUT)]


def _few(value: Any, key: str = "") -> Any:
    """``value``, which is what ``key`` says, with few replicas."""
    if isinstance(value, dict):
        return {name: _few(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_few(one) for one in value]
    return min(value, MOST_REPLICAS) if key in ("replicas", "minReplicas") and isinstance(value, int) else value


def refused() -> list[Case]:
    """Those that the apiserver takes and the operator refuses."""
    return [case for case in bad_ends() if not case.apiserver and not case.field.startswith(LEFT_OUT)]


def parts(field: str) -> list[str | int]:
    """Of ``spec.a[0].b``, without ``spec``. A key of a map may hold dots, and is left to its map."""
    found: list[str | int] = []
    for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", field.removeprefix("spec.")):
        found.append(int(index) if index else name)
    return found


def changed(spec: Raw, case: Case) -> Raw | None:
    """``spec`` with what ``case`` has at its field; None where it does not fit into it. What is missing on the way
    there is taken from the case."""
    result: Raw = json.loads(json.dumps(spec))
    at: Any = result
    there: Any = case.spec
    path = parts(case.field)
    for number, step in enumerate(path):
        if not _has(there, step):
            return None  # a key with dots in it
        if number == len(path) - 1 or not _has(at, step):
            _put(at, step, copy.deepcopy(there[step]))
            break
        at, there = at[step], there[step]
    return result if good(result) else None


def good(spec: Raw) -> bool:
    parsed = parse_spec(spec)
    return isinstance(parsed, Spec) and validate(parsed) == ()


def _has(at: Any, step: str | int) -> bool:
    if isinstance(step, int):
        return isinstance(at, list) and len(at) > step
    return isinstance(at, dict) and step in at


def _put(at: Any, step: str | int, value: Any) -> None:
    if isinstance(step, int):
        at.append(value) if len(at) <= step else at.__setitem__(step, value)
    else:
        at[step] = value


def picked(cases: Sequence[Case], pick: float) -> Sequence[Case]:
    """All of them, begun at the one that ``pick`` (0 to 1) says."""
    first = int(pick * len(cases))
    return [*cases[first:], *cases[:first]]

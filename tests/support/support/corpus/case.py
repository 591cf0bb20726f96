"""One spec of the corpus."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Raw = dict[str, Any]
Path = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """``field`` is the one that was changed, ``what`` how, in words. ``apiserver`` says whether the apiserver refuses a
    bad one; what it takes, the operator refuses."""

    field: str
    what: str
    spec: Raw
    apiserver: bool = True

    @property
    def name(self) -> str:
        return f"{self.field}: {self.what}"


def dotted(path: Sequence[str | int]) -> str:
    return "spec" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def at(spec: Any, path: Path) -> Any:
    """Raises KeyError or IndexError where there is nothing."""
    for step in path:
        spec = spec[step]
    return spec


def copied(spec: Raw) -> Raw:
    """By way of JSON: what two fields share is two things in the copy."""
    found: Raw = json.loads(json.dumps(spec))
    return found


def changed(spec: Raw, path: Path, value: Any) -> Raw:
    """A copy of ``spec`` with ``value`` at ``path``."""
    result = copied(spec)
    at(result, path[:-1])[path[-1]] = copy.deepcopy(value)
    return result


def without(spec: Raw, path: Path) -> Raw:
    result = copied(spec)
    del at(result, path[:-1])[path[-1]]
    return result

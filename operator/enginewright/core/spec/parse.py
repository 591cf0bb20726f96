"""From the raw ``spec`` of an object to :class:`Spec`, or to what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginewright.core.problems import Problem
from enginewright.core.spec.model import Spec

ParsedSpec = Spec | tuple[Problem, ...]


def parse_spec(raw: Mapping[str, Any]) -> ParsedSpec:
    """The typed spec, or every problem of shape, type, bound and unknown field. Never raises on any input.

    Rules between fields are :func:`enginewright.core.spec.validate.validate`'s: call it on the result.
    """
    raise NotImplementedError

"""Rules between fields: those that CEL says too (the object may be older than the rule), and those it cannot say."""

from __future__ import annotations

from enginewright.core.problems import Problem
from enginewright.core.spec.model import Spec


def validate(spec: Spec) -> tuple[Problem, ...]:
    """Every rule between fields that ``spec`` breaks; empty when it is good."""
    raise NotImplementedError


def validate_name(name: str) -> Problem | None:
    """A DNS-1035 label of at most 40 characters, so that the names of children fit in 63."""
    raise NotImplementedError

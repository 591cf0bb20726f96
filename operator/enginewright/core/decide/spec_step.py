"""First step: is what the user wrote something that can be done at all?"""

from __future__ import annotations

from enginewright.core.config import OperatorConfig
from enginewright.core.observed import ObjectView
from enginewright.core.placement import place
from enginewright.core.problems import Problem
from enginewright.core.spec import Spec
from enginewright.core.spec.fleet import classes_of, fleet_problems
from enginewright.core.spec.parse import parse_spec
from enginewright.core.spec.validate import validate, validate_member_name, validate_name


def read_spec(obj: ObjectView, config: OperatorConfig) -> Spec | tuple[Problem, ...]:
    """The spec, or all that is wrong with it: name, shape, rules between fields, hardware that does not exist."""
    name = validate_name(obj.name)
    named = (name,) if name else ()
    spec = parse_spec(obj.spec)
    if not isinstance(spec, Spec):
        return named + spec
    if problems := named + validate(spec):
        return problems
    return _unplaceable(obj.name, spec, config) or spec


def _unplaceable(name: str, spec: Spec, config: OperatorConfig) -> tuple[Problem, ...]:
    """The source's size is not known yet, which only makes an automatic MIG profile provisional."""
    if spec.placement.classes:
        long = (validate_member_name(name, entry) for entry in classes_of(spec))
        return tuple(filter(None, long)) or fleet_problems(spec, lambda one: _unplaceable("", one, config))
    placement = place(spec, 0, config)
    return (placement,) if isinstance(placement, Problem) else ()

"""Each condition is set in one module of an object's pass, and in one of a fleet's: who asks why it says what it says
has one place to look."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from enginewright.core.reasons import Condition

CORE = Path(__file__).parents[3] / "operator/enginewright/core"
MAKERS = {"good", "bad", "unknown"}


def set_in(package: str) -> dict[str, set[str]]:
    """Modules by the condition that they set."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted((CORE / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and (kind := _condition(node)):
                found[kind].add(str(path.relative_to(CORE)))
    return found


def _condition(call: ast.Call) -> str:
    """The condition that a call makes a verdict of: ``bad(Condition.X, …)``, ``finding.about(Condition.X)``,
    ``Verdict(type=Condition.X, …)``."""
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    told = call.args[:1] if name in {*MAKERS, "about"} else [word.value for word in call.keywords if word.arg == "type"]
    kinds = [one.attr for one in told if isinstance(one, ast.Attribute) and ast.unparse(one.value) == "Condition"]
    return kinds[0] if kinds else ""


@pytest.mark.parametrize("kind", Condition)
def test_a_condition_of_an_object_is_set_in_one_module(kind: Condition) -> None:
    assert len(set_in("decide")[kind.name]) == 1


@pytest.mark.parametrize("kind", Condition)
def test_a_condition_of_a_fleet_is_set_in_its_report(kind: Condition) -> None:
    """Most are its classes' own words, put together."""
    assert set_in("fleet")[kind.name] <= {"fleet/report.py"}


def test_conditions_are_found_by_their_calls() -> None:
    assert set_in("fleet")["READY"] == {"fleet/report.py"}
    assert set_in("decide")["ROLLOUT_COMPLETE"] == {"decide/conditions/rollout.py"}

"""docs/reference/tracing.md names every span and attribute, and no other."""

from __future__ import annotations

import inspect
import re
import typing
from pathlib import Path

import yaml

from enginewright import tracing
from enginewright.act import execute
from enginewright.core import labels
from enginewright.core.plan import Action
from enginewright_builder import tracing as builder
from enginewright_builder.contract import BUILD_STEPS

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "reference" / "tracing.md").read_text()
OPERATOR, BUILDER = PAGE.split("\n## Spans of builds\n")


def first_cells(text: str, header: str) -> set[str]:
    """What stands in backticks in the first cells of the table with that header."""
    table = re.search(rf"^\| {header} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table
    return {name for row in table[1].splitlines() for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])}


def test_spans_of_the_operator() -> None:
    named = first_cells(OPERATOR, "Span")
    actions = {name for name in named if " " in name}
    assert named - actions == {str(name) for name in tracing.Span}
    verbs = {kind.__name__.lower() for kind in typing.get_args(Action)}
    said = inspect.getsource(execute.describe)
    known = set(re.findall(r'return "([a-z]+)"', said)) | (verbs & {"apply", "create", "replace"})
    assert len(known) == len(verbs), "each action has a verb"
    listed = re.search(r"its verb \(([^)]*)\)", OPERATOR)
    assert listed
    assert set(re.findall(r"`([a-z]+)`", listed[1])) == known
    assert {name.split()[0] for name in actions} <= known


def test_attributes_of_the_operator() -> None:
    assert first_cells(OPERATOR, "Attribute") == {str(name) for name in tracing.Attribute}


def test_spans_of_builds() -> None:
    assert first_cells(BUILDER, "Span") == {"resolve Job", "build Job"} | (BUILD_STEPS.keys() - {"done"})


def test_attributes_of_builds() -> None:
    assert first_cells(BUILDER, "Attribute") == {builder.FINGERPRINT, builder.CACHE_HIT, builder.REASON}


def test_services() -> None:
    assert f"`{tracing.SERVICE}`" in OPERATOR
    assert f"`{builder.SERVICE}`" in BUILDER


def test_the_last_spans_are_waited_for_as_long_as_it_says() -> None:
    assert tracing.LAST_SECONDS == builder.LAST_SECONDS == 5.0
    assert "waits five seconds at most" in OPERATOR


def test_the_policy_selects_the_pods_of_builds() -> None:
    (text,) = re.findall(r"```yaml\n(apiVersion: networking.*?)```", BUILDER, re.DOTALL)
    (expression,) = yaml.safe_load(text)["spec"]["podSelector"]["matchExpressions"]
    assert expression["key"] == labels.STEP
    assert set(expression["values"]) == {labels.COMPONENT_RESOLVE, labels.COMPONENT_BUILD}

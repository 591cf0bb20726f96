"""Rules between fields, in Python; ``BROKEN`` also says which the apiserver knows (the integration test asks it)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from enginewright.core.problems import summarise
from enginewright.core.spec import Spec, parse_spec, validate, validate_name
from support.broken_specs import BROKEN, Broken
from support.specs import Raw, object_names, valid_specs


def parsed(raw: Raw) -> Spec:
    spec = parse_spec(raw)
    assert isinstance(spec, Spec), summarise(spec)
    return spec


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_a_broken_rule_is_told_with_field_value_and_remedy(broken: Broken) -> None:
    (problem,) = validate(parsed(broken.spec))
    assert problem.field == broken.field
    assert broken.value in problem.value
    assert broken.remedy in problem.remedy
    assert problem.message


@given(valid_specs())
@settings(max_examples=40, deadline=None)
def test_a_good_spec_breaks_no_rule(raw: Raw) -> None:
    assert validate(parsed(raw)) == ()


def test_all_broken_rules_are_told_at_once() -> None:
    spec = parsed({"source": {"uri": "pvc://m/a"}, "placement": {"accelerator": "cpu", "gpu": {}},
                   "engine": {"backend": "tensorrt", "precision": "fp8"}})
    assert {problem.field for problem in validate(spec)} == {
        "spec.engine.backend", "spec.engine.precision", "spec.placement.gpu"}


@given(object_names)
@settings(max_examples=50, deadline=None)
def test_good_names(name: str) -> None:
    assert validate_name(name) is None


@pytest.mark.parametrize("name", ["", "a" * 41, "1a", "-a", "a-", "a.b", "A", "a_b", "a\n"])
def test_names_that_children_cannot_be_made_from(name: str) -> None:
    problem = validate_name(name)
    assert problem is not None
    assert problem.field == "metadata.name"
    assert "at most 40" in problem.remedy


@pytest.mark.parametrize(("start", "end"), [
    ("0 8 * MAR-APR THU,FRI", "0 18 * * *"),  # names that begin with R or H do not, these only have them
    ("0 0 * * 6,0", "0 0 * * MON"),
    ("0 0 * * MON#1", "0 0 * * MON#2"),
    ("0 0 L * *", "0 0 1 * *"),
    ("*/30 8 * * *", "15-59/30 8 * * *"),
])
def test_a_schedule_may_be_written_in_any_way_of_cron(start: str, end: str) -> None:
    schedule = {"name": "any", "start": start, "end": end, "minReplicas": 2}
    raw = {"source": {"uri": "pvc://models/minilm"}, "autoscaling": {"maxReplicas": 4, "schedules": [schedule]}}
    assert validate(parsed(raw)) == ()

"""The corpus of bad specs and of odd ones that are right, before the parser and its rules. The same specs are held
against a real apiserver in ``tests/integration/test_corpus.py``."""

from __future__ import annotations

import re

import pytest

from enginewright.core.problems import Problem
from enginewright.core.spec import Spec, parse_spec, validate
from support.broken_specs import BROKEN
from support.corpus import ODD, WHOLES, Case, Raw, bad_ends, bad_fields, odd_fields


def problems(raw: Raw) -> tuple[Problem, ...]:
    spec = parse_spec(raw)
    return validate(spec) if isinstance(spec, Spec) else spec


Told = list[tuple[Case, tuple[Problem, ...]]]


@pytest.fixture(scope="module")
def wrong_fields() -> Told:
    return [(case, problems(case.spec)) for case in bad_fields()]


@pytest.fixture(scope="module")
def wrong_ends() -> Told:
    return [(case, problems(case.spec)) for case in bad_ends()]


def incomplete(problem: Problem) -> bool:
    """Whether it leaves out what a user needs: the value, what is wrong with it, or what to write instead."""
    return not (problem.value and problem.message and problem.remedy) or "kubectl explain" in problem.remedy


@pytest.mark.parametrize("whole", WHOLES, ids=["gpu", "slice", "prometheus", "fleet", "language", "batch",
                                                 "sequences", "python"])
def test_what_the_corpus_is_made_from_is_good(whole: Raw) -> None:
    assert problems(whole) == ()


def test_one_wrong_field_is_the_only_one_that_is_told(wrong_fields: Told) -> None:
    assert len(wrong_fields) >= 500
    fields = [(case, [problem.field for problem in told]) for case, told in wrong_fields]
    assert {case.name: found for case, found in fields if found != [case.field]} == {}


def test_each_problem_has_a_value_and_a_remedy(wrong_fields: Told, wrong_ends: Told) -> None:
    assert [str(problem) for _, told in (*wrong_fields, *wrong_ends) for problem in told if incomplete(problem)] == []


PYTHON = re.compile(r"\b(None|True|False)\b|Spec\(|\('")


def test_each_value_stands_as_users_write_it(wrong_fields: Told, wrong_ends: Told) -> None:
    told = [problem for _, found in (*wrong_fields, *wrong_ends) for problem in found]
    told += [problem for broken in BROKEN for problem in problems(broken.spec)]
    assert [str(problem) for problem in told if PYTHON.search(problem.value)] == []


def test_a_value_that_its_field_takes_and_a_rule_refuses(wrong_ends: Told) -> None:
    assert [case.name for case, told in wrong_ends if not told] == []


def test_odd_but_right_specs_pass() -> None:
    cases: list[Case] = [*odd_fields(), *ODD]
    assert len(cases) >= 500
    found = {case.name: str(told[0]) for case in cases if (told := problems(case.spec))}
    assert found == {}


def test_no_two_of_the_corpus_are_the_same() -> None:
    for cases in ([*bad_fields(), *bad_ends()], [*odd_fields(), *ODD]):
        names = [case.name for case in cases]
        assert sorted(set(names)) == sorted(names)

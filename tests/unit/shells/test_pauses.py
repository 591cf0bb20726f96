"""How often a source is asked that does not answer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from enginewright.observe.pauses import Pauses


def asked_at(pauses: Pauses, seconds: int, *, answers: bool, start: int = 0) -> list[int]:
    """Of ``seconds`` rounds, one each second, those in which the source is asked."""
    found = []
    for now in range(start, start + seconds):
        if pauses.due(["one"], float(now)):
            found.append(now)
            pauses.note("one", answers, float(now))
    return found


def test_one_that_answers_is_asked_in_each_round() -> None:
    assert asked_at(Pauses(), 5, answers=True) == [0, 1, 2, 3, 4]


def test_one_that_never_answers_is_asked_less_and_less() -> None:
    assert asked_at(Pauses(), 130, answers=False) == [0, 1, 3, 7, 15, 31, 61, 91, 121]


def test_a_single_failure_costs_no_round() -> None:
    pauses = Pauses()
    assert asked_at(pauses, 1, answers=False) == [0]
    assert asked_at(pauses, 3, answers=True, start=1) == [1, 2, 3]


def test_one_that_is_gone_is_forgotten() -> None:
    pauses = Pauses()
    asked_at(pauses, 100, answers=False)
    assert pauses.due(["other"], 100.0) == ["other"]
    assert pauses.due(["one", "other"], 100.0) == ["one", "other"]


@given(st.integers(1, 500))
def test_one_that_recovers_is_asked_within_the_time_that_it_failed_for(seconds: int) -> None:
    pauses = Pauses()
    asked_at(pauses, seconds, answers=False)
    again = asked_at(pauses, 60, answers=True, start=seconds)
    assert again[0] - seconds <= min(30, seconds)
    assert again == list(range(again[0], seconds + 60))


def test_many_failures_are_no_number_too_large() -> None:
    pauses, now = Pauses(), 0.0
    for _ in range(2000):
        assert pauses.due(["one"], now)
        pauses.note("one", False, now)
        now += 30.0

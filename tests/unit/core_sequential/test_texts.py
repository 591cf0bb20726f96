"""Analysis of language models: noise neither promotes nor blocks, and a refusal names what is worse. The traffic
is made up by seed (``support/text_traffic.py``)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from enginewright.core.comparison import Answer, Limits, Question, compare
from enginewright.core.reasons import Reason
from enginewright.core.signals import Round, SignalWindow, Traffic
from enginewright.core.tokens import Tokens, beyond
from support.text_traffic import TEXTS, Text, text_rounds
from support.traffic import AGREEING, looked_at

RUNS = 100
LOADS = {
    "plain": Text(),
    "busy": Text(rate=30),
    "thin": Text(rate=2),
    "three stable replicas": Text(replicas=3),
    "stalls": Text(stalls=0.01),
    "stormy": Text(weather=0.6),
    "long answers, many cut": Text(length=120),
    "clients that leave": Text(leaving=0.1),
    "beside the objective": Text(first=450.0, pace=60.0),
}
WORSE = {
    "time to first token": (Text(new_first=2.0), Reason.SLOWER, "By its time to first token it is slower"),
    "time per token": (Text(new_pace=1.6), Reason.SLOWER, "By its time per token it is slower"),
    "lengths": (Text(new_length=2.5, most=10_000, rate=10), Reason.OUTPUTS_DIFFER, "tokens on average"),
    "a reason to end": (Text(length=30, most=60, new_length=8.0, rate=10), Reason.OUTPUTS_DIFFER, "Its answers"),
    "clients that leave": (Text(new_leaving=40.0), Reason.FAILED_INFERENCES, "Clients left"),
}


@pytest.mark.study
@pytest.mark.parametrize("name", LOADS)
def test_equal_ones_are_promoted_ninety_nine_times_of_a_hundred(name: str) -> None:
    found = [looked_at(text_rounds(LOADS[name], seed), TEXTS) for seed in range(RUNS)]
    assert sum(answer.verdict == "good" for answer in found) >= 99, [
        answer.message for answer in found if answer.verdict != "good"]


@pytest.mark.study
@pytest.mark.parametrize("name", WORSE)
def test_each_measure_refuses_a_hundred_of_a_hundred(name: str) -> None:
    load, _, _ = WORSE[name]
    found = [looked_at(text_rounds(load, seed), TEXTS) for seed in range(RUNS)]
    assert [answer.verdict for answer in found] == ["worse"] * RUNS


@pytest.mark.parametrize("name", WORSE)
def test_which_measure_refuses_is_said_with_both_figures(name: str) -> None:
    load, reason, words = WORSE[name]
    answer = looked_at(text_rounds(load, 1), TEXTS, every=5)
    assert (answer.verdict, answer.reason) == ("worse", reason)
    assert words in answer.message
    assert "ms against" in answer.message or "the stable revision's" in answer.message
    assert answer.message.rstrip(".").endswith(("maxSlowdown", "to never", "do with its answers"))


def test_an_equal_one_is_promoted_with_both_ratios() -> None:
    answer = looked_at(text_rounds(Text(rate=20), 1), TEXTS, every=5)
    assert answer.verdict == "good"
    assert answer.measure in ("time to first token", "time per token")
    assert answer.ratio is not None
    assert answer.ratio.high < 1.25
    for name in ("time to first token", "time per token"):
        assert f"{name} " in answer.message
    assert "ms against" in answer.message


def test_a_tail_beyond_the_objective_that_the_stable_one_keeps() -> None:
    """One request in twelve takes ten times as long, and the mean may rise by twice as much."""
    question = replace(TEXTS, limits=Limits(slowdown=2.0, first_token=1000.0, patience=600.0))
    load = Text(rate=20, slow=0.08, weather=0.1)
    answer = last(text_rounds(load, 1, 400), question)
    assert (answer.verdict, answer.reason) == ("worse", Reason.OBJECTIVE_MISSED)
    assert answer.message.startswith("It misses the objective of p99 time to first token 1000 ms, which the stable one")
    assert "Raise spec.objective.tokens.ttftMilliseconds" in answer.message
    lax = replace(question.limits, percentile=50.0)
    assert last(text_rounds(load, 1, 400), replace(question, limits=lax)).verdict == "good", "half of them may"


def last(rounds: Iterable[Round], question: Question) -> Answer:
    """Looked at once, when all was seen."""
    return compare(SignalWindow(started=0, analysis="k", rounds=tuple(rounds), probes=AGREEING), question)


def same(seconds: int = 60, **new: Any) -> list[Round]:
    """Each second as the other; ``new`` are fields of the candidate's tokens."""
    tokens = Tokens(begun=10, waited=2e6, ended=10, generated=400, paced=10, pace=3e5)
    old = Traffic(requests=10, busy=1e7, replicas=1, tokens=tokens)
    mine = replace(old, tokens=replace(tokens, **new))
    return [Round(time=float(time), traffic={"old": old, "new": mine}) for time in range(seconds)]


def test_one_that_is_twice_as_long_on_the_way_is_judged_by_its_tokens_alone() -> None:
    """Longer answers take longer: a request's time is no fault of new weights."""
    rounds = [replace(one, traffic={**one.traffic, "new": replace(one.traffic["new"], busy=5e7)}) for one in same()]
    assert last(rounds, TEXTS).verdict == "good"


@pytest.mark.parametrize(("new", "alike", "verdict"), [
    ({"generated": 400.0}, True, "good"),
    ({"generated": 900.0}, True, "worse"),
    ({"generated": 150.0}, True, "worse"),
    ({"generated": 900.0}, False, "good"),
    ({"cut": 6.0}, False, "good"),
])
def test_answers_are_compared_where_both_are_meant_to_answer_alike(
    new: dict[str, Any], alike: bool, verdict: str
) -> None:
    question = replace(TEXTS, limits=Limits(alike=alike))
    assert last(same(**new), question).verdict == verdict


def test_more_answers_that_are_cut_refuse_and_before_that_are_waited_for() -> None:
    question = replace(TEXTS, limits=Limits(alike=True))
    assert last(same(60, cut=6.0), question).verdict == "open"
    answer = last(same(200, cut=6.0), question)
    assert answer.reason == Reason.OUTPUTS_DIFFER
    assert "end at their largest length and not by themselves, of the stable revision's 0 of" in answer.message
    assert last(same(200, cut=0.0), question).verdict == "good"


def test_lengths_are_not_looked_at_before_long_answers_can_have_ended() -> None:
    """The candidate's first answers to end are its short ones. Here an answer takes twenty seconds."""
    rounds = [replace(one, traffic={name: replace(part, busy=2e8) for name, part in one.traffic.items()})
              for one in same(60, generated=100.0)]
    assert last(rounds, TEXTS).verdict == "open"
    late = same(60)
    rounds += [replace(one, time=one.time + 60) for one in late]
    assert last(rounds, TEXTS).verdict == "good"


def test_answers_of_one_token_have_no_time_per_token_to_wait_for() -> None:
    answer = last(same_of_one_token(), TEXTS)
    assert answer.verdict == "good"
    assert "time per token" not in answer.message


def same_of_one_token() -> list[Round]:
    return [replace(one, traffic={name: replace(part, tokens=replace(part.tokens or Tokens(), generated=10.0, paced=0.0,
                                                                     pace=0.0)) for name, part in one.traffic.items()})
            for one in same()]


def test_a_candidate_without_answers_of_more_than_one_token_is_not_promoted() -> None:
    assert last(same(60, paced=0.0, pace=0.0), replace(TEXTS, limits=Limits())).verdict == "open"
    late = last(same(400, paced=0.0, pace=0.0), replace(TEXTS, limits=Limits()))
    assert (late.verdict, late.reason) == ("worse", Reason.ANALYSIS_INCONCLUSIVE)


def test_failures_refuse_a_language_model_as_any_other() -> None:
    rounds = [replace(one, traffic={**one.traffic, "new": replace(one.traffic["new"], failed=4.0)}) for one in same(20)]
    assert last(rounds, TEXTS).reason == Reason.FAILED_INFERENCES


@pytest.mark.parametrize(("counts", "milliseconds", "found"), [
    ({100.0: 4.0, 250.0: 7.0, math.inf: 10.0}, 250.0, (3.0, 10.0)),
    ({100.0: 4.0, 250.0: 7.0, math.inf: 10.0}, 200.0, (3.0, 10.0)),
    ({100.0: 4.0, 250.0: 7.0, math.inf: 10.0}, 251.0, (0.0, 10.0)),
    ({}, 250.0, (0.0, 0.0)),
])
def test_what_is_beyond_a_bound_for_certain(
    counts: dict[float, float], milliseconds: float, found: tuple[float, float]
) -> None:
    assert beyond(counts, milliseconds) == found


def test_tokens_add_up_and_grow() -> None:
    one = Tokens(begun=3, gone=2, begun_within={10.0: 1.0, math.inf: 3.0})
    two = Tokens(begun=5, gone=1, begun_within={10.0: 2.0, math.inf: 5.0})
    assert one + two == Tokens(begun=8, gone=3, begun_within={10.0: 3.0, math.inf: 8.0})
    assert two.since(one) == Tokens(begun=2, gone=0, begun_within={10.0: 1.0, math.inf: 2.0})
    assert two.known_after(one).gone == 2, "what was left stays so, however many begin"
    assert (one + Tokens(begun_within={20.0: 1.0, math.inf: 1.0})).begun_within == {math.inf: 4.0}, "other bounds"

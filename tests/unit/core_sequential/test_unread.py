"""A candidate's replica that is ready and answers no scrape: the others' figures alone promote nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginewright.core.comparison import Answer, Limits, compare, proven_worse
from enginewright.core.comparison.unread import UNREAD
from enginewright.core.reasons import Reason
from enginewright.core.signals import Reading, Round, SignalWindow, Traffic
from support.traffic import AGREEING, QUESTION

GOOD = Traffic(requests=20, busy=20 * 5000, queued=1000, replicas=1)
PATIENCE = 100.0
HEARD = {"old-1": 0.0, "old-2": 0.0, "new-1": 0.0, "new-2": 0.0}


def asked(silences: dict[str, float], *, seconds: int = 60, uncounted: str = "", alone: bool = False,
          failed: float = 0.0) -> Answer:
    """What comes of good figures after ``seconds``, where each replica was last heard so long ago."""
    mine = replace(GOOD, failed=failed)
    rounds = tuple(Round(time=float(time), traffic={"old": GOOD, "new": mine}) for time in range(seconds))
    readings = tuple(Reading(pod, pod[:3], rounds[-1].time - silence, counted=pod != uncounted)
                     for pod, silence in silences.items())
    question = replace(QUESTION, alone=alone, limits=Limits(patience=PATIENCE))
    return compare(SignalWindow(started=0, analysis="k", rounds=rounds, readings=readings, probes=AGREEING), question)


def test_where_all_replicas_answer_it_is_promoted() -> None:
    assert asked(HEARD).verdict == "good"


@pytest.mark.parametrize("alone", [False, True])
def test_one_that_is_silent_for_longer_than_a_stall_holds_the_promotion_and_is_named(alone: bool) -> None:
    answer = asked({**HEARD, "new-2": UNREAD + 1}, alone=alone)
    assert (answer.verdict, answer.reason) == ("open", Reason.METRICS_UNREADABLE)
    assert "replica new-2 is ready, but its metrics have not been read for 11 s" in answer.message


def test_a_stall_holds_nothing() -> None:
    assert asked({**HEARD, "new-2": UNREAD - 1}).verdict == "good"


def test_one_that_was_never_measured_holds_it_from_the_first_second() -> None:
    answer = asked({**HEARD, "new-2": 2.0}, uncounted="new-2")
    assert (answer.verdict, answer.reason) == ("open", None)
    assert "replica new-2 is yet to be measured" in answer.message


def test_a_silent_replica_of_the_stable_revision_holds_nothing() -> None:
    assert asked({**HEARD, "old-2": 5 * PATIENCE}).verdict == "good"


def test_with_all_patience_it_is_given_up() -> None:
    answer = asked({**HEARD, "new-1": PATIENCE, "new-2": PATIENCE + 5}, seconds=200)
    assert (answer.verdict, answer.reason) == ("worse", Reason.METRICS_UNREADABLE)
    assert answer.message == ("What it does could not be measured: replicas new-1, new-2 are ready, but their metrics "
                              "have not been read for 105 s, while the stable revision's answered.")


def test_where_no_replica_of_either_answers_the_candidate_is_not_blamed() -> None:
    answer = asked(dict.fromkeys(HEARD, 2 * PATIENCE), seconds=300)
    assert (answer.verdict, answer.starved) == ("open", True)


def test_where_none_was_ever_read_it_is_said_that_requests_are_missing() -> None:
    """As where a NetworkPolicy keeps the operator from all of them."""
    readings = tuple(Reading(pod, pod[:3], 0.0, counted=False) for pod in HEARD)
    rounds = tuple(Round(time=float(time), traffic={}) for time in range(20))
    probes = replace(AGREEING, problem="the stable revision does not answer probes")
    answer = compare(SignalWindow(started=0, analysis="k", rounds=rounds, readings=readings, probes=probes), QUESTION)
    assert (answer.verdict, answer.reason, answer.starved) == ("open", None, True)
    assert "60 requests of each are needed; the stable revision does not answer probes" in answer.message


def test_what_the_others_prove_against_it_does_not_wait() -> None:
    answer = asked({**HEARD, "new-2": UNREAD + 1}, failed=10.0)
    assert (answer.verdict, answer.reason) == ("worse", Reason.FAILED_INFERENCES)


def test_one_that_waits_for_a_person_is_given_up_as_well() -> None:
    answer = asked({**HEARD, "new-2": PATIENCE}, seconds=200)
    assert proven_worse(answer, Limits(patience=PATIENCE)) == answer


def test_of_many_replicas_three_are_named() -> None:
    answer = asked({"old-1": 0.0, **{f"new-{number}": 50.0 for number in range(5)}})
    assert "replicas new-0, new-1, new-2 and 2 more are ready" in answer.message

"""Failures once all traffic has moved at once, beside those that the stable revision had before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from enginewright.core.comparison import Answer, compare
from enginewright.core.reasons import Reason
from enginewright.core.signals import Round, SignalWindow, Traffic
from support.traffic import QUESTION, poisson

MOVED, AFTER = 30, 30  # seconds
PROBES = 5
RUNS = 200


def second(chance: random.Random, rate: float, wrong: float) -> Traffic:
    arrived = poisson(chance, rate)
    failed = sum(chance.random() < wrong for _ in range(arrived))
    return Traffic(requests=arrived - failed, failed=failed, replicas=1)


def rounds(seed: int, before: float, after: float, *, rate: float = 20.0, seconds: int = AFTER) -> Iterator[Round]:
    """Live traffic, of which the stable revision fails the share ``before`` and the candidate ``after``; until it
    moves, probes of both, which never fail."""
    chance, probes = random.Random(seed), Traffic(requests=PROBES, replicas=1)
    for time in range(MOVED):
        yield Round(time=float(time), traffic={"old": second(chance, rate, before) + probes, "new": probes})
    for time in range(MOVED, MOVED + seconds):
        yield Round(time=float(time), traffic={"old": Traffic(), "new": second(chance, rate, after)})


def looked_at(coming: Iterator[Round]) -> Answer:
    """At every second after the move, until it is worse."""
    window, seen = SignalWindow(started=0, analysis="k"), [next(coming) for _ in range(MOVED)]
    answer = Answer(verdict="open", message="")
    for one in coming:
        seen.append(one)
        answer = compare(replace(window, rounds=tuple(seen)), replace(QUESTION, switched=MOVED - 1.0))
        if answer.verdict != "open":
            break
    return answer


def alarms(before: float, after: float, *, rate: float = 20.0) -> int:
    return sum(looked_at(rounds(seed, before, after, rate=rate)).verdict == "worse" for seed in range(RUNS))


@pytest.mark.parametrize("rate", [2.0, 20.0])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.1])
def test_what_fails_as_often_as_before_raises_no_alarm(share: float, rate: float) -> None:
    assert alarms(share, share, rate=rate) <= RUNS / 100


def test_what_fails_less_raises_none() -> None:
    assert alarms(0.1, 0.01) == 0


@pytest.mark.parametrize(("before", "after"), [(0.0, 0.1), (0.01, 0.2), (0.05, 1.0)])
def test_what_fails_more_is_found_within_the_delay(before: float, after: float) -> None:
    assert alarms(before, after) == RUNS


def test_the_alarm_has_figures_of_live_requests_alone() -> None:
    answer = looked_at(rounds(1, 0.0, 1.0))
    assert answer.reason == Reason.FAILED_INFERENCES
    live = sum(one.traffic["old"].requests - PROBES for one in rounds(1, 0.0, 1.0) if one.time < MOVED)
    assert answer.message == (f"{answer.failures} of {answer.failures} inferences failed after all traffic had moved "
                              f"to it, of the stable revision's 0 of {live} just before.")


def test_one_second_is_one_event_however_many_fail_in_it() -> None:
    burst = replace(Traffic(), failed=500.0, replicas=1)
    coming = [replace(one, traffic={**one.traffic, "new": burst}) if one.time == MOVED + 3 else one
              for one in rounds(1, 0.0, 0.0)]
    assert looked_at(iter(coming)).verdict == "open"


def test_without_live_traffic_before_nothing_is_said() -> None:
    silent = (replace(one, traffic={**one.traffic, "old": one.traffic["new"] if one.time < MOVED else Traffic()})
              for one in rounds(1, 0.0, 1.0))
    assert looked_at(silent).verdict == "open"


def test_probes_that_never_fail_do_not_hide_how_often_live_requests_did() -> None:
    """One in ten fails on either, and there are five probes for each before the switch."""
    found = sum(looked_at(rounds(seed, 0.1, 0.1, rate=1.0)).verdict == "worse" for seed in range(RUNS))
    assert found <= RUNS / 100

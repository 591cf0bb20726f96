"""What is added up round by round gives the answer of all rounds looked at together, whatever was looked at before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.comparison import Limits, Question, compare
from enginewright.core.comparison.latency import ALPHA, ENOUGH_REQUESTS, PAIR_REQUESTS, Part, _log_ratio
from enginewright.core.comparison.tally import TOLERABLE, Sums, sums_of
from enginewright.core.failures import Trials
from enginewright.core.sequential import (
    CORRELATION_ERRORS,
    FEWEST_VALUES,
    LEAST_SPREAD,
    MOST_CORRELATION,
    SHARPEST_AT,
    Interval,
)
from enginewright.core.signals import Round, SignalWindow, Traffic
from support.added import confidence_sequence, more_failures

Pairs = Sequence[tuple[Traffic, Traffic]]
QUESTION = Question(key="k", stable="old", candidate="new", model="m", limits=Limits(milliseconds=10.0, watched=5.0))
NONE = Traffic()

traffic = st.builds(
    Traffic,
    requests=st.integers(0, 60).map(float),
    failed=st.sampled_from([0.0, 0.0, 0.0, 1.0, 7.0]),
    busy=st.integers(0, 10**6).map(float),
    queued=st.integers(0, 10**5).map(float),
    replicas=st.integers(0, 3),
    p99=st.none() | st.floats(0.1, 1e4),
)
rounds_of = st.lists(
    st.dictionaries(st.sampled_from(["old", "new", "other"]), traffic, max_size=3), min_size=1, max_size=120
).map(lambda seen: tuple(Round(time=25.0 * second, traffic=one) for second, one in enumerate(seen)))


def plain_interval(values: Sequence[float], weights: Sequence[float]) -> Interval | None:
    """The confidence sequence from the values themselves, in two passes: what :class:`Series` does with sums."""
    total, squares = sum(weights), sum(weight * weight for weight in weights)
    if len(values) < FEWEST_VALUES or total <= 0 or total * total / squares < FEWEST_VALUES / 2:
        return None
    times = total * total / squares
    mean = sum(weight * value for value, weight in zip(values, weights, strict=True)) / total
    off = [weight * (value - mean) for value, weight in zip(values, weights, strict=True)]
    about = sum(one * one for one in off)
    variance = about / squares * (times / (times - 1)) * ((times - 1) / (times - 3))
    like = sum(one * other for one, other in pairwise(off)) / about if about > 0 else 0.0
    like = min(MOST_CORRELATION, max(0.0, like + (1 + 3 * like) / len(off)))
    like = min(MOST_CORRELATION, like + CORRELATION_ERRORS * math.sqrt((1 - like * like) / len(off)))
    spread = max(math.sqrt(variance * (1 + like) / (1 - like)), LEAST_SPREAD)
    rho = (-2 * math.log(ALPHA) + math.log(1 - 2 * math.log(ALPHA))) / SHARPEST_AT
    grown = times * rho + 1
    half = spread * math.sqrt(2 * grown / (times * times * rho) * math.log(math.sqrt(grown) / ALPHA))
    return Interval(mean, mean - half, mean + half)


def plain_ratio(pairs: Pairs) -> Interval | None:
    blocks, mine, theirs = list[tuple[Part, Part]](), Part(), Part()
    for candidate, stable in pairs:
        mine.add(candidate)
        theirs.add(stable)
        if min(mine.requests, theirs.requests) >= PAIR_REQUESTS and min(mine.busy, theirs.busy) > 0:
            blocks.append((mine, theirs))
            mine, theirs = Part(), Part()
    values = [_log_ratio(one, other) for one, other in blocks]
    few = [(1 / one.requests, 1 / other.requests) for one, other in blocks]
    weights = [1 / (one + other + 1 / ENOUGH_REQUESTS) for one, other in few]
    if not weights:
        return None
    mean = sum(weight * value for value, weight in zip(values, weights, strict=True)) / sum(weights)
    variance = sum((value - mean) ** 2 for value in values) / sum(one + other for one, other in few)
    values = [value + variance * (one - other) / 2 for value, (one, other) in zip(values, few, strict=True)]
    return plain_interval(values, weights)


def plain_doubt(pairs: Pairs, whole: Traffic, *, alone: bool = False) -> float:
    trials, mine, count = list[Trials](), NONE, 0
    for one, two in pairs:
        mine, count, other = mine + one, count + (one.failed > 0), TOLERABLE if alone else two
        if other.requests + other.failed > 0:
            trials.append(trial(mine, other, count))
            mine, count = NONE, 0
    return more_failures([*trials, trial(mine, whole, count)])


def trial(mine: Traffic, other: Traffic, rounds: int) -> Trials:
    return Trials(mine.failed, mine.failed + mine.requests, other.failed, other.failed + other.requests, rounds)


def near(found: Interval | None, plain: Interval | None) -> bool:
    if found is None or plain is None:
        return found is plain
    return (found.mean, found.low, found.high) == pytest.approx((plain.mean, plain.low, plain.high), rel=1e-6, abs=1e-6)


def added_up(rounds: tuple[Round, ...], question: Question, looks: int = 1) -> Sums:
    """In so many looks at more and more of ``rounds``."""
    window = SignalWindow(started=0, analysis="k")
    for look in range(1, looks):
        sums_of(replace(window, rounds=rounds[: len(rounds) * look // looks]), question)
    return sums_of(replace(window, rounds=rounds), question)


@given(rounds_of, st.integers(1, 9), st.booleans())
def test_the_sums_are_those_of_all_rounds_together(rounds: tuple[Round, ...], looks: int, alone: bool) -> None:
    question = replace(QUESTION, alone=alone)
    found = added_up(rounds, question, looks)
    pairs = [(one.traffic.get("new", NONE), one.traffic.get("old", NONE)) for one in rounds]
    mine, theirs = (sum((pair[side] for pair in pairs), NONE) for side in (0, 1))
    assert (found.candidate.requests, found.candidate.failed) == (mine.requests, mine.failed)
    assert (found.stable.requests, found.stable.failed) == (theirs.requests, theirs.failed)
    assert near(found.ratio, plain_ratio(pairs))
    assert found.doubt == pytest.approx(plain_doubt(pairs, TOLERABLE if alone else theirs, alone=alone))
    mirrored = plain_doubt([(other, one) for one, other in pairs], mine)
    assert found.cure == (not alone and mirrored >= -math.log(ALPHA))
    tails = [(one.time, one.traffic["new"].p99, one.traffic["old"].p99) for one in rounds
             if {"new", "old"} <= set(one.traffic)]
    known, due = [], None
    for time, one, other in tails:
        if one and other:
            if due is not None and time >= due:
                known.append((one, other))
            due = time + 60 if due is None or time >= due else due
    assert found.tail.newest == (known[-1] if known else None)
    even = [1.0] * len(known)
    assert near(found.tail.ratio.interval(ALPHA), plain_interval([math.log(a / b) for a, b in known], even))
    assert near(found.tail.candidate.interval(ALPHA), plain_interval([math.log(a) for a, _ in known], even))
    assert near(found.tail.stable.interval(ALPHA), plain_interval([math.log(b) for _, b in known], even))
    watched = [one.time for one in rounds if "new" in one.traffic]
    assert found.seconds == (watched[-1] - watched[0] if watched else 0.0)
    assert found.waited == rounds[-1].time - rounds[0].time


@given(st.lists(st.tuples(rounds_of, st.booleans()), min_size=1, max_size=4), st.integers(0, 40))
def test_an_answer_does_not_depend_on_what_was_looked_at_before(
    looks: list[tuple[tuple[Round, ...], bool]], forgotten: int
) -> None:
    """Another analysis, another question, fewer rounds than before, the oldest forgotten."""
    window = SignalWindow(started=0, analysis="k")
    for rounds, alone in looks:
        question = replace(QUESTION, alone=alone)
        for seen in (rounds[:-1], rounds, rounds[forgotten:], rounds):
            carried = compare(replace(window, rounds=seen), question)
            assert carried == compare(SignalWindow(started=0, analysis="k", rounds=seen), question)


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(0.1, 20)), max_size=200), st.sampled_from([0.0, 1e3]))
def test_the_interval_is_that_of_the_values_themselves(entries: list[tuple[float, float]], far: float) -> None:
    values, weights = [value + far for value, _ in entries], [weight for _, weight in entries]
    assert near(confidence_sequence(values, weights, ALPHA), plain_interval(values, weights))


def test_a_look_adds_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this is for: each round is added once, however often is looked."""
    added: list[Traffic] = []
    plain = Part.add

    def counted(self: Part, one: Traffic) -> None:
        added.append(one)
        plain(self, one)

    monkeypatch.setattr(Part, "add", counted)
    one = Traffic(requests=10.0, busy=1e4)
    rounds = tuple(Round(time=float(second), traffic={"old": one, "new": one}) for second in range(100))
    added_up(rounds, QUESTION, looks=1)
    once = len(added)
    added_up(rounds, QUESTION, looks=100)
    assert len(added) == 2 * once

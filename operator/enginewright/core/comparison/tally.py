"""What both revisions did, added up round by round.

A look costs what the rounds since the last look cost, whatever their number before. Nothing is thinned out: every round
enters the same sums as it would from the start, so that the sequential tests are those of the whole series, valid at
every look. The sums are left in the window's notes; a window that does not go on where they ended (it forgot its oldest
rounds, or another analysis began) is added up from its start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from enginewright.core.comparison.latency import ALPHA, Part, Ratio, Tail
from enginewright.core.comparison.percentile import Percentile
from enginewright.core.comparison.question import Question
from enginewright.core.failures import Failures, Trials
from enginewright.core.observed import Round, SignalWindow, Traffic
from enginewright.core.sequential import Interval
from enginewright_builder.contract import requests_needed

# What failures are held against where there is no stable replica.
TOLERABLE: Final = Traffic(requests=99.0, failed=1.0)
NOTHING: Final = Traffic()


@dataclass(frozen=True, kw_only=True)
class Sums:
    """What both did over the whole analysis: ``seconds`` since the candidate's first sample, ``waited`` since anybody
    was asked for one. ``cure`` when it is the stable revision that is shown to fail more."""

    candidate: Part
    stable: Part
    seconds: float
    waited: float
    ratio: Interval | None
    doubt: float
    cure: bool
    tail: Tail
    percentile: Percentile


class Doubt:
    """Evidence that the one side fails more.

    Seconds in which the other side got no request are put together with the next in which it did: what it did may be
    held against the one side once only. What is left when it gets none any more is held, as one, against all it got."""

    def __init__(self) -> None:
        self._proof = Failures()
        self._requests = self._failed = 0.0
        self._rounds = 0

    def add(self, mine: Traffic, other: Traffic) -> None:
        self._requests += mine.requests
        self._failed += mine.failed
        self._rounds += mine.failed > 0
        if other.requests + other.failed > 0:
            if self._failed + other.failed > 0:
                self._proof.add(self._trial(other.failed, other.requests))
            self._requests = self._failed = 0.0
            self._rounds = 0

    def grown(self, whole_failed: float, whole_requests: float) -> float:
        """Its logarithm, where the other side did all that in the end."""
        return self._proof.grown(self._trial(whole_failed, whole_requests))

    def _trial(self, failed: float, requests: float) -> Trials:
        return Trials(self._failed, self._failed + self._requests, failed, failed + requests, self._rounds)


class Tally:
    """All of it, of the ``rounds`` that were added so far."""

    def __init__(self, question: Question) -> None:
        self.asked = asked(question)
        self.rounds: tuple[Round, ...] = ()
        self._candidate, self._stable = Part(), Part()
        self._watched: tuple[float, float] | None = None
        self._ratio, self._tail = Ratio(), Tail()
        self._percentile = Percentile(requests_needed(question.limits.percentile))
        self._doubt, self._cure = Doubt(), Doubt()

    def follow(self, rounds: tuple[Round, ...]) -> None:
        """Adds what ``rounds`` have more than those of before."""
        candidate, stable, alone, _ = self.asked
        for one in rounds[len(self.rounds):]:
            mine, theirs = one.traffic.get(candidate), one.traffic.get(stable)
            if mine is not None:
                self._watched = (self._watched[0] if self._watched else one.time, one.time)
                self._percentile.add(one.time, mine)
            if mine is not None and theirs is not None:
                self._tail.add(one.time, mine.p99, theirs.p99)
            self._add(mine or NOTHING, theirs or NOTHING, alone)
        self.rounds = rounds

    def _add(self, mine: Traffic, theirs: Traffic, alone: bool) -> None:
        self._candidate.add(mine)
        self._stable.add(theirs)
        self._ratio.add(mine, theirs)
        self._doubt.add(mine, TOLERABLE if alone else theirs)
        self._cure.add(theirs, mine)

    def sums(self) -> Sums:
        alone, mine, rounds = self.asked[2], self._candidate, self.rounds
        whole: Part | Traffic = TOLERABLE if alone else self._stable
        cure = not alone and self._cure.grown(mine.failed, mine.requests) >= -math.log(ALPHA)
        return Sums(
            candidate=mine,
            stable=self._stable,
            seconds=self._watched[1] - self._watched[0] if self._watched else 0.0,
            waited=rounds[-1].time - rounds[0].time if rounds else 0.0,
            ratio=self._ratio.interval(),
            doubt=self._doubt.grown(whole.failed, whole.requests),
            cure=cure,
            tail=self._tail,
            percentile=self._percentile,
        )


def asked(question: Question) -> tuple[str, str, bool, float]:
    """What of a question the sums depend on."""
    return question.candidate, question.stable, question.alone, question.limits.percentile


def sums_of(window: SignalWindow, question: Question) -> Sums:
    tally = window.notes.get(Tally)
    begun = isinstance(tally, Tally) and tally.asked == asked(question)
    if not isinstance(tally, Tally) or not begun or window.rounds[: len(tally.rounds)] != tally.rounds:
        tally = window.notes[Tally] = Tally(question)
    tally.follow(window.rounds)
    return tally.sums()

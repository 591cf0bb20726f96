"""What both revisions did, added up round by round.

A look costs what the rounds since the last look cost, whatever their number before. Nothing is thinned out: every round
enters the same sums as it would from the start, so that the sequential tests are those of the whole series, valid at
every look. The sums are left in the window's notes; a window that does not go on where they ended (it forgot its oldest
rounds, or another analysis began) is added up from its start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from enginewright.core.comparison.doubt import NOTHING, Doubt, Ending, Share
from enginewright.core.comparison.latency import ALPHA, Latency, Part, Ratio, Tail, alike_loaded
from enginewright.core.comparison.percentile import Percentile
from enginewright.core.comparison.question import Question
from enginewright.core.comparison.tokens import MEASURES, Texts, TokenTests
from enginewright.core.sequential import Interval, of_beginning
from enginewright.core.signals import Round, SignalWindow, Traffic
from enginewright_builder.contract import requests_needed

# What failures are held against where there is no stable replica.
TOLERABLE: Final = Traffic(requests=99.0, failed=1.0)


@dataclass(frozen=True, kw_only=True)
class Sums:
    """What both did over the whole analysis: ``seconds`` since the candidate's first sample, ``waited`` since anybody
    was asked for one. ``alpha`` is the chance of a wrong word. ``cure`` when it is the stable revision that is shown to
    fail more. ``rejected`` are requests that waited in the queue for too long, under like load. ``texts`` are of
    language models."""

    candidate: Part
    stable: Part
    seconds: float
    waited: float
    alpha: float
    latencies: tuple[Latency, ...]
    doubt: float
    rejected: Ending
    cure: bool
    tail: Tail
    percentile: Percentile
    texts: Texts | None = None

    @property
    def slowest(self) -> Latency | None:
        """Of those whose ratio is known the one that may be the greatest."""
        known = [one for one in self.latencies if one.ratio]
        return max(known, key=lambda one: one.ratio.high if one.ratio else 0.0, default=None)

    @property
    def ratio(self) -> Interval | None:
        """Of the slowest."""
        return self.slowest.ratio if self.slowest else None


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
        self._rejected = Share[Traffic](lambda one: (one.rejected, one.requests))
        self._tokens = TokenTests(question.limits) if question.generates else None

    def follow(self, rounds: tuple[Round, ...]) -> None:
        """Adds what ``rounds`` have more than those of before."""
        candidate, stable, alone = self.asked[:3]
        for one in rounds[len(self.rounds):]:
            mine, theirs = one.traffic.get(candidate), one.traffic.get(stable)
            if mine is not None:
                self._watched = (self._watched[0] if self._watched else one.time, one.time)
                self._percentile.add(one.time, mine)
            if mine is not None and theirs is not None:
                self._tail.add(one.time, mine.p99, theirs.p99)
            if self._tokens and self._watched:
                self._tokens.add(one.time, mine or NOTHING, theirs or NOTHING)
            self._add(mine or NOTHING, theirs or NOTHING, alone)
            self._turn_away(one.time, mine or NOTHING, theirs or NOTHING)
        self.rounds = rounds

    def _add(self, mine: Traffic, theirs: Traffic, alone: bool) -> None:
        self._candidate.add(mine)
        self._stable.add(theirs)
        self._ratio.add(mine, theirs)
        self._doubt.add(mine, TOLERABLE if alone else theirs)
        self._cure.add(theirs, mine)

    def _turn_away(self, time: float, mine: Traffic, theirs: Traffic) -> None:
        """A replica that gets more requests than the other side's turns more of them away, which is no fault of its."""
        one, other = (replace(side, requests=side.requests + side.rejected) for side in (mine, theirs))
        if alike_loaded(one, other):
            self._rejected.add(time, one, other)

    def sums(self, begun_again: int = 0) -> Sums:
        """A person may let a candidate wait for days. Each time that old rounds are forgotten is another chance to be
        wrong, of which all together must not have more than a little."""
        alpha = of_beginning(ALPHA, begun_again)
        alone, mine, rounds = self.asked[2], self._candidate, self.rounds
        whole: Part | Traffic = TOLERABLE if alone else self._stable
        cure = not alone and self._cure.grown(mine.failed, mine.requests) >= -math.log(alpha)
        return Sums(
            candidate=mine,
            stable=self._stable,
            seconds=self._watched[1] - self._watched[0] if self._watched else 0.0,
            waited=rounds[-1].time - rounds[0].time if rounds else 0.0,
            alpha=alpha,
            latencies=self._latencies(alpha),
            doubt=self._doubt.grown(whole.failed, whole.requests),
            rejected=self._rejected.ending(),
            cure=cure,
            tail=self._tail,
            percentile=self._percentile,
            texts=self._tokens.texts(alpha / MEASURES) if self._tokens else None,
        )

    def _latencies(self, alpha: float) -> tuple[Latency, ...]:
        if self._tokens:
            return self._tokens.latencies(alpha / MEASURES)
        return (Latency(name="latency", ratio=self._ratio.interval(alpha)),)


def asked(question: Question) -> tuple[str, str, bool, bool, float, float | None, float | None]:
    """What of a question the sums depend on."""
    limits = question.limits
    return (question.candidate, question.stable, question.alone, question.generates, limits.percentile,
            limits.first_token, limits.per_token)


def sums_of(window: SignalWindow, question: Question) -> Sums:
    tally = window.notes.get(Tally)
    begun = isinstance(tally, Tally) and tally.asked == asked(question)
    if not isinstance(tally, Tally) or not begun or window.rounds[: len(tally.rounds)] != tally.rounds:
        tally = window.notes[Tally] = Tally(question)
    tally.follow(window.rounds)
    return tally.sums(window.begun_again)

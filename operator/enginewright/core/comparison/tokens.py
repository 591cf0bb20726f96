"""Language models: the time until the first token, the time per token after it, how answers end, and how long they are.

Measures of one kind share the chance of a wrong word that the one measure of that kind has of other models.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from enginewright.core.comparison.doubt import Doubt
from enginewright.core.comparison.latency import ALPHA, Latency, Ratio
from enginewright.core.comparison.question import Limits
from enginewright.core.sequential import Interval
from enginewright.core.signals import Traffic
from enginewright.core.tokens import Tokens, beyond

# Kinds of two measures each: latencies, latencies beyond the objective, failures and requests that clients left, and
# the two that answers have.
SHARED: Final = ALPHA / 2
# So many seconds prove no more than one request that is the candidate's and might as well be the stable revision's,
# however many came in them: a stall is one event. The first seconds, which have a new replica's slow first requests,
# prove nothing.
BLOCK: Final = 10.0
MOST_OF_BLOCK: Final = math.log(2.0)
# Short answers end first. Lengths count once so many times as long as an answer takes has passed.
RIPE: Final = 3.0
# Answers half as long again, or shorter by as much, are others.
OTHER_LENGTH: Final = math.log(1.5)
NONE: Final = Tokens()
NOTHING: Final = Traffic()
TTFT: Final = "time to first token"
TPOT: Final = "time per token"
# Of how many requests, and of how many of them something is true.
Odd = Callable[[Tokens], tuple[float, float]]
# Requests that something is true of, and those that it is not.
Counts = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Of a share of requests: logarithm of the evidence that the candidate's is greater, and of both revisions how many
    of how many requests it was."""

    evidence: float
    mine: tuple[float, float]
    theirs: tuple[float, float]

    @property
    def shares(self) -> tuple[float, float]:
        return self.mine[0] / max(1.0, self.mine[1]), self.theirs[0] / max(1.0, self.theirs[1])


@dataclass(frozen=True, kw_only=True)
class Texts:
    """``gone`` are requests that clients left, ``cut`` answers that the largest length ended, ``late`` requests beyond
    the objective, by measure. ``length`` is the logarithm of the candidate's mean length over the stable revision's,
    ``lengths`` are both in tokens."""

    gone: Ending
    cut: Ending
    late: dict[str, Ending]
    length: Interval | None
    lengths: tuple[float, float]


class Share:
    """Of requests that something is true of, in blocks of :data:`BLOCK` seconds."""

    def __init__(self, odd: Odd) -> None:
        self._odd = odd
        self._doubt = Doubt(MOST_OF_BLOCK)
        self._due = math.nan
        self._warm = False
        self._mine: Counts = (0.0, 0.0)
        self._theirs: Counts = (0.0, 0.0)
        self._mine_whole = self._theirs_whole = NOTHING

    def add(self, time: float, mine: Tokens, theirs: Tokens) -> None:
        if math.isnan(self._due):
            self._due = time + BLOCK
        elif time >= self._due:
            self._close(time)
        self._mine, self._theirs = self._with(self._mine, mine), self._with(self._theirs, theirs)

    def _close(self, time: float) -> None:
        if self._warm:
            mine, theirs = (Traffic(failed=odd, requests=others) for odd, others in (self._mine, self._theirs))
            self._doubt.add(mine, theirs)
            self._mine_whole += mine
            self._theirs_whole += theirs
        self._warm, self._due = True, time + BLOCK
        self._mine = self._theirs = (0.0, 0.0)

    def _with(self, counts: Counts, tokens: Tokens) -> Counts:
        odd, whole = self._odd(tokens)
        return counts[0] + odd, counts[1] + max(0.0, whole - odd)

    def ending(self) -> Ending:
        mine, theirs = self._mine_whole, self._theirs_whole
        return Ending(evidence=self._doubt.grown(theirs.failed, theirs.requests),
                      mine=(mine.failed, mine.failed + mine.requests),
                      theirs=(theirs.failed, theirs.failed + theirs.requests))


def _first_token(seen: Traffic, tokens: Tokens) -> Traffic:
    return Traffic(requests=tokens.begun, busy=tokens.waited, queued=seen.queued, replicas=seen.replicas)


def _per_token(seen: Traffic, tokens: Tokens) -> Traffic:
    return Traffic(requests=tokens.paced, busy=tokens.pace, replicas=seen.replicas)


def _lengths(seen: Traffic, tokens: Tokens) -> Traffic:
    return Traffic(requests=tokens.ended, busy=tokens.generated, replicas=seen.replicas)


_LATENCIES: Final = {TTFT: _first_token, TPOT: _per_token}


class TokenTests:
    """All of them, of the rounds that were added so far."""

    def __init__(self, limits: Limits) -> None:
        self._ratios = {name: Ratio() for name in _LATENCIES}
        self._length = Ratio()
        self._gone = Share(lambda one: (one.gone, one.gone + one.ended))
        self._cut = Share(lambda one: (one.cut, one.ended))
        self._late: dict[str, Share] = {}
        if (first := limits.first_token) is not None:
            self._late[TTFT] = Share(lambda one: beyond(one.begun_within, first))
        if (each := limits.per_token) is not None:
            self._late[TPOT] = Share(lambda one: beyond(one.paced_within, each))
        self._mine = self._theirs = NOTHING
        self._began = math.inf

    def add(self, time: float, mine: Traffic, theirs: Traffic) -> None:
        one, other = mine.tokens or NONE, theirs.tokens or NONE
        if one.begun:
            self._began = min(self._began, time)
        for name, part in _LATENCIES.items():
            self._ratios[name].add(part(mine, one), part(theirs, other))
        if time - self._began >= max(BLOCK, RIPE * _mean(self._theirs) / 1e6):
            self._length.add(_lengths(mine, one), _lengths(theirs, other))
        for share in (self._gone, self._cut, *self._late.values()):
            share.add(time, one, other)
        self._mine += mine
        self._theirs += theirs

    def latencies(self) -> tuple[Latency, ...]:
        return tuple(self._latency(name) for name in _LATENCIES)

    def _latency(self, name: str) -> Latency:
        mine, theirs = (_LATENCIES[name](one, one.tokens or NONE) for one in (self._mine, self._theirs))
        return Latency(name=name, ratio=self._ratios[name].interval(SHARED), mine=_mean(mine) / 1000,
                       theirs=_mean(theirs) / 1000, absent=mine.requests + theirs.requests == 0)

    def texts(self) -> Texts:
        mine, theirs = (_mean(_lengths(one, one.tokens or NONE)) for one in (self._mine, self._theirs))
        return Texts(gone=self._gone.ending(), cut=self._cut.ending(),
                     late={name: share.ending() for name, share in self._late.items()},
                     length=self._length.interval(SHARED), lengths=(mine, theirs))


def _mean(part: Traffic) -> float:
    return part.busy / part.requests if part.requests else 0.0

"""Language models: the time until the first token, the time per token after it, how answers end, and how long they are.

Measures of one kind share the chance of a wrong word that the one measure of that kind has of other models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from enginewright.core.comparison.doubt import BLOCK, NOTHING, Ending, Share
from enginewright.core.comparison.latency import Latency, Ratio
from enginewright.core.comparison.question import Limits
from enginewright.core.sequential import Interval
from enginewright.core.signals import Traffic
from enginewright.core.tokens import Tokens, beyond

# Of one kind: latencies, latencies beyond the objective, failures and requests that clients left, and the two that
# answers have.
MEASURES: Final = 2
# Short answers end first. Lengths count once so many times as long as an answer takes has passed.
RIPE: Final = 3.0
# Answers half as long again, or shorter by as much, are others.
OTHER_LENGTH: Final = math.log(1.5)
NONE: Final = Tokens()
TTFT: Final = "time to first token"
TPOT: Final = "time per token"


@dataclass(frozen=True, kw_only=True)
class Texts:
    """``chance`` is that of a wrong word by one measure. ``gone`` are requests that clients left, ``cut`` answers that
    the largest length ended, ``late`` requests beyond the objective, by measure. ``length`` is the logarithm of the
    candidate's mean length over the stable revision's, ``lengths`` are both in tokens."""

    chance: float
    gone: Ending
    cut: Ending
    late: dict[str, Ending]
    length: Interval | None
    lengths: tuple[float, float]


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
        self._gone = Share[Tokens](lambda one: (one.gone, one.gone + one.ended))
        self._cut = Share[Tokens](lambda one: (one.cut, one.ended))
        self._late: dict[str, Share[Tokens]] = {}
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

    def latencies(self, chance: float) -> tuple[Latency, ...]:
        """``chance`` is that of a wrong word by one of them."""
        return tuple(self._latency(name, chance) for name in _LATENCIES)

    def _latency(self, name: str, chance: float) -> Latency:
        mine, theirs = (_LATENCIES[name](one, one.tokens or NONE) for one in (self._mine, self._theirs))
        return Latency(name=name, ratio=self._ratios[name].interval(chance), mine=_mean(mine) / 1000,
                       theirs=_mean(theirs) / 1000, absent=mine.requests + theirs.requests == 0)

    def texts(self, chance: float) -> Texts:
        mine, theirs = (_mean(_lengths(one, one.tokens or NONE)) for one in (self._mine, self._theirs))
        return Texts(chance=chance, gone=self._gone.ending(), cut=self._cut.ending(),
                     late={name: share.ending() for name, share in self._late.items()},
                     length=self._length.interval(chance), lengths=(mine, theirs))


def _mean(part: Traffic) -> float:
    return part.busy / part.requests if part.requests else 0.0

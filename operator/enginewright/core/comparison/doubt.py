"""Evidence that one revision fails more than the other, of rounds in which one of them may have been idle."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from enginewright.core.failures import MOST_PROOF_A_ROUND, Failures, Trials
from enginewright.core.signals import Traffic

# So many seconds prove no more than one request that is the candidate's and might as well be the stable revision's,
# however many came in them: a stall is one event. The first seconds, which have a new replica's slow first requests,
# prove nothing.
BLOCK: Final = 10.0
MOST_OF_BLOCK: Final = math.log(2.0)
# Evidence, as odds, that keeps a candidate from being promoted while there is patience left.
UNSETTLED: Final = math.log(1.5)
NOTHING: Final = Traffic()
Seen = TypeVar("Seen")
# Requests that something is true of, and those that it is not.
Counts = tuple[float, float]


class Doubt:
    """Evidence that the one side fails more.

    Seconds in which the other side got no request are put together with the next in which it did: what it did may be
    held against the one side once only. What is left when it gets none any more is held, as one, against all it got."""

    def __init__(self, most: float = MOST_PROOF_A_ROUND) -> None:
        self._proof = Failures(most)
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


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Of a share of requests: logarithm of the evidence that the candidate's is greater, and of both revisions how many
    of how many requests it was. ``pending``: it was of some of the candidate's, and no seconds that prove anything have
    passed yet."""

    evidence: float
    mine: Counts
    theirs: Counts
    pending: bool = False

    @property
    def shares(self) -> tuple[float, float]:
        return self.mine[0] / max(1.0, self.mine[1]), self.theirs[0] / max(1.0, self.theirs[1])


class Share(Generic[Seen]):
    """Of requests that something is true of, in blocks of :data:`BLOCK` seconds. ``odd`` says of what was seen of one
    side of how many that is, and how many there were."""

    def __init__(self, odd: Callable[[Seen], Counts]) -> None:
        self._odd = odd
        self._doubt = Doubt(MOST_OF_BLOCK)
        self._due = math.nan
        self._warm = self._proves = self._seen = False
        self._mine: Counts = (0.0, 0.0)
        self._theirs: Counts = (0.0, 0.0)
        self._mine_whole = self._theirs_whole = NOTHING

    def add(self, time: float, mine: Seen, theirs: Seen) -> None:
        if math.isnan(self._due):
            self._due = time + BLOCK
        elif time >= self._due:
            self._close(time)
        self._mine, self._theirs = self._with(self._mine, mine), self._with(self._theirs, theirs)
        self._seen = self._seen or self._mine[0] > 0

    def _close(self, time: float) -> None:
        if self._warm:
            self._proves = True
            mine, theirs = (Traffic(failed=odd, requests=others) for odd, others in (self._mine, self._theirs))
            self._doubt.add(mine, theirs)
            self._mine_whole += mine
            self._theirs_whole += theirs
        self._warm, self._due = True, time + BLOCK
        self._mine = self._theirs = (0.0, 0.0)

    def _with(self, counts: Counts, seen: Seen) -> Counts:
        odd, whole = self._odd(seen)
        return counts[0] + odd, counts[1] + max(0.0, whole - odd)

    def ending(self) -> Ending:
        mine, theirs = self._mine_whole, self._theirs_whole
        return Ending(evidence=self._doubt.grown(theirs.failed, theirs.requests),
                      mine=(mine.failed, mine.failed + mine.requests),
                      theirs=(theirs.failed, theirs.failed + theirs.requests),
                      pending=self._seen and not self._proves)

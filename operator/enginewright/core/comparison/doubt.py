"""Evidence that one revision fails more than the other, of rounds in which one of them may have been idle."""

from __future__ import annotations

from enginewright.core.failures import MOST_PROOF_A_ROUND, Failures, Trials
from enginewright.core.signals import Traffic


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

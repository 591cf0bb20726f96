"""Whether one side fails more often than the other: a test that may be looked at at any time, pure statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

# How many times likelier failures may be on the one side: the alternatives that are tried against "as likely".
ODDS: Final = (2.0, 4.0, 16.0, 256.0)
# One round proves at most this much: a burst within a second, however large, may have one cause that is not ours.
MOST_PROOF_A_ROUND: Final = math.log(32.0)
# More failures in one round than this are counted in proportion.
COUNTED_FAILURES: Final = 200


@dataclass(frozen=True)
class Trials:
    """Failures among all requests, failed ones included, on two sides: of one round, or of several put together, of
    which ``rounds`` had failures on the one side."""

    failed: float
    requests: float
    other_failed: float
    other_requests: float
    rounds: int = 1


class Failures:
    """The evidence that the one side fails more often than the other, round by round; log(1 / alpha) or more happens
    with probability ``alpha`` at most, ever, while both fail equally often.

    Given how many fail on both sides together, how many of them are on the one side is hypergeometric while both fail
    equally often, and Fisher's noncentral hypergeometric where the odds differ. The product over rounds of the ratios
    of the two likelihoods is a martingale that starts at 1, so Ville's inequality holds (an e-process: Ramdas,
    Grünwald, Vovk and Shafer, "Game-theoretic statistics and safe anytime-valid inference", 2023); so does their mean
    over :data:`ODDS`, and what is left of it after each factor is cut at ``most``, a logarithm.
    """

    def __init__(self, most: float = MOST_PROOF_A_ROUND) -> None:
        self._most = most
        self._logs = [0.0] * len(ODDS)

    def add(self, one: Trials) -> None:
        self._logs = self._with(one)

    def grown(self, last: Trials | None = None) -> float:
        """Its natural logarithm, with ``last`` as one more round that does not stay."""
        logs = self._logs if last is None else self._with(last)
        top = max(logs)
        return top + math.log(sum(math.exp(each - top) for each in logs) / len(logs))

    def _with(self, one: Trials) -> list[float]:
        if one.failed + one.other_failed <= 0:
            return self._logs
        most = max(1, one.rounds) * self._most
        return [log + min(proof, most) for log, proof in zip(self._logs, _proof(*_counted(one)), strict=True)]


def _counted(one: Trials) -> tuple[int, int, int, int]:
    """Whole numbers; large ones in proportion."""
    share = min(1.0, COUNTED_FAILURES / (one.failed + one.other_failed))
    failed, other = round(one.failed * share), round(one.other_failed * share)
    return failed, max(failed, round(one.requests * share)), other, max(other, round(one.other_requests * share))


@lru_cache(maxsize=8192)
def _proof(failed: int, requests: int, other_failed: int, other_requests: int) -> tuple[float, ...]:
    """Log-likelihood ratio of one round for each of :data:`ODDS`."""
    both = failed + other_failed
    cases = range(max(0, both - other_requests), min(both, requests) + 1)
    ways = [_choose(requests, case) + _choose(other_requests, both - case) for case in cases]
    plain = _log_sum(ways)
    found = []
    for odds in ODDS:
        tilt = math.log(odds)
        tilted = _log_sum([way + case * tilt for way, case in zip(ways, cases, strict=True)])
        found.append(failed * tilt - tilted + plain)
    return tuple(found)


def _choose(number: int, taken: int) -> float:
    return math.lgamma(number + 1) - math.lgamma(taken + 1) - math.lgamma(number - taken + 1)


def _log_sum(logs: Sequence[float]) -> float:
    top = max(logs)
    return top + math.log(sum(math.exp(one - top) for one in logs))

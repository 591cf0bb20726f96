"""Tests that may be looked at after every second and stop early either way: pure statistics, no domain.

Looking often at an ordinary confidence interval finds a difference sooner or later where there is none. Both tests here
hold at all times at once: with probability ``alpha`` at most they are ever wrong, however often one looks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

# The interval is narrowest about here: at one value a second an answer is wanted within half a minute.
SHARPEST_AT: Final = 20.0
# Fewer values say nothing of their own spread.
FEWEST_VALUES: Final = 10
# No spread at all is a coarse clock, not certainty.
LEAST_SPREAD: Final = 0.02
# A series that hangs together more than this is no series of separate values.
MOST_CORRELATION: Final = 0.95
# A correlation is taken to be so many standard errors higher than it looks: too low a one promises too much.
CORRELATION_ERRORS: Final = 1.5
# How many times likelier failures may be on the one side: the alternatives that are tried against "as likely".
ODDS: Final = (2.0, 4.0, 16.0, 256.0)
# One round proves at most this much: a burst within a second, however large, may have one cause that is not ours.
MOST_PROOF_A_ROUND: Final = math.log(32.0)
# More failures in one round than this are counted in proportion.
COUNTED_FAILURES: Final = 200


@dataclass(frozen=True)
class Interval:
    """A mean that is known to lie between ``low`` and ``high``."""

    mean: float
    low: float
    high: float


def confidence_sequence(values: Sequence[float], weights: Sequence[float], alpha: float) -> Interval | None:
    """The mean of ``values`` at every moment of the series at once; None before it can be told.

    The asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit
    theory and asymptotic confidence sequences" (2021; Annals of Statistics 52, 2024), theorem 2.2 and equation 24 for
    the best rho::

        mean ± spread · sqrt(2 (t rho² + 1) / (t² rho²) · log(sqrt(t rho² + 1) / alpha))

    With weights, ``t`` is Kish's effective number, (Σ w)² / Σ w². The spread is widened for neighbours that resemble
    each other by (1 + φ) / (1 - φ), φ the lag-one correlation corrected for its bias in short series (Kendall 1954)
    and raised by its standard error, sqrt((1 - φ²) / n), and for short series by (t - 1) / (t - 3) as Student's
    variance.
    """
    total, squares = sum(weights), sum(weight * weight for weight in weights)
    if len(values) < FEWEST_VALUES or total <= 0:
        return None
    times = total * total / squares
    if times < FEWEST_VALUES / 2:
        return None
    mean = sum(weight * value for value, weight in zip(values, weights, strict=True)) / total
    off = [weight * (value - mean) for value, weight in zip(values, weights, strict=True)]
    variance = sum(one * one for one in off) / squares * (times / (times - 1)) * ((times - 1) / (times - 3))
    correlation = _correlation(off)
    spread = max(math.sqrt(variance * (1 + correlation) / (1 - correlation)), LEAST_SPREAD)
    rho = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / SHARPEST_AT  # rho²
    grown = times * rho + 1
    half = spread * math.sqrt(2 * grown / (times * times * rho) * math.log(math.sqrt(grown) / alpha))
    return Interval(mean, mean - half, mean + half)


def _correlation(off: Sequence[float]) -> float:
    """Of neighbours, as far as the series can tell, rather too high than too low."""
    squares = sum(one * one for one in off)
    found = sum(one * other for one, other in pairwise(off)) / squares if squares > 0 else 0.0
    found = min(MOST_CORRELATION, max(0.0, found + (1 + 3 * found) / len(off)))
    return min(MOST_CORRELATION, found + CORRELATION_ERRORS * math.sqrt((1 - found * found) / len(off)))


@dataclass(frozen=True)
class Trials:
    """Failures among all requests, failed ones included, on two sides: of one round, or of several put together, of
    which ``rounds`` had failures on the one side."""

    failed: float
    requests: float
    other_failed: float
    other_requests: float
    rounds: int = 1


def more_failures(rounds: Iterable[Trials]) -> float:
    """Natural logarithm of the evidence that the one side fails more often than the other; log(1 / alpha) or more
    happens with probability ``alpha`` at most, ever, while both fail equally often.

    Given how many fail on both sides together, how many of them are on the one side is hypergeometric while both fail
    equally often, and Fisher's noncentral hypergeometric where the odds differ. The product over rounds of the ratios
    of the two likelihoods is a martingale that starts at 1, so Ville's inequality holds (an e-process: Ramdas,
    Grünwald, Vovk and Shafer, "Game-theoretic statistics and safe anytime-valid inference", 2023); so does their mean
    over :data:`ODDS`, and what is left of it after each factor is cut at :data:`MOST_PROOF_A_ROUND`.
    """
    grown = [0.0] * len(ODDS)
    for one in rounds:
        if one.failed + one.other_failed <= 0:
            continue
        for place, proof in enumerate(_proof(*_counted(one))):
            grown[place] += min(proof, max(1, one.rounds) * MOST_PROOF_A_ROUND)
    top = max(grown)
    return top + math.log(sum(math.exp(each - top) for each in grown) / len(grown))


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

"""Arrival rates: how many requests a second came, and how sure that is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from enginewright.core.signals import Sample

# Spans in samples over which a rate is taken; each is about twice the one before.
SPANS = (2, 4, 8, 16, 32)
# A short span speaks up only where its rate is so many standard deviations above a longer one's: by chance, once in
# 30,000.
SURE = 4.0
# Scrapes are not a second apart to the last digit.
ROUNDING = 0.05


class Interval(NamedTuple):
    """``arrived`` requests in the ``seconds`` before ``time``."""

    time: float
    seconds: float
    arrived: float


def intervals(samples: Sequence[Sample], seconds: float = math.inf, least: int = 0) -> tuple[Interval, ...]:
    """What is known of arrivals, oldest first; a sample that cannot tell leaves a gap, which is not a zero. Of the last
    ``seconds``, counted from the newest, and before that until there are ``least``."""
    found: list[Interval] = []
    for sample, before in itertools.pairwise(reversed(samples)):
        if found and sample.time < found[0].time - seconds and len(found) >= least:
            break
        spanned = sample.time - before.time
        if sample.arrived is not None and spanned > 0:
            found.append(Interval(sample.time, spanned, sample.arrived))
    return tuple(reversed(found))


def merged(seen: Sequence[Interval], seconds: float, most: int | None = None) -> list[Interval]:
    """Neighbours added up until they cover ``seconds``, counted back from the newest; oldest first, without gaps. Not
    more than ``most``, the newest."""
    found: list[Interval] = []
    arrived = covered = time = 0.0
    for one in reversed(seen):
        if len(found) == most:
            break
        time = time if covered else one.time
        arrived, covered = arrived + one.arrived, covered + one.seconds
        if covered >= seconds * (1 - ROUNDING):
            found.append(Interval(time, covered, arrived))
            arrived = covered = 0.0
    return found[::-1]


def since(seen: Sequence[Interval], seconds: float) -> Sequence[Interval]:
    """Those of the last ``seconds``, counted from the newest."""
    if not seen:
        return seen
    return [one for one in seen if one.time > seen[-1].time - seconds]


def covered(seen: Sequence[Interval]) -> float:
    """Seconds from the begin of the oldest to the end of the newest."""
    return seen[-1].time - seen[0].time + seen[0].seconds if seen else 0.0


def rate(seen: Sequence[Interval]) -> float:
    seconds = math.fsum(one.seconds for one in seen)
    return math.fsum(one.arrived for one in seen) / seconds if seconds else 0.0


def dispersion(seen: Sequence[Interval]) -> float:
    """Index of dispersion of counts, 1 for Poisson arrivals, over the time between two samples. From differences of
    neighbours (von Neumann, 1941), which a trend hardly moves, each against what Poisson arrivals of the same rate
    would make of intervals so long. What lies on both sides of a gap are no neighbours."""
    mean = rate(seen)
    pairs = [(a, b) for a, b in itertools.pairwise(seen) if b.time - b.seconds - a.time <= ROUNDING * b.seconds]
    if not pairs or mean <= 0:
        return 1.0
    squares = ((b.arrived / b.seconds - a.arrived / a.seconds) ** 2 / (1 / a.seconds + 1 / b.seconds) for a, b in pairs)
    return max(1.0, math.fsum(squares) / len(pairs) / mean)


def dispersion_over(seen: Sequence[Interval], patience: float, spread: float) -> float:
    """Index of dispersion over ``patience`` seconds, where ``spread`` is that between samples: of a rate that changes
    from sample to sample only, the excess over Poisson grows with the time that is looked at."""
    if not seen:
        return 1.0
    return 1.0 + (spread - 1.0) * min(1.0, patience / seen[-1].seconds)


def level(seen: Sequence[Interval], spread: float) -> float:
    """The rate of now: the longest span's, unless a shorter one's is higher by more than chance explains; then that
    one's. A fall shows as slowly as the longest span forgets, a rise as soon as it is sure."""
    now = rate(seen[-SPANS[-1]:])
    for span in reversed(SPANS[:-1]):
        recent = seen[-span:]
        seconds = math.fsum(one.seconds for one in recent)
        if len(recent) == span and rate(recent) > now + SURE * math.sqrt(spread * max(now, 1 / seconds) / seconds):
            now = rate(recent)
    return now


def highest(seen: Sequence[Interval]) -> float:
    """The largest rate of any span, by chance or not."""
    return max((rate(seen[-span:]) for span in SPANS if span <= len(seen)), default=rate(seen))

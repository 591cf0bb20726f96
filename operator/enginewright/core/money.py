"""What live traffic costs: the price of what was served, what is idle, and what the source model would cost instead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from enginewright.core.cost import HOUR, per_million
from enginewright.core.signals import MINUTE, Sample, of_last_minute

# The rate is that of the last minute, and known only where half of it was seen.
SEEN = MINUTE / 2


@dataclass(frozen=True, kw_only=True)
class Paid:
    """``capacity`` is what one replica answers within the objective, in inferences a second, or in tokens of a language
    model's answers; ``speedup`` what the build measured over the source model. ``least`` is minReplicas."""

    replicas: int
    least: int
    capacity: float
    speedup: float | None
    price_per_hour: float


def served_rate(samples: Sequence[Sample], now: float) -> float | None:
    """Inferences, or tokens, a second over the minute before ``now`` (seconds of the samples' clock, oldest first).
    None where less than half a minute was seen, or replicas did not answer in most samples."""
    recent = of_last_minute(samples, now)
    if not recent or (span := recent[-1].time - recent[0].time) < SEEN:
        return None
    figures = [one.inferences for one in recent[1:] if one.inferences is not None]
    # What a replica answered while it was silent, it tells afterwards.
    return sum(figures) / span if 2 * len(figures) >= len(recent) - 1 else None


def per_million_served(paid: Paid, rate: float) -> float | None:
    """Idle replicas included. None while nothing is served."""
    return per_million(paid.replicas * paid.price_per_hour, rate) if rate > 0 else None


def idle_share(paid: Paid, rate: float) -> float | None:
    """Of what all replicas can answer within the objective, 0 to 1. None without a replica."""
    most = paid.replicas * paid.capacity
    return min(1.0, max(0.0, 1 - rate / most)) if most > 0 else None


def replicas_for(paid: Paid, rate: float) -> tuple[int, int]:
    """How many replicas ``rate`` takes, of the engine and of the source model, whose capacity is the engine's by its
    speed-up. Both have ``least`` at least."""
    engine = math.ceil(rate / paid.capacity)
    source = math.ceil(rate * (paid.speedup or 1.0) / paid.capacity)
    return max(paid.least, engine), max(paid.least, source)


def saved_per_hour(paid: Paid, rate: float) -> float | None:
    """What the replicas of the source model would cost beyond those of the engine. None where the build has not
    compared the two; 0 where both take as many, below 0 never."""
    if paid.speedup is None:
        return None
    engine, source = replicas_for(paid, rate)
    return max(0, source - engine) * paid.price_per_hour


def build_price(price_per_hour: float, build_seconds: float) -> float:
    """Of a build on the devices of one replica."""
    return price_per_hour * build_seconds / HOUR


def paid_back_hours(price: float, saved: float) -> float | None:
    """After how many hours of this traffic a build of ``price`` has paid for itself; None: never."""
    return price / saved if saved > 0 else None

"""Loads of an hour, made by chance: arrivals in seconds, of a Poisson process whose rate changes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

HOUR = 3600.0


def arrivals(rate: Callable[[float], float], most: float, draw: random.Random) -> list[float]:
    """By thinning a process of rate ``most`` (Lewis and Shedler, 1979). Requests a second."""
    now, found = 0.0, []
    while (now := now + draw.expovariate(most)) < HOUR:
        if draw.random() * most < rate(now):
            found.append(now)
    return found


def diurnal(draw: random.Random) -> list[float]:
    """A day in an hour."""
    return arrivals(lambda now: 60 - 50 * math.cos(2 * math.pi * now / HOUR), 110, draw)


def ramps(draw: random.Random) -> list[float]:
    """Five minutes up, three at the top, five down, two at the bottom."""
    return arrivals(lambda now: 10 + 90 * max(0.0, min(1.0, now % 900 / 300, (780 - now % 900) / 300)), 100, draw)


def bursts(draw: random.Random) -> list[float]:
    """20 to 90 seconds at three times the base, about every six minutes, each rising within 15 s."""
    spans = SPANS["bursts"](draw)
    return arrivals(
        lambda now: 30 + 60 * max((min(1.0, (now - start) / 15) for start, end in spans if start <= now < end),
                                  default=0.0), 90, draw)


def on_off(draw: random.Random) -> list[float]:
    """Two minutes on and three off, on average, without warning."""
    spans = SPANS["on and off"](draw)
    return arrivals(lambda now: 80 if any(start <= now < end for start, end in spans) else 2, 80, draw)


def spikes(draw: random.Random) -> list[float]:
    """15 to 50 seconds of any height, about every six minutes: over before a slow replica is there."""
    spans = spans_of(draw, 300, lambda: draw.uniform(15, 50))
    high = [draw.uniform(10, 60) for _ in spans]
    return arrivals(
        lambda now: 40 + max((more for (start, end), more in zip(spans, high, strict=True) if start <= now < end),
                             default=0.0), 100, draw)


def rare_spikes(draw: random.Random) -> list[float]:
    """5 seconds and more, half a minute on average, on a low base, most of them low."""
    spans = spans_of(draw, 250, lambda: 5 + draw.expovariate(1 / 25))
    high = [min(60.0, 10 * draw.paretovariate(1.3)) for _ in spans]
    return arrivals(
        lambda now: 15 + max((more for (start, end), more in zip(spans, high, strict=True) if start <= now < end),
                             default=0.0), 75, draw)


def short_bursts(draw: random.Random) -> list[float]:
    """15 to 60 seconds of twice to 4.5 times the base, about every four minutes, each rising within 5 s."""
    spans = SPANS["short bursts"](draw)
    high = [20 * draw.uniform(1, 3.5) for _ in spans]
    return arrivals(
        lambda now: 20 + max((more * min(1.0, (now - start) / 5)
                              for (start, end), more in zip(spans, high, strict=True) if start <= now < end),
                             default=0.0), 90, draw)


def wandering(draw: random.Random) -> list[float]:
    """A rate without any shape, which forgets where it was within three minutes (Ornstein and Uhlenbeck, of its
    logarithm)."""
    logs = [0.0]
    for _ in range(int(HOUR)):
        logs.append(logs[-1] * (1 - 1 / 200) + draw.gauss(0, 0.03))
    return arrivals(lambda now: min(110, 45 * math.exp(logs[int(now)])), 110, draw)


def saw(draw: random.Random) -> list[float]:
    """Seven minutes up, and down at once."""
    return arrivals(lambda now: 15 + 65 * (now % 420 / 420), 80, draw)


def spans_of(draw: random.Random, pause: float, length: Callable[[], float]) -> list[tuple[float, float]]:
    """Of an hour: each ``length`` seconds, after ``pause`` on average."""
    now, found = 0.0, []
    while now < HOUR:
        start = now + draw.expovariate(1 / pause)
        now = start + length()
        found.append((start, now))
    return found


# When each burst begins and ends: what its load draws first.
SPANS: dict[str, Callable[[random.Random], list[tuple[float, float]]]] = {
    "bursts": lambda draw: spans_of(draw, 300, lambda: draw.uniform(20, 90)),
    "on and off": lambda draw: spans_of(draw, 180, lambda: draw.expovariate(1 / 120)),
    "short bursts": lambda draw: spans_of(draw, 180, lambda: draw.uniform(15, 60)),
}
LOADS = {"diurnal": diurnal, "ramps": ramps, "bursts": bursts, "on and off": on_off}
# Nothing of the rule was chosen by these.
HELD_OUT = {"short bursts": short_bursts, "spikes": spikes, "rare spikes": rare_spikes, "wandering": wandering,
            "saw": saw}
# Seconds of cold start; 60 where nothing is said.
COLD = {"short bursts": 20.0}

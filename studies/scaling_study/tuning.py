"""Loads to choose by: constants of the rule are tried on these and on other seeds of bursts, not on the page's own."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from scaling_study.loads import HOUR, arrivals, spans_of

# Seeds of bursts, of which the other tables have 1 to 20.
SEEDS = range(101, 109)

# Seconds or requests a second, drawn for each burst.
Drawn = Callable[[random.Random], float]
Load = Callable[[random.Random], list[float]]


def bursty(base: float, pause: float, length: Drawn, height: Drawn, rise: float) -> Load:
    """On top of ``base``, with ``pause`` seconds in between on average, each rising within ``rise`` seconds."""

    def made(draw: random.Random) -> list[float]:
        spans = spans_of(draw, pause, lambda: length(draw))
        high = [height(draw) for _ in spans]

        def rate(now: float) -> float:
            return base + max((more * min(1.0, (now - start) / rise)
                               for (start, end), more in zip(spans, high, strict=True) if start <= now < end),
                              default=0.0)

        return arrivals(rate, base + max(high), draw)

    return made


def between(low: float, high: float) -> Drawn:
    return lambda draw: draw.uniform(low, high)


def restless(draw: random.Random) -> list[float]:
    """A rate without any shape that forgets where it was within three minutes."""
    logs = [0.0]
    for _ in range(int(HOUR)):
        logs.append(logs[-1] * (1 - 1 / 150) + draw.gauss(0, 0.04))
    return arrivals(lambda now: min(110, 40 * math.exp(logs[int(now)])), 110, draw)


TUNING: dict[str, Load] = {
    "steep bursts": bursty(20, 150, between(10, 50), between(15, 70), 5),
    "mild bursts": bursty(25, 240, between(20, 70), between(20, 65), 8),
    "sudden bursts": bursty(15, 200, between(15, 60), between(10, 60), 3),
    "fast on and off": bursty(5, 60, lambda draw: draw.expovariate(1 / 60), between(60, 70), 1),
    "restless": restless,
    "high spikes": bursty(35, 280, between(15, 45), between(10, 60), 1),
    "long spikes": bursty(20, 400, between(40, 150), between(20, 70), 10),
    "many spikes": bursty(15, 200, lambda draw: 5 + draw.expovariate(1 / 30), between(10, 50), 1),
}
# Seconds of cold start; 20 where nothing is said.
COLD = dict.fromkeys(("high spikes", "long spikes", "many spikes"), 60.0)

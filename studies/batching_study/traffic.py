"""Phases of traffic: who asks, and when. A mix shift is one phase after another."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# A client is so many times slower than usual for a share of its requests: that is what parts a crowd.
STALL = 20.0


@dataclass(frozen=True, kw_only=True)
class Phase:
    """``clients`` ask again about ``think`` seconds after each answer, a share of ``stalls`` much later; 0 clients:
    requests come in groups of ``fan``, spread over ``spread`` seconds, at ``rate`` groups a second (Poisson)."""

    name: str
    seconds: float
    clients: int = 0
    think: float = 0.001
    stalls: float = 0.0
    rate: float = 0.0
    fan: int = 1
    spread: float = 0.0

    def pause(self, draw: random.Random) -> float:
        """Seconds from an answer to the client's next request."""
        return self.think * draw.lognormvariate(0.0, 0.5) * (STALL if draw.random() < self.stalls else 1.0)

    def arrivals(self, seed: int) -> Iterator[float]:
        """Seconds from the start, ascending, without end; for phases without clients."""
        draw = random.Random(seed)  # noqa: S311 - not a secret
        pending: list[float] = []
        group = 0.0
        while True:
            group += draw.expovariate(self.rate)
            while pending and pending[0] <= group:
                yield heapq.heappop(pending)
            for _ in range(self.fan):
                heapq.heappush(pending, group + draw.uniform(0, self.spread))


def kinds(alone: float, stalls: float = 0.0) -> dict[str, Callable[[float], Phase]]:
    """By name, made for so many seconds. ``alone`` is what one request alone takes: rates and pauses are in units of
    it, so that one study fits all models."""

    def crowd(clients: int) -> Callable[[float], Phase]:
        return lambda seconds: Phase(name=f"crowd of {clients}", seconds=seconds, clients=clients, think=0.1 * alone,
                                     stalls=stalls)

    return {
        "lone": lambda seconds: Phase(name="lone requests", seconds=seconds, rate=0.1 / alone),
        "crowd 4": crowd(4), "crowd 8": crowd(8), "crowd 12": crowd(12),
        "fans of 8": lambda seconds: Phase(name="fans of 8", seconds=seconds, rate=0.15 / alone, fan=8,
                                           spread=0.2 * alone),
        "stream": lambda seconds: Phase(name="stream", seconds=seconds, rate=1.2 / alone),
    }


def mixes(seed: int, alone: float, seconds: float, phases: int, stalls: float = 0.0) -> list[Phase]:
    """``phases`` kinds drawn by lot, none twice in a row."""
    draw = random.Random(seed)  # noqa: S311 - not a secret
    made, names = kinds(alone, stalls), [""]
    while len(names) <= phases:
        names.append(draw.choice([name for name in made if name != names[-1]]))
    return [made[name](seconds) for name in itertools.islice(names, 1, None)]

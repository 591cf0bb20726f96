"""Made-up requests to two revisions of a language model: answers begin in one second, and end in a later one."""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from enginewright.core.comparison import Limits, Question
from enginewright.core.signals import Round, Traffic
from enginewright.core.tokens import Tokens
from support.traffic import poisson

FIRST_BOUNDS = (10.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 10_000.0, math.inf)
PACE_BOUNDS = (10.0, 25.0, 50.0, 100.0, 200.0, 500.0, math.inf)
TEXTS = Question(key="k", stable="old", candidate="new", model="m", generates=True,
                 limits=Limits(alike=True, first_token=1000.0, per_token=100.0))


@dataclass(frozen=True, kw_only=True)
class Text:
    """``rate`` is requests a second of one replica; ``share`` what a candidate's replica gets of that. ``first`` and
    ``pace`` are the usual milliseconds until the first token and per token, ``length`` the mean number of tokens, of
    which ``most`` end an answer. ``leaving`` is the share of requests that clients leave. What begins with ``new`` is
    the candidate's alone and multiplies these. ``weather`` hits both, ``stalls`` is the share of seconds in which one
    replica begins to stall for three. ``slow`` of the candidate's requests take ten times as long until the first
    token."""

    rate: float = 5.0
    share: float = 1.0
    replicas: int = 1
    first: float = 200.0
    pace: float = 30.0
    length: float = 40.0
    most: int = 150
    leaving: float = 0.01
    weather: float = 0.3
    stalls: float = 0.0
    new_first: float = 1.0
    new_pace: float = 1.0
    new_length: float = 1.0
    new_leaving: float = 1.0
    slow: float = 0.0


@dataclass
class _Server:
    """Answers that have begun and not ended, by the second in which they will have."""

    load: Text
    new: bool
    chance: random.Random
    stalled: int = 0
    ends: dict[int, list[tuple[int, float]]] = field(default_factory=dict)

    def second(self, now: int, weather: float) -> Traffic:
        load, chance = self.load, self.chance
        self.stalled = 3 if chance.random() < load.stalls else max(0, self.stalled - 1)
        factor = math.exp(weather) * (4.0 if self.stalled else 1.0)
        begun = [self._begin(now, factor) for _ in range(poisson(chance, load.rate * (load.share if self.new else 1)))]
        ended = self.ends.pop(now, [])
        leaving = load.leaving * (load.new_leaving if self.new else 1.0)
        stay = [one for one in ended if chance.random() >= leaving]
        tokens = Tokens(
            begun=len(begun), waited=1000 * sum(begun), ended=len(stay), generated=sum(length for length, _ in stay),
            cut=sum(length == load.most for length, _ in stay), paced=sum(length > 1 for length, _ in stay),
            pace=1000 * sum(pace for length, pace in stay if length > 1), gone=len(ended) - len(stay),
            begun_within=_within(begun, FIRST_BOUNDS),
            paced_within=_within([pace if length > 1 else 0.0 for length, pace in stay], PACE_BOUNDS))
        return Traffic(requests=len(stay), busy=1e6 * len(stay), queued=0.0, replicas=1, tokens=tokens)

    def _begin(self, now: int, factor: float) -> float:
        """Milliseconds until the first token."""
        load, chance = self.load, self.chance
        first = load.first * factor * chance.lognormvariate(0, 0.4) * (load.new_first if self.new else 1.0)
        first *= 10 if self.new and chance.random() < load.slow else 1
        pace = load.pace * factor * chance.lognormvariate(0, 0.15) * (load.new_pace if self.new else 1.0)
        mean = load.length * (load.new_length if self.new else 1.0)
        length = min(load.most, 1 + int(chance.expovariate(1 / mean)))
        self.ends.setdefault(now + round((first + length * pace) / 1000), []).append((length, pace))
        return first


def _within(values: list[float], bounds: tuple[float, ...]) -> dict[float, float]:
    ordered = sorted(values)
    return {bound: float(bisect.bisect_right(ordered, bound)) for bound in bounds}


def text_rounds(load: Text, seed: int, seconds: int = 310) -> Iterator[Round]:
    chance = random.Random(seed)
    servers = [_Server(load, place == 0, chance) for place in range(load.replicas + 1)]
    weather = 0.0
    for now in range(seconds):
        weather = 0.8 * weather + chance.gauss(0, load.weather * 0.6)
        new, *old = [server.second(now, weather) for server in servers]
        yield Round(time=float(now), traffic={"new": new, "old": sum(old[1:], old[0])})

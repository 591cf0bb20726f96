"""Made-up traffic on two revisions behind one Service, second by second: noisy, uneven, alike or not."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from enginewright.core.comparison import Answer, Question, compare
from enginewright.core.signals import ProbeResults, Round, SignalWindow, Traffic

QUESTION = Question(key="k", stable="old", candidate="new", model="m")
AGREEING = ProbeResults(pairs=8, similarities=(0.999,) * 8)


@dataclass(frozen=True, kw_only=True)
class Load:
    """``slower`` multiplies the candidate's latencies. ``rate`` is requests a second of one replica; ``share`` what a
    candidate's replica gets of that. ``tail`` is sigma of one request's log-normal latency, ``weather`` that of what
    hits both in the same second, ``own`` and ``memory`` size and lag-one correlation of what hits each replica alone.
    ``stalls`` is the share of seconds in which a replica takes ten times as long."""

    slower: float = 1.0
    rate: float = 20.0
    share: float = 1.0
    replicas: int = 1
    tail: float = 1.0
    weather: float = 0.3
    own: float = 0.1
    memory: float = 0.5
    stalls: float = 0.0
    errors: float = 0.0
    candidate_errors: float = 0.0
    milliseconds: float = 10.0


def rounds(load: Load, seed: int, seconds: int = 600) -> Iterator[Round]:
    chance = random.Random(seed)
    own = [0.0] * (load.replicas + 1)
    weather = 0.0
    for second in range(seconds):
        weather = 0.8 * weather + chance.gauss(0, load.weather * 0.6)
        fresh = load.own * math.sqrt(1 - load.memory**2)
        own = [load.memory * state + chance.gauss(0, fresh) for state in own]
        parts = []
        for place, state in enumerate(own):
            mine = place == 0
            rate = load.rate * (load.share if mine else 1.0)
            factor = math.exp(weather + state) * (load.slower if mine else 1.0)
            if chance.random() < load.stalls:
                factor *= 10
            wrong = load.errors + (load.candidate_errors if mine else 0.0)
            parts.append(_second(chance, rate, factor * load.milliseconds, load.tail, wrong))
        yield Round(time=float(second), traffic={"new": parts[0], "old": sum(parts[1:], Traffic())})


def _second(chance: random.Random, rate: float, milliseconds: float, tail: float, wrong: float) -> Traffic:
    arrived = poisson(chance, rate)
    failed = sum(chance.random() < wrong for _ in range(arrived))
    # Half of a request's latency is its own, half is common to all: batches, padding, the wire.
    busy = sum(
        1000 * milliseconds * (0.5 + 0.5 * chance.lognormvariate(-tail * tail / 2, tail))
        for _ in range(arrived - failed)
    )
    return Traffic(requests=arrived - failed, failed=failed, busy=busy, queued=busy / 4, replicas=1)


def poisson(chance: random.Random, rate: float) -> int:
    if rate > 50:
        return max(0, round(chance.gauss(rate, math.sqrt(rate))))
    bound, count, product = math.exp(-rate), 0, chance.random()
    while product > bound:
        count += 1
        product *= chance.random()
    return count


def watch(load: Load, seed: int, *, every: int = 2, seconds: int = 300, question: Question = QUESTION) -> Answer:
    """What the analysis of ``load`` comes to within so many ``seconds``: see :func:`looked_at`."""
    return looked_at(rounds(load, seed, seconds), question, every)


def looked_at(coming: Iterable[Round], question: Question, every: int = 2) -> Answer:
    """What the analysis comes to when it is looked at ``every`` so many rounds, after the first minute a fifth as
    often."""
    window = SignalWindow(started=0, analysis="k", probes=AGREEING)
    seen: list[Round] = []
    for one in coming:
        seen.append(one)
        if len(seen) % (every if len(seen) < 60 else 5 * every) == 0:
            answer = compare(replace(window, rounds=tuple(seen)), question)
            if answer.verdict != "open":
                return answer
    return compare(replace(window, rounds=tuple(seen)), question)

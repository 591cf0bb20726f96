"""Load on one server, and which of the server's settings are tried next. All but :func:`measure` is pure.

What counts is goodput where there is an objective, else tokens a second, at the number of parallel requests where it is
highest. Each level asks the user's own prompts from the first on, with a salt of its own: what one level left in the
prefix cache answers no other, but prompts of one level that begin alike share it, as they do in serving.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.client import Ask, Client
from enginewright_builder.generate.figures import Figures, Objective, figures
from enginewright_builder.generate.layers import Layers, cached_tokens, layers
from enginewright_builder.generate.load import closed_loop
from enginewright_builder.generate.speculation import Speculated, speculated
from enginewright_builder.sweep.objective import requests_to_decide, requests_to_show

# Requests in flight; at each level as many times that many are sent.
LEVELS, ROUNDS, FEWEST = (1, 4, 16, 64, 256), 2, 4
Metrics = Callable[[], Awaitable[str]]
# A level that gains less than this over the one before ends the measurement: the server is full.
FULL = 1.05
# A setting that gains less stays out: two measurements of one server differ by as much.
LEAST_GAIN = 1.03


@dataclass(frozen=True, kw_only=True)
class Aim:
    """``percentile`` of the requests are to meet the objective."""

    objective: Objective
    percentile: float = 99.0

    @property
    def asked(self) -> bool:
        return bool(self.objective.ttft_ms or self.objective.tpot_ms)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One load: so many requests in flight, and what it came to. ``value`` is what is compared: requests a second that
    meet the objective, or tokens a second where none is asked for; ``meets``: so many meet it as were asked for.
    ``cached_tokens`` of the prompts were answered by the prefix cache; ``speculated`` is None where nothing was.
    ``again`` are the requests of a load that was put on once more, after it had been chosen, which count alone; 0 of
    others. Its ``value`` is of requests as many as those of the sweep, so that they are alike."""

    concurrency: int
    figures: Figures
    value: float
    meets: bool
    layers: Layers | None = None
    cached_tokens: float = 0.0
    speculated: Speculated | None = None
    again: int = 0

    @property
    def rank(self) -> tuple[bool, float]:
        return self.meets, self.value


def point(concurrency: int, found: Figures, aim: Aim, spent: Layers | None = None) -> Point:
    """A load in which a request failed meets nothing."""
    if not aim.asked:
        return Point(concurrency=concurrency, figures=found, value=found.output_rate, meets=not found.failed,
                     layers=spent)
    return Point(concurrency=concurrency, figures=found, value=found.goodput, layers=spent,
                 meets=not found.failed and found.within * 100 >= aim.percentile)


def best(points: Sequence[Point]) -> Point:
    """Of equal ones that of the fewest requests in flight."""
    return max(points, key=lambda one: (*one.rank, -one.concurrency))


def shown(found: Point, aim: Aim) -> bool:
    """Whether the objective is met, of enough requests to say so."""
    return found.meets and (not aim.asked or found.again >= requests_to_show(aim.percentile, found.figures.late))


def to_show(found: Point, aim: Aim) -> int:
    """How many requests it takes to say that the objective is met, where fewer kept it; else 0."""
    if shown(found, aim) or not found.meets or not aim.asked:
        return 0
    return requests_to_show(aim.percentile, found.figures.late if found.again else 0)


def gains(new: Point, old: Point, least: float = LEAST_GAIN) -> bool:
    """Whether ``new`` is better by more than what measurements differ by."""
    if new.meets != old.meets:
        return new.meets
    return new.value > old.value * least


async def measure(client: Client, asks: Sequence[Ask], aim: Aim, *, seconds: float, metrics: Metrics,
                  levels: Sequence[int] = LEVELS, name: str = "") -> list[Point]:
    """Rising ``levels``, until one gains little, breaks the objective, or ``seconds`` are over; one at least. A request
    that is not counted warms the server up. ``metrics`` gets the server's Prometheus page. Loads of different ``name``
    share nothing of the prefix cache."""
    end = time.monotonic() + seconds
    await _warm_up(client, asks)
    points: list[Point] = []
    for level in levels:
        sent = _until(end, _salted(asks, f"{name}{level}"), level)
        points.append(await _load(client, sent, aim, level, ROUNDS * level, metrics))
        if time.monotonic() >= end or is_full(points):
            break
    return points


async def measure_again(client: Client, asks: Sequence[Ask], aim: Aim, level: int, *, seconds: float,
                        metrics: Metrics, name: str = "") -> Point:
    """One load of ``level`` requests in flight, of as many requests as decide on the objective, as far as ``seconds``
    allow."""
    end = time.monotonic() + seconds
    await _warm_up(client, asks)
    sent = _until(end, _salted(asks, f"{name}again.{level}"), level)
    found = await _load(client, sent, aim, level, max(ROUNDS * level, requests_to_decide(aim.percentile)), metrics)
    return dataclasses.replace(found, again=found.figures.requests)


async def _warm_up(client: Client, asks: Sequence[Ask]) -> None:
    await client.stream(dataclasses.replace(asks[0], salt="warm", max_tokens=min(8, asks[0].max_tokens)))


async def _load(client: Client, asks: Iterator[Ask], aim: Aim, level: int, requests: int, metrics: Metrics) -> Point:
    before = await metrics()
    answers = await closed_loop(client, asks, concurrency=level, requests=max(FEWEST, requests))
    found = figures(answers, begin=min(one.due for one in answers), end=max(one.end for one in answers),
                    objective=aim.objective)
    after = await metrics()
    return dataclasses.replace(point(level, found, aim, layers(before, after, answers)),
                               cached_tokens=cached_tokens(before, after), speculated=speculated(before, after))


def is_full(points: Sequence[Point]) -> bool:
    """Whether more requests in flight would gain nothing."""
    last = points[-1]
    return not last.meets or (len(points) > 1 and last.value < points[-2].value * FULL)


def _salted(asks: Sequence[Ask], load: str) -> Iterator[Ask]:
    for repeat in itertools.count():
        for ask in asks:
            yield dataclasses.replace(ask, salt=f"{load}.{repeat}")


def _until(end: float, asks: Iterator[Ask], least: int) -> Iterator[Ask]:
    """``least`` requests in any case: a level with fewer in flight would be another one."""
    for number, ask in enumerate(asks):
        if number >= least and time.monotonic() >= end:
            return
        yield ask


@dataclass(frozen=True, kw_only=True)
class Move:
    name: str
    change: Mapping[str, Any]

    def applied(self, base: ServerArguments) -> ServerArguments | None:
        """None where ``base`` has left vLLM's own setting already: what was chosen stays."""
        if any(getattr(base, name) is not None for name in self.change):
            return None
        return dataclasses.replace(base, **self.change)


def moves(full: int, *, longest: int, gpu: bool) -> list[Move]:
    """Settings that may serve better than vLLM's own, those that are likely to gain most first. ``full`` is the number
    of requests in flight at which vLLM's own serve best, ``longest`` the longest prompt of the data in tokens. What
    could change nothing is left out: on a GPU vLLM itself takes 2048 or 8192 tokens a step, and as many requests at
    once as are ever sent here."""
    steps = [Move(name=f"{count} tokens a step", change={"max_num_batched_tokens": count})
             for count in ((16384, 1024) if gpu else (8192, 512))]
    many = [Move(name="1024 requests at once", change={"max_num_seqs": 1024})]
    return [
        *(steps if full * longest > 512 else []),
        *([Move(name="16 requests at once", change={"max_num_seqs": 16})] if full > 16 else []),
        *(many if full >= LEVELS[-1] and not gpu else []),
        Move(name="no prefix cache", change={"prefix_caching": False}),
        *([Move(name="whole prompts", change={"chunked_prefill": False})] if longest > 512 else []),
        *([Move(name="95 % of memory", change={"memory_share": 0.95})] if gpu else []),
    ]

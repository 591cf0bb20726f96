"""How far the gate looks, and what it sees there: the reference's answers, and how a configuration chooses after them.

* The **beginnings** of all answers, 16 prompts at once. They are never shortened. The first token counts by itself,
  too: reading the prompt makes it, and decoding the others.
* **Many at once**: beginnings again, with as many requests in flight as the configuration may run.
* **Whole answers**, those that may be longest first, with as many in flight. Their tokens are judged in stretches: what
  goes wrong after hundreds of them would be lost in the mean of all.

The last two have a time each, and how much fits into it is reckoned from how fast the reference was. What they do not
reach :mod:`enginewright_builder.generate.reach` says.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from enginewright_builder.generate.answer import Step
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.client import Ask, Client
from enginewright_builder.generate.gate import (
    Compared,
    Judgement,
    Record,
    Scored,
    Where,
    check_floor,
    check_part_of_floor,
    judge,
    score,
)
from enginewright_builder.generate.teacher import Prompt, hold, record

# Tokens of each beginning, and how many prompts are decoded at once.
TOKENS, AT_ONCE = 32, 16
# The reference is held against itself with this part of as many at once, and whole answers in so many times the time.
FLOOR_PART, FLOOR_TIMES = 4, 2
# So many requests are in flight at most where a configuration leaves it to vLLM: as in the largest load.
MANY = 256
# Tokens of whole answers at most: the build has the twenty most likely at each of them in its memory.
MOST_TOKENS = 50_000
# Numbers of tokens after which another stretch begins.
STRETCHES = (TOKENS, 128, 512, 2048, 8192, 32768)

Held = Sequence[Sequence[Step]]


@dataclass(frozen=True, kw_only=True)
class Yardstick:
    """What the reference chose, and how it chose when it was held against that. ``records`` are the beginnings of all
    answers, and ``floor`` is their scores. ``many`` has choices at these again, of many requests at once; ``whole``
    whole answers, and ``whole_held`` choices at those. A configuration has ``seconds`` for each of the last two, into
    which so many requests for a beginning fit as ``fits`` says. ``longest``: the largest number of tokens that a prompt
    asks for; ``going_on`` answers have more than their beginning, and ``cut`` of ``whole`` more than was compared."""

    records: tuple[Record, ...]
    floor: tuple[Scored, ...]
    tolerance: float
    held: Held = ()
    many: Held = ()
    whole: tuple[Record, ...] = ()
    whole_held: Held = ()
    seconds: float = 0.0
    fits: int = 0
    longest: int = 0
    going_on: int = 0
    cut: int = 0

    def at_once(self, arguments: ServerArguments) -> int:
        """How many requests of a configuration are compared together: as many as it may run, and as fit."""
        return max(AT_ONCE, min(arguments.max_num_seqs or MANY, self.fits))

    def first(self, held: Held) -> list[Compared]:
        """The first token: right or wrong of each prompt, so that it has to prove nothing by itself."""
        return _compared(self.records, self.held, held, 0, 1, AT_ONCE, proves=False)

    def with_many(self, held: Held, at_once: int) -> list[Compared]:
        return _compared(self.records, self.many, held, 0, TOKENS, at_once)

    def stretches(self, held: Held, at_once: int) -> list[Compared]:
        return [part for begin, end in itertools.pairwise((*STRETCHES, sys.maxsize))
                for part in _compared(self.whole, self.whole_held, held, begin, end, at_once)]

    def parts_of_itself(self, arguments: ServerArguments) -> list[Compared]:
        """Of the reference, which has ``arguments``."""
        at_once = self.at_once(arguments)
        return [*self.first(self.held), *self.with_many(self.many, at_once), *self.stretches(self.whole_held, at_once)]


async def yardstick(client: Client, asks: Sequence[Ask], arguments: ServerArguments, *, tolerance: float,
                    seconds: float) -> tuple[Yardstick, float]:
    """And the seconds that a configuration as fast takes by it. ``seconds`` are for each of what follows the
    beginnings. Raises :class:`UserError` as :func:`check_floor` does, and what the server raises."""
    began = time.monotonic()
    records = await record(client, [prompt_of(one) for one in asks], [min(TOKENS, one.max_tokens) for one in asks],
                           concurrency=AT_ONCE)
    took = time.monotonic() - began
    # It reads the prompts once more, as a configuration does: what it has in its prefix cache would hide some noise.
    held = await hold(client, records, concurrency=AT_ONCE // FLOOR_PART, salts=["floor"] * len(records))
    found = Yardstick(records=tuple(records), floor=_scored(records, held), held=held, tolerance=tolerance,
                      seconds=seconds, fits=int(seconds / took * len(records)),
                      longest=max(one.max_tokens for one in asks))
    check_floor(found.floor, tolerance)
    found, took_many = await _many(client, found, found.at_once(arguments))
    rate = sum(len(one.steps) for one in records) / took
    fastest = max(rate, sum(map(len, found.many)) / took_many if took_many else 0.0)
    found, took_whole = await _whole(client, found, asks, found.at_once(arguments),
                                     tokens=min(MOST_TOKENS, seconds * fastest), most=int(seconds * rate / AT_ONCE))
    for part in found.parts_of_itself(arguments):
        check_part_of_floor(part, tolerance)
    return found, took + took_many + took_whole


async def _many(client: Client, found: Yardstick, at_once: int) -> tuple[Yardstick, float]:
    if at_once <= AT_ONCE:
        return found, 0.0
    began = time.monotonic()
    many = await _hold_many(client, found, at_once)
    return dataclasses.replace(found, many=many), time.monotonic() - began


async def _hold_many(client: Client, found: Yardstick, at_once: int) -> list[list[Step]]:
    """Choices at the beginnings, of all prompts again and again until so many are in flight. Other salts have the
    prompts read once more, many together."""
    times = math.ceil(at_once / len(found.records))
    return await hold(client, found.records * times, concurrency=at_once, seconds=found.seconds,
                      salts=[f"many.{turn}" for turn in range(times) for _ in found.records])


async def _whole(client: Client, found: Yardstick, asks: Sequence[Ask], at_once: int, *, tokens: float,
                 most: int) -> tuple[Yardstick, float]:
    """The reference's whole answers, as :func:`planned` has them, and what it chooses at them with less at once."""
    going_on = [place for place, one in enumerate(found.records)
                if len(one.steps) == TOKENS < asks[place].max_tokens]
    chosen = planned([asks[place].max_tokens for place in going_on], tokens=tokens, most=most)
    found = dataclasses.replace(found, going_on=len(going_on))
    if not chosen:
        return found, 0.0
    began, places = time.monotonic(), [going_on[number] for number in chosen]
    limits = list(chosen.values())
    whole = await record(client, [prompt_of(asks[place]) for place in places], limits, concurrency=at_once,
                         salt="whole")
    took = time.monotonic() - began
    held = await hold(client, whole, concurrency=max(1, at_once // FLOOR_PART), salts=["held"] * len(whole),
                      seconds=FLOOR_TIMES * found.seconds)
    cut = sum(len(one.steps) == limit < asks[place].max_tokens
              for one, limit, place in zip(whole, limits, places, strict=True))
    return dataclasses.replace(found, whole=tuple(whole), whole_held=held, cut=cut), took


def planned(longest: Sequence[int], *, tokens: float, most: int) -> dict[int, int]:
    """Which answers are compared whole, by their numbers, and how many tokens of each: those that may be longest first,
    as far as ``tokens`` of all go. ``longest`` are the tokens that each may have; ``most`` of one are made in the
    time, whatever else is not."""
    left, found = int(tokens), dict[int, int]()
    for number in sorted(range(len(longest)), key=lambda one: -longest[one]):
        limit = min(longest[number], most, left)
        if limit <= TOKENS:
            break
        found[number] = limit
        left -= limit
    return found


async def compared(client: Client, found: Yardstick, arguments: ServerArguments) -> tuple[Judgement, Held]:
    """What the gate says of a configuration, and its choices at the beginnings. One that is refused by these
    gets no more requests. Raises what the server raises."""
    held = await hold(client, found.records, concurrency=AT_ONCE)
    candidate, parts, at_once = _scored(found.records, held), found.first(held), found.at_once(arguments)
    said = judge(found.floor, candidate, found.tolerance, parts)
    if said.passed and found.many and at_once > AT_ONCE:
        parts += found.with_many(await _hold_many(client, found, at_once), at_once)
        said = judge(found.floor, candidate, found.tolerance, parts)
    if said.passed and found.whole:
        whole = await hold(client, found.whole, concurrency=at_once, salts=["whole"] * len(found.whole),
                           seconds=found.seconds)
        said = judge(found.floor, candidate, found.tolerance, [*parts, *found.stretches(whole, at_once)])
    return said, held


def of_itself(found: Yardstick, arguments: ServerArguments) -> Judgement:
    """What the gate says of the reference."""
    return judge(found.floor, found.floor, found.tolerance, found.parts_of_itself(arguments))


def _compared(records: Sequence[Record], floor: Held, held: Held, begin: int, end: int, at_once: int, *,
              proves: bool = True) -> list[Compared]:
    """Of the prompts that have such places on both sides; none where no prompt has."""
    known, seen = _by_prompt(records, floor, begin, end), _by_prompt(records, held, begin, end)
    both = [number for number in known if number in seen]
    if not both:
        return []
    last = min(end, max(len(records[one].steps) for one in both))
    where = Where(first=begin + 1, last=last, at_once=at_once, proves=proves)
    return [Compared(where=where, floor=[known[one] for one in both], candidate=[seen[one] for one in both])]


def _by_prompt(records: Sequence[Record], held: Held, begin: int, end: int) -> dict[int, Scored]:
    """By the prompt's number. One that was asked several times has the mean of these: ``held`` goes through all prompts
    again and again."""
    found: dict[int, list[Scored]] = {}
    for number, steps in enumerate(held):
        place = number % len(records)
        if len(steps) > begin:
            found.setdefault(place, []).append(score(records[place], steps, begin, end))
    return {place: Scored(agreement=sum(one.agreement for one in scores) / len(scores),
                          divergence=sum(one.divergence for one in scores) / len(scores),
                          places=sum(one.places for one in scores)) for place, scores in found.items()}


def _scored(records: Sequence[Record], held: Held) -> tuple[Scored, ...]:
    return tuple(score(one, steps) for one, steps in zip(records, held, strict=True))


def prompt_of(ask: Ask) -> Prompt:
    """A text or messages: files have no tokens."""
    return cast(Prompt, ask.prompt)

"""One trial: other weights in a real vLLM, the gate's verdict on few prompts, and the truth from many others.

The gate sees the records of few prompts. *Truth* is the same two figures over :data:`POPULATION` prompts that it never
sees. A broken model that the gate refuses counts where what it lost is above the bar by the gate's own prompts. One
that the gate passes is held against the population, and counts as admitted where its loss there is above the bar by two
standard errors: a change without effect is no sabotage. A sound model that the gate refuses counts where the truth is
below the bar by what so many prompts can resolve, ``3/n`` and four standard errors of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from demo.language_model import TOPICS
from enginewright_builder.accuracy.rules import samples_advised
from enginewright_builder.generate.answer import Step
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.client import Client
from enginewright_builder.generate.comparing import AT_ONCE, FLOOR_PART, Yardstick, compared
from enginewright_builder.generate.gate import Judgement, Loss, Record, Scored, score
from enginewright_builder.generate.teacher import Prompt, hold, record
from language_gate.sabotage import SABOTAGES, Change, Weights
from language_gate.server import Reloading, variant
from language_gate.shape import Shape
from language_gate.sound import SOUND

# What may be lost, and so many prompts.
BARS = tuple((tolerance, samples_advised(tolerance)) for tolerance in (0.15, 0.1))
POPULATION, MAX_TOKENS = 150, 8
_STANDARD_ERRORS, _TRUTH_ERRORS = 4, 2
_QUESTIONS = ("Write one sentence about {}.", "What is {} made of?", "Why do people like {}?",
              "Give one word that goes with {}.", "Who first wrote about {}?", "Explain {} to a child.",
              "Is {} older than writing? Answer yes or no, and why.", "Name a poem about {}.",
              "How would you draw {}?", "What does {} cost?", "Where is {} found?")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """``truth`` is the larger of both losses over the population, None where it was not asked."""

    kind: str
    tolerance: float
    prompts: int
    counts: bool
    passed: bool
    lost: float
    truth: float | None = None


def prompts() -> list[Prompt]:
    """All different, those of the gate first."""
    return [({"role": "user", "content": question.format(topic)},) for question in _QUESTIONS for topic in TOPICS]


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What the model itself chose for all prompts, and how far it differs from itself: ``held`` are its choices when it
    was asked again, and ``floor`` their scores."""

    records: Sequence[Record]
    held: Sequence[Sequence[Step]]
    floor: Sequence[Scored]

    @classmethod
    async def of(cls, client: Client) -> Reference:
        records = await record(client, prompts(), MAX_TOKENS, concurrency=AT_ONCE)
        held = await hold(client, records, concurrency=AT_ONCE // FLOOR_PART)
        return cls(records=records, held=held,
                   floor=[score(one, steps) for one, steps in zip(records, held, strict=True)])

    def yardstick(self, which: slice, tolerance: float) -> Yardstick:
        """Without time for more than the beginnings of answers, which these are."""
        return Yardstick(records=tuple(self.records[which]), floor=tuple(self.floor[which]), held=self.held[which],
                         tolerance=tolerance)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """``model`` is the source's folder with its ``weights``; others are written to ``folder``."""

    server: Reloading
    client: Client
    model: Path
    weights: Weights
    folder: Path
    reference: Reference

    async def broken(self, index: int) -> Trial:
        change, (tolerance, count) = SABOTAGES[index % len(SABOTAGES)], BARS[index % len(BARS)]
        judgement = await self._judged(change, index, tolerance, slice(0, count))
        lost = _lost(judgement)
        if not judgement.passed:
            return Trial(kind=change.__name__, tolerance=tolerance, prompts=count, passed=False, lost=lost,
                         counts=lost > tolerance)
        truth, spread = await self._truth()
        return Trial(kind=change.__name__, tolerance=tolerance, prompts=count, passed=True, lost=lost, truth=truth,
                     counts=truth - _TRUTH_ERRORS * spread / math.sqrt(POPULATION) > tolerance)

    async def sound(self, index: int) -> Trial:
        change, (tolerance, count) = SOUND[index % len(SOUND)], BARS[index % len(BARS)]
        judgement = await self._judged(change, 1_000_000 + index, tolerance, slice(0, count))
        lost = _lost(judgement)
        if judgement.passed:
            return Trial(kind=change.__name__, tolerance=tolerance, prompts=count, passed=True, counts=True, lost=lost)
        truth, spread = await self._truth()
        resolved = 3 / count + _STANDARD_ERRORS * spread / math.sqrt(count)
        return Trial(kind=change.__name__, tolerance=tolerance, prompts=count, passed=False, lost=lost, truth=truth,
                     counts=truth + resolved <= tolerance)

    async def _judged(self, change: Change, seed: int, tolerance: float, which: slice) -> Judgement:
        weights = dict(self.weights)
        change(weights, Shape.of(self.model), np.random.default_rng([17, seed]))
        await self.server.take(variant(self.model, self.folder, weights))
        return (await compared(self.client, self.reference.yardstick(which, tolerance), ServerArguments()))[0]

    async def _scored(self, which: slice) -> list[Scored]:
        records = self.reference.records[which]
        held = await hold(self.client, records, concurrency=AT_ONCE)
        return [score(one, steps) for one, steps in zip(records, held, strict=True)]

    async def _truth(self) -> tuple[float, float]:
        """The larger loss of what the server has now, and the spread of its prompts."""
        which = slice(len(self.reference.records) - POPULATION, None)
        found = []
        for one, floor in zip(await self._scored(which), self.reference.floor[which], strict=True):
            found.append((floor.agreement - one.agreement, one.divergence - floor.divergence))
        means, spreads = np.mean(found, 0), np.std(found, 0)
        worst = int(np.argmax(means))
        return float(means[worst]), float(spreads[worst])


def _lost(judgement: Judgement) -> float:
    losses: tuple[Loss, Loss] = (judgement.disagreement, judgement.divergence)
    return max(one.beyond for one in losses)

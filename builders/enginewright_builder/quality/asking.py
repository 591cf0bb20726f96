"""The questions that a replica of a language model is asked while it serves, and how it answers.

A question is one of the build's prompts. The replica chooses tokens after the unquantised model's, as for the gate
(:mod:`enginewright_builder.generate.teacher`), and the score is the share of its choices that are that model's. Each
prompt is drawn at random from all of them, whatever was drawn before: scores are then independent, and their mean is
that of all prompts.

Questions follow live requests, so that a replica without any stays without work, and may be scaled to zero.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from enginewright_builder.contract import AGREEMENT, QualityReport
from enginewright_builder.errors import BuilderError
from enginewright_builder.generate.answer import Step
from enginewright_builder.generate.gate import Record, score
from enginewright_builder.generate.kept_prompts import KeptPrompts
from enginewright_builder.generate.teacher import follow
from enginewright_builder.quality.page import Snapshot

# Requests that the replica has answered. What failed or was left says nothing of how many more it can take.
_ANSWERED: Final = re.compile(
    r'^vllm:request_success_total\{[^}]*finished_reason="(?!abort"|error")[^}]*\} (\S+)$', re.MULTILINE)
# Requests that may be saved up: after a burst the questions end with it.
MOST_SAVED: Final = 60.0

# The tokens so far, the number to add, and a word: questions of other words share nothing of the prefix cache.
Choose = Callable[[Sequence[int], int, str], Awaitable[list[Step]]]


def answered(page: str) -> float:
    """Of vLLM's Prometheus page."""
    return sum(map(float, _ANSWERED.findall(page)))


class Allowance:
    """How many requests of ours a replica may be asked: ``share`` of those of others, and ``per_minute`` at most."""

    def __init__(self, share: float, per_minute: int) -> None:
        self._share, self._per_second = share, per_minute / 60
        self._saved = self._timed = 0.0
        self._base: float | None = None
        self._ours = self._seen = 0.0

    def note(self, count: float, seconds: float) -> None:
        """The replica has answered ``count`` requests since it began, ours among them; ``seconds`` since the last
        note. The first one says what was before."""
        if self._base is None or count < self._base:  # another process of the server counts from zero
            self._base, self._ours, self._seen = count, 0.0, 0.0
        seen = max(self._seen, count - self._base - self._ours)
        self._saved = min(MOST_SAVED, self._saved + self._share * (seen - self._seen))
        self._seen = seen
        self._timed = min(max(1.0, self._per_second * seconds), self._timed + self._per_second * seconds)

    @property
    def open(self) -> bool:
        return min(self._saved, self._timed) >= 1

    def spend(self) -> None:
        """For one request of ours."""
        self._ours += 1
        self._saved -= 1
        self._timed -= 1


class Asking:
    """``choose`` raises :class:`BuilderError` where the replica does not answer. ``draw`` gives a whole number below
    its argument, and ``word`` another word each time. ``clock`` is monotonic, in seconds."""

    def __init__(self, kept: KeptPrompts, choose: Choose, allowance: Allowance, *, window: int,
                 draw: Callable[[int], int], word: Callable[[], str], clock: Callable[[], float]) -> None:
        self._kept, self._choose, self._allowance = kept, choose, allowance
        self._draw, self._word, self._clock = draw, word, clock
        self._scores: deque[float] = deque(maxlen=window)
        self._looked = clock()
        self._newest: float | None = None
        self._asked = self._failed = 0
        self._problem = ""

    async def turn(self, page: str, seconds: float) -> None:
        """Asks what ``page``, the server's metrics, allows, for ``seconds`` at most."""
        now = self._clock()
        self._allowance.note(answered(page), now - self._looked)
        self._looked = now
        while self._allowance.open and self._clock() - now < seconds:
            await self._ask()

    async def _ask(self) -> None:
        """What does not answer has no score: failures are counted elsewhere, and show no wrong answers."""
        self._asked += 1
        kept, word = self._kept.prompts[self._draw(len(self._kept.prompts))], self._word()
        reference = Record(prompt=kept.prompt, steps=tuple(Step(token=token, top={}) for token in kept.tokens))

        async def choose(prompt: Sequence[int], tokens: int) -> list[Step]:
            self._allowance.spend()
            return await self._choose(prompt, tokens, word)

        try:
            found = score(reference, await follow(choose, reference))
        except BuilderError as error:
            self._failed += 1
            self._problem = f"the build's prompts are not answered: {error.reason}"
            return
        self._problem = ""
        self._scores.append(found.agreement)
        self._newest = self._clock()

    def trouble(self, problem: str) -> None:
        """Why there is no turn."""
        self._problem = problem

    def snapshot(self) -> Snapshot:
        age = 0.0 if self._newest is None else self._clock() - self._newest
        return Snapshot(report=QualityReport(metric=AGREEMENT, tolerance=self._kept.allowed, samples=len(self._scores),
                                             total=sum(self._scores), requests=self._asked, age_seconds=round(age, 1),
                                             problem=self._problem), skipped=self._failed)

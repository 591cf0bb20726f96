"""One configuration on one server: started, held against the reference, put under load, ended."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from enginewright_builder.contract import StopWhen, Verdict
from enginewright_builder.errors import BuilderError, UserError, brief
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.candidates import Candidate
from enginewright_builder.generate.client import Ask, Client
from enginewright_builder.generate.comparing import Held, Yardstick, compared, of_itself, prompt_of, yardstick
from enginewright_builder.generate.gate import Judgement, check_words
from enginewright_builder.generate.last_server import LastServer
from enginewright_builder.generate.server import LINES, LOG_FOLLOWS
from enginewright_builder.generate.smoke_record import asked, kept
from enginewright_builder.generate.sweep import LEVELS, Aim, Point, best, gains, measure, measure_again
from enginewright_builder.generate.teacher import Prompt, Words, talks, words
from enginewright_builder.running import Running
from enginewright_builder.steps import Budget
from enginewright_builder.sweep.objective import requests_to_decide

# A server that is not ready by then never will be.
READY_SECONDS = 900.0
# Kept back of the time budget: to end a server, and to publish.
RESERVE_SECONDS = 10.0
# Of the time budget at most: to put the load that was chosen on once more.
CONFIRM_SHARE = 0.2


class Open(Protocol):
    """Makes a server of the model in ``folder``, which is started when it is entered. Where the arguments ask for a
    draft it is in the folder ``draft``."""

    def __call__(self, folder: Path, arguments: ServerArguments, *, ready_seconds: float,
                 draft: Path | None = None) -> Running: ...


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What became of a configuration. ``points`` are its loads, ``judgement`` is None where it was not held against the
    reference. Where it was not started its seconds and bytes are 0. ``smoke_prompts`` are those of the replicas'
    start-up test, and ``smoke_tokens``: so many of their tokens it chose as the reference did. ``checkpoint`` is as the
    candidate has it. ``ships`` is the load that was chosen of those of the configuration that ships; None of others."""

    name: str
    precision: str
    arguments: ServerArguments
    verdict: Verdict
    reason: str = ""
    points: tuple[Point, ...] = ()
    judgement: Judgement | None = None
    start_seconds: float = 0.0
    gate_seconds: float = 0.0
    memory_bytes: int = 0
    smoke_tokens: int = 0
    smoke_prompts: tuple[int, ...] = ()
    checkpoint: str = ""
    ships: Point | None = None

    @property
    def best(self) -> Point:
        """Raises ``ValueError`` where it was not put under load."""
        return self.ships or best(self.points)

    @property
    def candidate(self) -> Candidate:
        """What it was a trial of."""
        return Candidate(name=self.name, precision=self.precision, arguments=self.arguments, checkpoint=self.checkpoint)


@dataclass(frozen=True, kw_only=True)
class Known:
    """Of the reference: what others are held against, its server's version, and what a trial takes by it. Trials leave
    time for its second load, which takes ``again`` seconds, and for what is chosen, of which the load that is put on
    once more takes ``confirm``. ``words`` are how it reads ``asked`` and writes its answers, where checkpoints are to
    be held against that."""

    yardstick: Yardstick
    version: str
    seconds: float
    again: float = 0.0
    confirm: float = 0.0
    asked: tuple[Prompt, ...] = ()
    words: Words | None = None


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What all trials of a build share. Each gets ``load_seconds`` of load, and ``reach_seconds`` for each of what the
    gate compares beside the beginnings of all answers. The source is in ``folder``;
    ``checkpoints`` are the folders of others by their names, ``drafts`` those of models that propose tokens.
    ``stop_when`` says when no more are tried."""

    folder: Path
    asks: Sequence[Ask]
    aim: Aim
    tolerance: float
    load_seconds: float
    reach_seconds: float
    budget: Budget
    open: Open
    checkpoints: Mapping[str, Path] = field(default_factory=dict)
    drafts: Mapping[str, Path] = field(default_factory=dict)
    stop_when: StopWhen = "budgetSpent"
    last: LastServer = field(default_factory=LastServer)
    turns: Iterator[int] = field(default_factory=itertools.count)

    @property
    def left(self) -> float:
        return self.budget.left - RESERVE_SECONDS

    async def reference(self, candidate: Candidate) -> tuple[Trial, Known]:
        """Raises :class:`UserError` as :func:`check_floor` does, and ``BudgetTooSmall``; and what a server raises."""
        try:
            async with asyncio.timeout(self.left):
                return await self._reference(candidate)
        except TimeoutError as error:
            raise UserError(
                "BudgetTooSmall", f"the time budget of {self.budget.seconds:.0f} s was spent before the unquantised "
                f"model had answered {len(self.asks)} prompts and was measured",
                field="spec.engine.buildBudgetSeconds", value=round(self.budget.seconds),
                remedy="write twice as many seconds, or give fewer prompts") from error

    async def _reference(self, candidate: Candidate) -> tuple[Trial, Known]:
        async with self._served(candidate) as (server, client):
            found, gate = await yardstick(client, self.asks, candidate.arguments, tolerance=self.tolerance,
                                          seconds=self.reach_seconds)
            read_also = [*map(prompt_of, self.asks), *await talks(client)] if self.checkpoints else []
            read = await words(client, read_also, found.records) if read_also else None
            points = await self._load(client, server)
            trial = Trial(name=candidate.name, precision=candidate.precision, arguments=candidate.arguments,
                          verdict="Passed", points=tuple(points), judgement=of_itself(found, candidate.arguments),
                          start_seconds=server.start_seconds, gate_seconds=gate,
                          memory_bytes=await server.memory_bytes(), **_smoke(found, found.held))
            return trial, Known(yardstick=found, version=server.version,
                                seconds=server.start_seconds + gate + self.load_seconds,
                                again=server.start_seconds + self.load_seconds,
                                confirm=self._confirm_seconds(trial),
                                asked=tuple(read_also), words=read)

    async def trial(self, candidate: Candidate, known: Known, rival: Point | None = None) -> Trial:
        """With a ``rival`` it is put under load first, and held against the reference only where it serves better."""
        if candidate.unavailable:
            return ended(candidate, "Skipped", candidate.unavailable)
        left = self.left - known.again - known.confirm
        if left < known.seconds:
            return ended(candidate, "Skipped", f"the time budget of {self.budget.seconds:.0f} s leaves "
                          f"{max(0.0, self.budget.left):.0f} s, it takes about {known.seconds:.0f}, and "
                          f"{known.again:.0f} are for vLLM's own settings, which are measured again" +
                          (f", and {known.confirm:.0f} for what is chosen, which is, too" if known.confirm else ""))
        try:
            async with asyncio.timeout(left):
                return await self._trial(candidate, known, rival)
        except TimeoutError:
            return ended(candidate, "Failed", "the time budget ended while it was tried")
        except BuilderError as error:
            return ended(candidate, "Failed", cause(error))

    async def _trial(self, candidate: Candidate, known: Known, rival: Point | None) -> Trial:
        async with self._served(candidate) as (server, client):
            if candidate.checkpoint and known.words and (reason := await _otherwise(client, known, known.words)):
                return dataclasses.replace(ended(candidate, "AccuracyRefused", reason),
                                           start_seconds=server.start_seconds)
            points = await self._load(client, server) if rival else []
            slower = rival is not None and not gains(best(points), rival)
            begin = time.monotonic()
            judgement: Judgement | None = None
            held: Held = ()
            if not slower:
                judgement, held = await compared(client, known.yardstick, candidate.arguments)
            gate = time.monotonic() - begin
            if judgement and judgement.passed and not points:
                points = await self._load(client, server)
            return Trial(name=candidate.name, precision=candidate.precision, arguments=candidate.arguments,
                         verdict="Slower" if judgement is None else "Passed" if judgement.passed else "AccuracyRefused",
                         reason=judgement.reason if judgement else "", points=tuple(points), judgement=judgement,
                         start_seconds=server.start_seconds, gate_seconds=gate if judgement else 0.0,
                         memory_bytes=await server.memory_bytes(), checkpoint=candidate.checkpoint,
                         **_smoke(known.yardstick, held))

    async def loads(self, candidate: Candidate, chosen: Point) -> tuple[Point, ...]:
        """Its load ``chosen`` once more, as long as before; none where the time is over or it fails."""
        try:
            async with asyncio.timeout(self.left), self._served(candidate) as (server, client):
                return tuple(await self._load(client, server, (chosen.concurrency,)))
        except (TimeoutError, BuilderError):
            return ()

    async def again(self, candidate: Candidate, chosen: Point, seconds: float) -> Point:
        """The load ``chosen`` once more, by new requests alone: as many as when it was chosen, of which its value is,
        and under an objective as many more as decide on that. It takes about ``seconds`` at most, which a start is part
        of. ``chosen`` itself where no time is left for it: then it has no requests that count. A server that fails now
        keeps no objective."""
        end, level = time.monotonic() + seconds, chosen.concurrency
        rate = chosen.figures.request_rate
        ends = 2 * level / rate if rate else 0.0  # those in flight, which take so long on average, or less
        try:
            async with asyncio.timeout(self.left), self._served(candidate) as (server, client):
                found = await self._load(client, server, (level,))
                new = dataclasses.replace(found[0], again=found[0].figures.requests)
                if self.aim.asked:
                    left = min(end - time.monotonic(), self.left - ends)
                    new = await measure_again(client, self.asks, self.aim, level, seconds=left, metrics=server.metrics,
                                              name=self._name())
                return dataclasses.replace(new, value=found[0].value)
        except TimeoutError:
            return chosen
        except BuilderError:
            return chosen if self.left <= 0 else dataclasses.replace(chosen, meets=False)

    @property
    def confirm_seconds(self) -> float:
        """That all loads which are put on once more may take together."""
        return min(CONFIRM_SHARE * self.budget.seconds, self.left)

    def _confirm_seconds(self, reference: Trial) -> float:
        """What one takes, as far as the reference's best load tells."""
        rate = reference.best.figures.request_rate
        if not rate:
            return 0.0
        decide = requests_to_decide(self.aim.percentile) / rate if self.aim.asked else 0.0
        return min(self.confirm_seconds, reference.start_seconds + self.load_seconds + decide)

    @asynccontextmanager
    async def _served(self, candidate: Candidate) -> AsyncIterator[tuple[Running, Client]]:
        configuration = (candidate.checkpoint, candidate.arguments)
        async with (self.last.of(configuration, lambda: self._server(candidate)) as server,
                    Client(server.http_url) as client):
            yield server, client

    def _server(self, candidate: Candidate) -> Running:
        folder = self.checkpoints[candidate.checkpoint] if candidate.checkpoint else self.folder
        name = candidate.arguments.draft
        return self.open(folder, candidate.arguments, ready_seconds=min(READY_SECONDS, max(1.0, self.left)),
                         draft=self.drafts[name] if name else None)

    async def _load(self, client: Client, server: Running, levels: Sequence[int] = LEVELS) -> list[Point]:
        return await measure(client, self.asks, self.aim, seconds=self.load_seconds, metrics=server.metrics,
                             levels=levels, name=self._name())

    def _name(self) -> str:
        """Of a load, which shares nothing of the prefix cache with others: the server may be the same."""
        return f"{next(self.turns)}."


async def _otherwise(client: Client, known: Known, ours: Words) -> str:
    """How a checkpoint's own tokeniser and template read or write otherwise than the source's: the gate, which speaks
    in tokens, would not see it. Empty where they do not."""
    try:
        found = await words(client, known.asked, known.yardstick.records)
    except UserError as error:  # as of messages without a template
        return f"it does not read the prompts: {cause(error)}"
    return check_words(ours.prompts, found.prompts, ours.texts, found.texts)


def cause(error: BuilderError) -> str:
    """In a line, without the end of a log."""
    return brief(ValueError(error.message.partition(f". {LOG_FOLLOWS}")[0]), LINES)


def ended(candidate: Candidate, verdict: Verdict, reason: str) -> Trial:
    """One that no load was put on."""
    return Trial(name=candidate.name, precision=candidate.precision, arguments=candidate.arguments, verdict=verdict,
                 reason=reason, checkpoint=candidate.checkpoint)


def _smoke(found: Yardstick, held: Held) -> dict[str, Any]:
    """Fields of a trial; none of one that was not held against the reference."""
    places = asked(found.records, held) if held else []
    return {"smoke_prompts": tuple(places), "smoke_tokens": kept(found.records, held, places)}

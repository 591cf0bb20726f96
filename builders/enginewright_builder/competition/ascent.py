"""The ladder while it is climbed: which candidates are built, whose runners are open, who is still in which race."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from enginewright_builder.competition.attempt import NO_DEVICE_MEMORY, Workshop, closed
from enginewright_builder.competition.candidates import REFERENCE, SAFE, Candidate
from enginewright_builder.competition.measure import Stopwatch, Timing
from enginewright_builder.competition.race import LOOKS, ZONE, Heat, compete
from enginewright_builder.contract import ObjectiveRequest
from enginewright_builder.engines.base import Rung
from enginewright_builder.errors import classify
from enginewright_builder.models.base import SourceModel
from enginewright_builder.steps import Budget
from enginewright_builder.tensors import Call, Tensors

log = logging.getLogger(__name__)

# Engines whose builds take seconds before those that take a minute.
BUILD_COST = {"onnxruntime": 0, "tensorrt": 1, "torch": 2}
# How many candidates are tuned further: the best, and one more in case its tuning is worth more.
TUNED = 2
# More open runners than this are raced before the next is built: a slice of a GPU holds few of them.
OPEN_RUNNERS = 4
# A short race: enough to tell the hopeless, not to tell rivals apart; and its share of the time for measurements.
SCREENING, SCREENING_SHARE = LOOKS[:2], 0.25
# Tuning was worth up to 1.45× (ResNet-50, batch 1, H200): a limit that wide rungs miss by less may yet be met.
TUNING_GAIN = 1.5
# What sweep, load and publishing take after the ladder: a share of the budget, at most so many seconds.
AFTER_SHARE, AFTER_SECONDS = 0.2, 60.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A rung to try. ``wanted`` is False for one that is only to be offered, ``kept`` as in the candidate that it is
    tuned from."""

    rung: Rung
    wanted: bool = True
    kept: tuple[str, ...] = ()


@dataclass
class Ascent:
    """``candidates`` are in the order of their attempts, with open runners as long as they race."""

    workshop: Workshop
    source: SourceModel
    objective: ObjectiveRequest
    budget: Budget
    measure_seconds: float
    stopwatch: Callable[[Callable[[str, int], Call]], Stopwatch] = Stopwatch
    candidates: list[Candidate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._watch = self.stopwatch(self._bind)
        self._inputs: dict[int, Tensors] = {}
        self._timings: dict[str, dict[int, Timing]] = {}
        self._beaten: dict[str, set[int]] = {}
        self._slowest: dict[tuple[str, str], float] = {}
        self._again: dict[tuple[str, str, tuple[str, ...]], float] = {}
        self._beside_leader: dict[str, float] = {}

    @property
    def buckets(self) -> tuple[int, ...]:
        return self.workshop.context.buckets

    # Building

    def build(self, plans: Sequence[Plan], begin: float, end: float) -> None:
        """Tries each in turn, from ``begin`` to ``end`` of the step's progress."""
        for index, plan in enumerate(plans):
            start, width = begin + (end - begin) * index / len(plans), (end - begin) / len(plans)
            if any(one.rung.name == plan.rung.name and one.kept == plan.kept for one in self.candidates):
                continue  # tuned to what was tried already
            if not plan.rung.unavailable and (reason := self._why_not(plan.rung, plan.kept)):
                self.candidates.append(Candidate(rung=plan.rung, wanted=plan.wanted, skipped=reason))
                continue
            before = self.budget.spent
            self.candidates.append(self._attempted(plan, self._part(start, width)))
            of, seconds = (plan.rung.backend, plan.rung.precision), self.budget.spent - before
            self._slowest[of] = max(self._slowest.get(of, 0.0), seconds)
            if artifact := self.candidates[-1].artifact:
                again = (*of, plan.kept)
                self._again[again] = max(self._again.get(again, 0.0), seconds - artifact.graph_seconds)
            if self._open() > OPEN_RUNNERS:
                self.screen()

    def _attempted(self, plan: Plan, progress: Callable[[float, str], None]) -> Candidate:
        """Once more without those that have lost, where the GPU has no memory for it beside them."""
        tried = self.workshop.attempt(plan.rung, plan.wanted, progress, plan.kept)
        held = self._open()
        if not (tried.starved and held):
            return tried
        self.screen()
        return self.workshop.attempt(plan.rung, plan.wanted, progress, plan.kept) if self._open() < held else tried

    def _open(self) -> int:
        return sum(one.runner is not None for one in self.candidates)

    def _part(self, start: float, width: float) -> Callable[[float, str], None]:
        return lambda fraction, detail: self.workshop.context.progress(start + width * fraction, detail)

    @property
    def after_seconds(self) -> float:
        """What is kept of the budget for the last race and for what comes after the ladder."""
        return self.measure_seconds + min(AFTER_SECONDS, AFTER_SHARE * self.budget.seconds)

    def need(self, rung: Rung, kept: tuple[str, ...] | None = None) -> float:
        """Seconds that one more rung takes, as far as is known: those of the slowest of its engine and precision so
        far, or of its engine alone. Calibration makes INT8 take twice as long as FP16, and is done once: where the
        graph with these layers ``kept`` is there, what it took counts no more. None: with others than before."""
        if kept is not None and (again := self._again.get((rung.backend, rung.precision, kept))) is not None:
            return again
        same = self._slowest.get((rung.backend, rung.precision))
        others = (seconds for (backend, _), seconds in self._slowest.items() if backend == rung.backend)
        return max(others, default=0.0) if same is None else same

    def _why_not(self, rung: Rung, kept: tuple[str, ...] | None = None) -> str:
        """The first is begun as long as there is any time, and so is the safe one while none passes: without them
        there is nothing at all."""
        left, built = self.budget.left, [one for one in self.candidates if one.wanted and one.artifact]
        first = not any(map(self._races, built)) if rung.precision == SAFE else not built
        need = 0.0 if first else self.need(rung, kept) + self.after_seconds
        if left > need:
            return ""
        return (f"the time budget: {max(0.0, left):.0f} s of {self.budget.seconds:.0f} s are left, of which this rung "
                f"and what follows need about {need:.0f} s")

    # Racing

    def mended(self) -> list[Plan]:
        """Refused candidates once more, with their worst layers kept precise: those that would be faster than all that
        pass, if any does. A mended one is slower than it was, so mending others is of no use."""
        refused = [one for one in self.candidates if one.wanted and one.accuracy and not self._races(one)]
        if self.workshop.worst_layers is None or not refused:
            return []
        if any(one.runner for one in refused):
            self.screen(SCREENING[:1])
        # While nothing passes there is no leader to be slower than.
        promising = [one for one in refused if self._beside_leader.get(one.name, 0.0) < 1 / (1 + ZONE)]
        return [Plan(rung=one.rung, kept=kept) for one in promising if not self._why_not(one.rung) and
                (kept := self.workshop.layers_to_keep(one))]

    def tuned(self) -> list[Plan]:
        """The best candidates tuned for single buckets, best first; none where no engine can."""
        context, racing = self.workshop.context, self._racing()
        options = {one.name: self.workshop.engine(one.rung).specialised(one.rung, context) for one in racing}
        if not any(options.values()):
            return []
        heats = self.screen()
        # Also who has just lost, if tuning may be worth more than that.
        score = {one.name: _slowness(one.name, heats) for one in racing}
        best = sorted((one for one in racing if score[one.name] <= np.log(TUNING_GAIN)),
                      key=lambda one: (score[one.name], one.name))[:TUNED]
        return [Plan(rung=rung, kept=one.kept) for one in best for rung in options[one.name]]

    def screen(self, looks: Sequence[int] = SCREENING) -> dict[int, Heat]:
        """A short race among the open ones, after which who lost in every bucket is closed, and so is who was timed
        for the record only."""
        heats = self._compete(looks, self.measure_seconds * SCREENING_SHARE, TUNING_GAIN, with_source=False)
        for index, one in enumerate(self.candidates):
            if one.runner is None:
                continue
            if not self._races(one):
                if ratios := _beside_leader(one.name, heats):
                    self._beside_leader[one.name] = min(ratios)
                self.candidates[index] = closed(one)
                continue
            beaten = {batch for batch, heat in heats.items() if heat.times.get(one.name) and one.name not in heat.live}
            self._beaten[one.name] = self._beaten.get(one.name, set()) | beaten
            if not self._open_buckets(one):
                self.candidates[index] = replace(closed(one), lost=_lost(one.name, heats))
        return heats

    def race(self) -> dict[int, Heat]:
        """All that is left beside the source model, in every bucket, until it is clear who is the fastest."""
        return self._compete(LOOKS, self.measure_seconds, 1.0, with_source=True)

    # Where no candidate may be served

    def insist(self, rung: Rung) -> Candidate:
        """Builds and gates a rung whatever the budget says; its runner is closed again."""
        self.candidates = [one for one in self.candidates if one.name != rung.name]
        self.candidates.append(closed(self.workshop.attempt(rung, True, self._part(0.55, 0.15))))
        return self.candidates[-1]

    def alone(self, one: Candidate) -> dict[int, Heat]:
        """A race of one that was built beside the source model, whatever it lost before. It has no times in a bucket
        where it fails. All runners are closed afterwards."""
        if one.artifact is None:
            raise ValueError(f"{one.name} was not built")
        self.close()
        self._watch.forget(one.name)
        self._beaten.pop(one.name, None)
        runner = self.workshop.engine(one.rung).load(one.artifact)
        at = self.candidates.index(self._named(one.name))
        self.candidates[at] = replace(self.candidates[at], wanted=True, lost="", runner=runner)
        try:
            return self.race()
        finally:
            self.close()

    def _compete(self, looks: Sequence[int], seconds: float, lenience: float, *,
                 with_source: bool) -> dict[int, Heat]:
        guests = {one.name for one in self.candidates if one.runner and not self._races(one)}
        entrants = {batch: [*([REFERENCE] if with_source else []),
                            *(one.name for one in self.candidates if one.runner and batch in self._open_buckets(one))]
                    for batch in self.buckets}
        spent = 0.0

        def ask(names: Sequence[str], batch: int, rounds: int) -> dict[str, list[float]]:
            nonlocal spent
            begin = self._watch.clock()
            times = self._watch.rounds([name for name in names if self._ready(name, batch)], batch, rounds)
            spent += self._watch.clock() - begin
            self.workshop.context.progress(0.7 if with_source else 0.0, f"timed {rounds} rounds at batch {batch}")
            return times

        heats = compete(entrants, ask, lambda: seconds - spent, guests=guests, patient=(REFERENCE,), looks=looks,
                        limit_ms=lenience * self.objective.latency_ms)
        for batch, heat in heats.items():
            for name, times in heat.times.items():
                if times:
                    self._timings.setdefault(name, {})[batch] = self._watch.timing(name, batch, times)
        return heats

    def _racing(self) -> list[Candidate]:
        return [one for one in self.candidates if one.runner and self._races(one)]

    def _races(self, candidate: Candidate) -> bool:
        """Others are timed once, for the record."""
        return candidate.wanted and candidate.passes(self.workshop.accuracy.tolerance)

    def _open_buckets(self, candidate: Candidate) -> set[int]:
        beaten = self._beaten.get(candidate.name, set())
        return {batch for batch in self.buckets if candidate.rung.covers(batch)} - beaten

    def _bind(self, name: str, batch: int) -> Call:
        if batch not in self._inputs:
            self._inputs[batch] = self.workshop.evaluation.request(batch)
        if name == REFERENCE:
            return self.source.bind(self._inputs[batch])
        runner = self._named(name).runner
        if runner is None:
            raise ValueError(f"{name} is closed")
        return runner.bind(self._inputs[batch])

    def _named(self, name: str) -> Candidate:
        return next(one for one in self.candidates if one.name == name)

    def _ready(self, name: str, batch: int) -> bool:
        """Warm at this batch. What fails here costs the candidate, not the build."""
        if name != REFERENCE and self._named(name).runner is None:
            return False
        try:
            self._watch.warm(name, batch)
        except Exception as error:  # any class of any runtime library
            known, starved = classify(error), self.workshop.starves(error)
            if name == REFERENCE or (known.family == "transient" and not starved):
                raise
            log.warning("%s failed at batch %d", name, batch, exc_info=error)
            failed = self._named(name)
            self.candidates[self.candidates.index(failed)] = replace(
                closed(failed), starved=starved,
                failure=f"fails at batch {batch}: {NO_DEVICE_MEMORY if starved else known.message}")
            return False
        return True

    # Afterwards

    def close(self) -> None:
        self.candidates = [closed(one) for one in self.candidates]

    def measured(self) -> list[Candidate]:
        """All candidates with their timings, each from the last race that it was in."""
        return [replace(one, timings=self._timings.get(one.name, {})) for one in self.candidates]

    def reference(self, batch: int) -> Timing:
        return self._timings[REFERENCE][batch]


def _slowness(name: str, heats: Mapping[int, Heat]) -> float:
    """Mean over the buckets of the logarithm of its time over the fastest's."""
    return float(np.mean([np.log(heat.ratio(name, heat.leader()).value) for heat in heats.values()
                          if heat.used and heat.times.get(name)]))


def _beside_leader(name: str, heats: Mapping[int, Heat]) -> list[float]:
    """Its time over the fastest's that passes, for each bucket where both were timed."""
    return [heat.ratio(name, heat.leader()).value for heat in heats.values() if heat.times.get(name) and heat.live]


def _lost(name: str, heats: Mapping[int, Heat]) -> str:
    held = {batch: heat.ratio(name, heat.leader()) for batch, heat in heats.items() if heat.times.get(name)}
    batch = min(held, key=lambda size: (held[size].value, size))
    return (f"passes, but at best {held[batch].value:.2f}× slower than {heats[batch].leader()}, at batch {batch}, and "
            f"out after {held[batch].rounds} rounds")

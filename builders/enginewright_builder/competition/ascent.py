"""The ladder while it is climbed: which candidates are built, whose runners are open, who is still in which race."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from enginewright_builder.competition.agenda import SAFE, Agenda, Plan, Stand
from enginewright_builder.competition.attempt import NO_DEVICE_MEMORY, Workshop, closed
from enginewright_builder.competition.candidates import REFERENCE, Candidate
from enginewright_builder.competition.cost import LOAD_SECONDS
from enginewright_builder.competition.foresight import Foresight
from enginewright_builder.competition.measure import Stopwatch, Timing
from enginewright_builder.competition.promise import Known
from enginewright_builder.competition.race import CALL_OVERHEAD, LOOKS, Heat, compete
from enginewright_builder.contract import OBJECTIVE_MET, ObjectiveRequest, StopWhen
from enginewright_builder.engines.base import Rung
from enginewright_builder.errors import classify
from enginewright_builder.models.base import SourceModel
from enginewright_builder.steps import Budget
from enginewright_builder.tensors import Call, Tensors

log = logging.getLogger(__name__)

# More open runners than this are raced before the next is built: a slice of a GPU holds few of them.
OPEN_RUNNERS = 4
# A short race: enough to tell the hopeless, not to tell rivals apart; and its share of the time for measurements.
SCREENING, SCREENING_SHARE = LOOKS[:2], 0.25
# Tuning was worth up to 1.45× (ResNet-50, batch 1, H200): a limit that wide rungs miss by less may yet be met.
TUNING_GAIN = 1.5
# Calls that a new candidate is timed by before the next is chosen.
GLANCE = 3
# What a candidate may take of the latency objective to be enough: the server and the slow requests need the rest.
ENGINES_SHARE = 0.5
# How many times the best candidate's time the source model takes, for estimates: up to 14 in the benchmarks.
SOURCE_TIMES = 10
# The number of trials is not known beforehand: each takes this part of the progress that is left.
_TRIALS_AHEAD = 5
# What sweep, load and publishing take after the ladder: a share of the budget, at most so many seconds. In the builds
# of docs/benchmarks/trials.json they took 37 to 47 s, and 53 s for BERT.
AFTER_SHARE, AFTER_SECONDS = 0.2, 50.0
# Of the budget: so far may a trial run into what is kept for what follows. Without an end ViT's and ResNet-50's last
# trials took 109 and 104 s, and their builds 370 and 337 s of 300 (product-four.json).
GRACE = 0.05


@dataclass
class Ascent:
    """``candidates`` are in the order of their attempts, with open runners as long as they race."""

    workshop: Workshop
    source: SourceModel
    agenda: Agenda
    objective: ObjectiveRequest
    budget: Budget
    measure_seconds: float
    stop_when: StopWhen = "budgetSpent"
    stopwatch: Callable[[Callable[[str, int], Call]], Stopwatch] = Stopwatch
    candidates: list[Candidate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._watch = self.stopwatch(self._bind)
        self._inputs: dict[int, Tensors] = {}
        self._timings: dict[str, dict[int, Timing]] = {}
        self._beaten: dict[str, set[int]] = {}
        self._tried: set[str] = set()
        self._glances: dict[str, dict[int, float]] = {}
        self._foresight = Foresight(self.workshop)
        self.agenda.costs.graph_left = self._foresight.graph_left
        self.agenda.costs.engine_left = self._foresight.engine_left

    @property
    def buckets(self) -> tuple[int, ...]:
        return self.workshop.context.buckets

    # Building

    def build(self, begin: float, end: float) -> None:
        """Tries one after the other, as the agenda says after each, from ``begin`` to ``end`` of the step's
        progress. What is left over is a candidate that says why it was skipped and what it could have brought."""
        for plan in self.agenda.plans:
            if plan.rung.unavailable:
                self.candidates.append(Candidate(rung=plan.rung, wanted=plan.wanted))
        place, why = begin, ""
        while not (why := self._met()) and (following := self.agenda.next(self._stand())):
            self._warn(following)
            given = {following.name, *self._foresight.begun}
            self._foresight.prepare(self.agenda.ahead(self._stand(), self._foresight.able, given))
            width = (end - place) / _TRIALS_AHEAD
            self._try(following, self._going_on(self._part(place, width)))
            place += width
        for plan, promise in self.agenda.left(self._stand()):
            late = "" if why else self._lateness(promise.trial.seconds)
            words = str(promise), self._foresight.unfinished(plan.rung), why or late or "others promised more"
            self.candidates.append(Candidate(rung=plan.rung, wanted=plan.wanted, kept=plan.kept, late=bool(late),
                                             skipped="; ".join(filter(None, words))))
        self._foresight.cancel()
        named = {one.name for one in self.candidates}
        self.candidates += [Candidate(rung=plan.rung, wanted=False, skipped="not asked for, and others pass")
                            for plan in self.agenda.plans if plan.name not in named and not plan.wanted]

    def _warn(self, plan: Plan) -> None:
        """Of a budget below what one candidate takes, before the first is built."""
        need = self.agenda.seconds(plan, self._stand()) + self.after_seconds
        if not self._tried and need > self.budget.left:
            self.workshop.context.progress(0.0, (
                f"the time budget has {max(0.0, self.budget.left):.0f} s left, and {plan.name} with what follows takes "
                f"about {need:.0f} s: no more than one candidate will be built in time"))

    def _try(self, plan: Plan, progress: Callable[[float, str], None]) -> None:
        """Builds and gates one, and has a glance at how fast it is. A mending one is skipped where the
        layers to keep are unknown."""
        self._tried.add(plan.name)
        if plan.mends:
            kept = self.workshop.layers_to_keep(self._named(plan.mends))
            if not kept:
                return
            plan = replace(plan, kept=kept, mends="")
            self._tried.add(plan.name)
        before = self.budget.spent
        tried = self._attempted(plan, progress)
        self.candidates.append(tried)
        if tried.artifact is None or not tried.artifact.beside_seconds:
            graph_seconds = tried.artifact.graph_seconds if tried.artifact else 0.0
            self.agenda.costs.record(plan.rung, plan.kept, self.budget.spent - before, graph_seconds,
                                     built=tried.artifact is not None)
        if plan.kept and not plan.of and self._races(tried):
            self.agenda.tuned[tried.name] = [
                replace(one, kept=plan.kept, of=tried.name) for one in self.agenda.tuned.get(plan.rung.name, ())]
        if plan.wanted and tried.runner is not None:
            self._glance(tried)
        if self._open() > OPEN_RUNNERS:
            self.screen()

    def _attempted(self, plan: Plan, progress: Callable[[float, str], None]) -> Candidate:
        """Once more without those that have lost, where the GPU has no memory for it beside them."""
        time_left = self._time_left()
        tried = self.workshop.attempt(plan.rung, plan.wanted, progress, plan.kept, time_left)
        held = self._open()
        if not (tried.starved and held):
            return tried
        self.screen()
        if self._open() == held:
            return tried
        return self.workshop.attempt(plan.rung, plan.wanted, progress, plan.kept, time_left)

    def _time_left(self) -> Callable[[], float]:
        """Seconds until a trial that begins now is stopped. As long as nothing passes, never, unless engines were made
        beside it meanwhile: then in time to try them."""
        after, tried = self.after_seconds, frozenset(self._tried)
        if self._passing():
            return lambda: self.budget.left - (after - GRACE * self.budget.seconds)

        def left() -> float:
            made = self._foresight.made(tried)
            return self.budget.left - after - made * LOAD_SECONDS if made else math.inf

        return left

    def _glance(self, one: Candidate) -> None:
        """A few calls at each batch, by itself: enough to choose the next trial by, not to judge by."""
        for batch in sorted(self._open_buckets(one)):
            if not self._ready(one.name, batch):
                return
            with self._foresight.still():
                times = self._watch.rounds([one.name], batch, GLANCE)[one.name]
            self._glances.setdefault(one.name, {})[batch] = float(np.median(times))

    def _open(self) -> int:
        return sum(one.runner is not None for one in self.candidates)

    def _going_on(self, progress: Callable[[float, str], None]) -> Callable[[float, str], None]:
        """A build that reports progress keeps the processes beside it at work."""

        def report(fraction: float, detail: str) -> None:
            self._foresight.go_on()
            progress(fraction, detail)

        return report

    def _part(self, start: float, width: float) -> Callable[[float, str], None]:
        return lambda fraction, detail: self.workshop.context.progress(start + width * fraction, detail)

    def _stand(self) -> Stand:
        refused = [one for one in self.candidates if one.wanted and one.accuracy and not self._races(one)]
        mendable = {one.name for one in refused if not one.kept and one.rung.precision != SAFE}
        return Stand(known=Known(batches=self._used(), look=self.agenda.costs.look, times=self._glances,
                                 passing=frozenset(self._passing()), overflown=self._overflown()),
                     seconds=self.budget.left - self.after_seconds, left=self.budget.left, tried=frozenset(self._tried),
                     refused=frozenset(mendable if self.workshop.worst_layers else ()))

    def _overflown(self) -> frozenset[str]:
        return frozenset(one.name for one in self.candidates if one.accuracy and not one.accuracy.finite)

    def _passing(self) -> list[str]:
        return [one.name for one in self.candidates if self._races(one) and not one.failure]

    def _used(self) -> tuple[int, ...]:
        """The smallest bucket, and those for which the objective leaves time, as far as the fastest tells."""
        limit, best = self.objective.latency_ms * TUNING_GAIN, self._best()
        late = min((batch for batch, (_, time) in best.items() if 0 < limit < time), default=self.buckets[-1] + 1)
        return tuple(batch for batch in self.buckets if batch == self.buckets[0] or batch < late)

    def _best(self) -> dict[int, tuple[str, float]]:
        """Which passing candidate was the fastest at a glance, and its milliseconds, by bucket."""
        found: dict[int, tuple[str, float]] = {}
        for name in self._passing():
            for batch, time in self._glances.get(name, {}).items():
                if batch not in found or time < found[batch][1]:
                    found[batch] = name, time
        return found

    def _met(self) -> str:
        """Why no more is tried though there is time; empty where that is not so."""
        limit, smallest = self.objective.latency_ms, self.buckets[0]
        if self.stop_when != OBJECTIVE_MET or not limit or smallest not in (best := self._best()):
            return ""
        name, time = best[smallest]
        if time > limit * ENGINES_SHARE:
            return ""
        return (f"spec.engine.stopWhen is {OBJECTIVE_MET}, and {name} takes {time:.3g} ms at batch {smallest} where "
                f"the latency objective is {limit:g} ms")

    @property
    def after_seconds(self) -> float:
        """What is kept of the budget for the last race and for what comes after the ladder."""
        return self._race_seconds() + self._following_seconds

    @property
    def _following_seconds(self) -> float:
        """Of the sweep and what follows it."""
        return min(AFTER_SECONDS, AFTER_SHARE * self.budget.seconds)

    def _race_seconds(self) -> float:
        """What the last race takes at most: on a GPU often less than it may, as far as a glance tells."""
        best = self._best()
        if not best:
            return self.measure_seconds
        arms = [self._glances[one.name].get(batch) for one in self.candidates for batch in best
                if one.runner is not None and one.name in self._glances]
        calls = [time for time in arms if time is not None] + [SOURCE_TIMES * time for _, time in best.values()]
        return min(self.measure_seconds, LOOKS[-2] * sum(time / 1e3 + CALL_OVERHEAD for time in calls))

    def need(self, rung: Rung) -> float:
        """Seconds that a trial of it takes, as far as is known."""
        return self.agenda.costs.expected(rung)

    def _lateness(self, seconds: float) -> str:
        """Why no time is left for a trial that takes so long; empty where there is."""
        left, need = max(0.0, self.budget.left), seconds + self.after_seconds
        if left >= need:
            return ""
        return (f"the time budget: {left:.0f} s of {self.budget.seconds:.0f} s are left, of which this rung and what "
                f"follows need about {need:.0f} s")

    # Racing

    def screen(self, looks: Sequence[int] = SCREENING) -> dict[int, Heat]:
        """A short race among the open ones, after which who lost in every bucket is closed, and so is who was timed
        for the record only."""
        heats = self._compete(looks, self.measure_seconds * SCREENING_SHARE, TUNING_GAIN, with_source=False)
        for index, one in enumerate(self.candidates):
            if one.runner is None:
                continue
            if not self._races(one):
                self.candidates[index] = closed(one)
                continue
            beaten = {batch for batch, heat in heats.items() if heat.times.get(one.name) and one.name not in heat.live}
            self._beaten[one.name] = self._beaten.get(one.name, set()) | beaten
            if not self._open_buckets(one):
                self.candidates[index] = replace(closed(one), lost=_lost(one.name, heats))
        return heats

    def race(self) -> dict[int, Heat]:
        """All that is left beside the source model, in every bucket, until it is clear who is the fastest. What the
        budget has left is there for rounds without which nothing is sure."""
        return self._compete(LOOKS, self.measure_seconds, 1.0, with_source=True,
                             spare=lambda: self.budget.left - self._following_seconds)

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

    def _compete(self, looks: Sequence[int], seconds: float, lenience: float, *, with_source: bool,
                 spare: Callable[[], float] = lambda: 0.0) -> dict[int, Heat]:
        guests = {one.name for one in self.candidates if one.runner and not self._races(one)}
        entrants = {batch: [*([REFERENCE] if with_source else []),
                            *(one.name for one in self.candidates if one.runner and batch in self._open_buckets(one))]
                    for batch in self.buckets}
        spent = 0.0

        def ask(names: Sequence[str], batch: int, rounds: int) -> dict[str, list[float]]:
            nonlocal spent
            begin = self._watch.clock()
            with self._foresight.still():
                times = self._watch.rounds([name for name in names if self._ready(name, batch)], batch, rounds)
            spent += self._watch.clock() - begin
            self.workshop.context.progress(0.7 if with_source else 0.0, f"timed {rounds} rounds at batch {batch}")
            return times

        heats = compete(entrants, ask, lambda: seconds - spent, spare=spare, guests=guests, patient=(REFERENCE,),
                        looks=looks, limit_ms=lenience * self.objective.latency_ms)
        for batch, heat in heats.items():
            for name, times in heat.times.items():
                if times:
                    self._timings.setdefault(name, {})[batch] = self._watch.timing(name, batch, times)
        return heats

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
        self._foresight.cancel()
        self.candidates = [closed(one) for one in self.candidates]

    def measured(self) -> list[Candidate]:
        """All candidates with their timings, each from the last race that it was in."""
        return [replace(one, timings=self._timings.get(one.name, {})) for one in self.candidates]

    def reference(self, batch: int) -> Timing:
        return self._timings[REFERENCE][batch]


def _lost(name: str, heats: Mapping[int, Heat]) -> str:
    held = {batch: heat.ratio(name, heat.leader()) for batch, heat in heats.items() if heat.times.get(name)}
    batch = min(held, key=lambda size: (held[size].value, size))
    return (f"passes, but at best {held[batch].value:.2f}× slower than {heats[batch].leader()}, at batch {batch}, and "
            f"out after {held[batch].rounds} rounds")

"""The ladder: candidates of all engines are built, gated and raced, and all judged.

1. One trial after the other, the most promising for its seconds first (:mod:`agenda`): engines for every batch, those
   tuned for single buckets (:meth:`Engine.specialised`), and what the gate refused once more with its worst layers
   kept precise. Each is built, held against the reference, and timed at a glance, by which the next is chosen. Where
   more are open than a small device may hold, a short race sends the hopeless home.
2. What is left races in every bucket beside the source model until the winners are clear.
3. Verdicts, and what ships: one engine, or the best of each bucket.

The time budget bounds it: a trial is begun only if what it is expected to take still leaves the time for what comes
after. The first is begun as long as any time is left, and so is one in fp32 while none passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from enginewright_builder.accuracy.gate import Accuracy, Beside, Metric, least, usual_answers
from enginewright_builder.accuracy.metrics import try_metric
from enginewright_builder.accuracy.reference_answers import remembered
from enginewright_builder.accuracy.task import Exam, Labels
from enginewright_builder.accuracy.vocabulary import Vocabulary
from enginewright_builder.competition import cost_store, fallback
from enginewright_builder.competition.agenda import SAFE, Agenda, Plan
from enginewright_builder.competition.ascent import Ascent
from enginewright_builder.competition.attempt import NO_DEVICE_MEMORY, Workshop, WorstLayers
from enginewright_builder.competition.candidates import FULL_PRECISION, REFERENCE, Candidate, Judgement, judge
from enginewright_builder.competition.cost import Costs
from enginewright_builder.competition.experience import experience
from enginewright_builder.competition.measure import Stopwatch, Timing
from enginewright_builder.competition.race import Heat
from enginewright_builder.competition.refusals import (
    NothingToServeError,
    accuracy_not_reached,
    budget_too_small,
    not_faster_than_source,
    precision_unsupported,
    without_source,
)
from enginewright_builder.contract import AccuracyRequest, CandidateSummary, ObjectiveRequest, StopWhen
from enginewright_builder.data.labels import groups_of, labels_of, queries_of
from enginewright_builder.data.sets import SampleSet
from enginewright_builder.engines.base import Artifact, BuildContext, Engine, ExportedModel, Member, Shelf
from enginewright_builder.engines.composite import combine
from enginewright_builder.errors import TransientError
from enginewright_builder.measure.look import Look
from enginewright_builder.models.base import SourceModel
from enginewright_builder.pod.device import devices
from enginewright_builder.steps import Budget
from enginewright_builder.tensors import Call, Tensors


@dataclass(frozen=True, kw_only=True)
class Climb:
    """What ships, and the evidence. ``shipped`` names who serves each bucket; ``winner`` serves ``batch``, the largest
    that the objective uses, and ``speedup`` is its throughput over the reference's there. ``accuracy`` is the lowest of
    all that ship. ``built`` are all that were built; ``references`` is the source model as timed in each bucket in
    use. ``fallback`` is why no candidate may be served, where this is the source model itself; else empty."""

    winner: Candidate
    artifact: Artifact
    candidates: tuple[CandidateSummary, ...]
    built: tuple[Candidate, ...]
    shipped: Mapping[int, str]
    references: Mapping[int, Timing]
    batch: int
    speedup: float
    accuracy: Accuracy
    fallback: str = ""

    @property
    def reference(self) -> Timing:
        return self.references[self.batch]

    @property
    def name(self) -> str:
        """``tensorrt fp16 @1 and torch fp16`` of a composite."""
        return " and ".join(dict.fromkeys(name for _, name in sorted(self.shipped.items())))


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What candidates must reach, on what they are tried, and how long that may take: ``measure_seconds`` bounds the
    timing of all of them, ``budget`` the whole build. ``metric`` is the user's own, where ``accuracy`` names one.
    ``fallback`` are the engines that may serve the source model itself when no candidate may be served: none unless the
    user allows it. ``look`` is what the model is made of, None where that cannot be counted. ``vocabulary`` is there
    where words are compared with labels. ``calibration`` are samples apart from ``evaluation``, as clients send
    them."""

    accuracy: AccuracyRequest
    objective: ObjectiveRequest
    evaluation: SampleSet
    measure_seconds: float
    metric: str | Metric = ""
    budget: Budget = field(default_factory=lambda: Budget(float("inf")))
    worst_layers: WorstLayers | None = None
    calibration: Sequence[Tensors] = ()
    fallback: Sequence[Engine] = ()
    stop_when: StopWhen = "budgetSpent"
    look: Look | None = None
    vocabulary: Vocabulary | None = None
    stopwatch: Callable[[Callable[[str, int], Call]], Stopwatch] = Stopwatch


def climb(engines: Sequence[Engine], precision: str, model: ExportedModel, source: SourceModel, context: BuildContext,
          gate: Gate) -> Climb:
    """Raises :class:`NothingToServeError` ``AccuracyNotReached``, ``NotFasterThanSource`` or ``BudgetTooSmall``,
    :class:`UserError` ``PrecisionUnsupported`` when no engine has such a rung here, ``ReferenceNotFinite``,
    ``EvaluationEmpty``, ``MetricInvalid``, ``TaskInvalid`` or ``LabelsInvalid`` before anything is built, and
    :class:`TransientError` ``OutOfMemory`` when none may be served and the GPU had no memory for one."""
    shelf = Shelf()
    context = replace(context, buckets=context.buckets or tuple(sorted({1, context.max_batch_size})), shelf=shelf)
    plans = _plans(engines, precision, context)
    workshop = _workshop(engines, model, source, context, gate)
    agenda = _agenda(plans, workshop, gate)
    ascent = Ascent(workshop=workshop, source=source, agenda=agenda, objective=gate.objective,
                    budget=gate.budget, measure_seconds=gate.measure_seconds, stop_when=gate.stop_when,
                    stopwatch=gate.stopwatch)
    try:
        ascent.build(0.05, 0.7)
        heats = ascent.race()
    finally:
        ascent.close()
        shelf.clear()
        _keep_costs(context, agenda.costs)
    judgement = judge(ascent.measured(), heats, gate.accuracy.tolerance, source.candidate,
                      context.runtime.python_runtimes)
    if not judgement.shipped and gate.fallback:
        judgement, heats = fallback.serve_source(ascent, gate.fallback, judgement, heats, source.candidate)
    summaries = tuple(one.summary(max(judgement.used)) for one in judgement.candidates)
    if not judgement.shipped:
        raise _refusal(judgement, summaries, ascent, gate, source.name, precision)
    return _climbed(judgement, summaries, heats, ascent)


def _workshop(engines: Sequence[Engine], model: ExportedModel, source: SourceModel, context: BuildContext,
              gate: Gate) -> Workshop:
    """With the source's answers, once it is known that there is something to compare with."""
    context.progress(0.0, "asking the source model")
    references = remembered(map(source.run, gate.evaluation.batches), context.workspace / "references")
    usual_answers(references)  # looks whether there is something to compare with
    metric = gate.metric or gate.accuracy.metric
    if not isinstance(metric, str):
        try_metric(metric, references)
    every = [*engines, *(one for one in gate.fallback if one not in engines)]
    return Workshop(engines=every, model=model, context=context, accuracy=gate.accuracy, metric=metric,
                    evaluation=gate.evaluation, calibration=gate.calibration, worst_layers=gate.worst_layers,
                    references=references, beside=_beside(gate, references))


def _refusal(judgement: Judgement, summaries: tuple[CandidateSummary, ...], ascent: Ascent, gate: Gate, source: str,
             precision: str) -> Exception:
    """Why nothing is to be served."""
    if any(one.starved for one in judgement.candidates):
        # What it would have come to is unknown: a larger slice, or a GPU that nothing else uses, may show it.
        named = ", ".join(one.name for one in judgement.candidates if one.starved)
        return TransientError("OutOfMemory", f"{named}: {NO_DEVICE_MEMORY}; and no other candidate may be served",
                              remedy="build on a GPU or slice with more memory, or lower spec.engine.maxBatchSize")
    error = _nothing(judgement, summaries, ascent, gate, source, precision)
    return without_source(error) if gate.fallback else error


def _agenda(plans: Sequence[Plan], workshop: Workshop, gate: Gate) -> Agenda:
    context, benchmarks = workshop.context, experience(workshop.context.device.accelerator)
    tuned = {plan.name: [Plan(rung=rung, of=plan.name) for rung in workshop.engine(plan.rung).specialised(
        plan.rung, context)] for plan in plans if plan.wanted and not plan.rung.unavailable}
    return Agenda(plans, benchmarks, Costs(benchmarks, gate.look, _earlier_costs(context)), tuned)


def _earlier_costs(context: BuildContext) -> Mapping[str, float]:
    if context.timing_caches is None:
        return {}
    found = cost_store.load(context.timing_caches, _device(context), context.keys)
    if found.problem:
        context.progress(0.0, f"what trials took in earlier builds is not used: {found.problem}")
    return found.paces


def _keep_costs(context: BuildContext, costs: Costs) -> None:
    """A store that cannot be written costs the next build a guess, not this one its engine."""
    if context.timing_caches is None or not costs.paces:
        return
    try:
        cost_store.save(context.timing_caches, _device(context), costs.paces, costs.earlier, context.keys)
    except OSError as error:
        context.progress(0.7, f"what trials took is not kept for later builds: {error.strerror}")


def _device(context: BuildContext) -> str:
    """The GPU as its driver names it, and the slice of it; else the processor's architecture."""
    device = context.device
    if device.accelerator != "gpu":
        return f"cpu {device.architecture}"
    named = next((one.name for one in devices()), "") or next(iter(device.products), "gpu")
    return " ".join(filter(None, (named, device.mig_profile)))


def _plans(engines: Sequence[Engine], precision: str, context: BuildContext) -> list[Plan]:
    """Rungs asked for, and at last for the offer a full-precision one that was not."""
    wanted = [rung for engine in engines for rung in engine.rungs(precision, context)]
    if not any(not rung.unavailable for rung in wanted):
        raise precision_unsupported(precision, wanted)
    plans = [Plan(rung=rung) for rung in wanted]
    if any(rung.precision in FULL_PRECISION for rung in wanted):
        return plans
    extra = [rung for engine in engines for rung in engine.rungs(SAFE, context) if not rung.unavailable]
    return [*plans, *(Plan(rung=rung, wanted=False) for rung in extra[:1])]


def _climbed(judgement: Judgement, summaries: tuple[CandidateSummary, ...], heats: Mapping[int, Heat],
             ascent: Ascent) -> Climb:
    winners, batch = judgement.winners, max(judgement.used)
    winner = winners[batch]
    accuracies = [one.accuracy for one in winners.values() if one.accuracy is not None]
    return Climb(winner=winner, artifact=_artifact(winners), candidates=summaries, shipped=judgement.shipped,
                 built=tuple(one for one in judgement.candidates if one.artifact),
                 references={size: ascent.reference(size) for size in judgement.used}, batch=batch,
                 speedup=heats[batch].ratio(REFERENCE, winner.name).value, fallback=judgement.problem,
                 accuracy=least(accuracies))


def _beside(gate: Gate, references: Sequence[Tensors]) -> Beside:
    """Raises :class:`UserError` ``TaskInvalid`` or ``LabelsInvalid``."""
    accuracy, columns = gate.accuracy, gate.evaluation.columns
    exam = Exam(Labels(request=accuracy.task, values=labels_of(columns), queries=queries_of(columns),
                       vocabulary=gate.vocabulary), references) if accuracy.task else None
    return Beside(exam=exam, groups=groups_of(columns, accuracy.group_by), tolerance=accuracy.tolerance)


def _artifact(winners: Mapping[int, Candidate]) -> Artifact:
    """Of the one that serves all buckets, or of those that serve some, neighbours that agree joined."""
    members: list[Member] = []
    for batch, one in sorted(winners.items()):
        if one.artifact is None:
            raise ValueError(f"{one.name} was not built")
        if members and members[-1].artifact is one.artifact:
            members.pop()
        members.append(Member(up_to=batch, artifact=one.artifact))
    return members[0].artifact if len(members) == 1 else combine(members)


def _nothing(judgement: Judgement, summaries: tuple[CandidateSummary, ...], ascent: Ascent, gate: Gate,
             source: str, precision: str) -> NothingToServeError:
    if judgement.problem == "NotFasterThanSource":
        untried = [one.name for one in judgement.candidates if one.late and one.wanted]
        return not_faster_than_source(summaries, gate.accuracy, precision, untried)
    if judgement.problem == "BudgetTooSmall":
        late = max((ascent.need(one.rung) for one in judgement.candidates if one.late), default=0.0)
        missing = (late or gate.budget.spent) + ascent.after_seconds
        return budget_too_small(summaries, gate.budget.seconds, gate.budget.spent, missing, source)
    return accuracy_not_reached(summaries, gate.accuracy, {one.name for one in judgement.candidates if one.wanted},
                                precision)

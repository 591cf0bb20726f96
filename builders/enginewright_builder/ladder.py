"""The precision ladder: build every rung, hold it against the reference, measure all of them together, judge."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from enginewright_builder.accuracy import Accuracy, compare
from enginewright_builder.candidates import FULL_PRECISION, Candidate, Judgement, judge
from enginewright_builder.contract import AccuracyRequest, CandidateSummary, ObjectiveRequest
from enginewright_builder.data import SampleSet
from enginewright_builder.engines.base import Artifact, BuildContext, Engine, ExportedModel, Rung, Tensors
from enginewright_builder.errors import UserError, classify
from enginewright_builder.measure import Timing, measure, speedup
from enginewright_builder.models.base import SourceModel

log = logging.getLogger(__name__)

# At which batch candidates are compared, if the model takes that many: large enough that arithmetic outweighs calls.
COMPARED_BATCH = 8
REFERENCE = "reference"

Report = Callable[[float, str], None]


class NothingToServeError(UserError):
    """No candidate may be served; ``candidates`` has the evidence and the one that is offered."""

    def __init__(self, reason: str, message: str, candidates: tuple[CandidateSummary, ...], *, field: str,
                 value: object,
                 remedy: str) -> None:
        super().__init__(reason, message, field=field, value=value, remedy=remedy)
        self.candidates = candidates


@dataclass(frozen=True, kw_only=True)
class Climb:
    """``speedup`` is the winner's throughput over the reference's, at ``batch``; ``artifact`` is the winner's."""

    winner: Candidate
    artifact: Artifact
    candidates: tuple[CandidateSummary, ...]
    reference: Timing
    batch: int
    speedup: float
    accuracy: Accuracy


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What candidates must reach, and on what they are tried. ``measure_seconds`` bounds the timing of all together."""

    accuracy: AccuracyRequest
    objective: ObjectiveRequest
    evaluation: SampleSet
    measure_seconds: float


def climb(engines: Sequence[Engine], precision: str, model: ExportedModel, source: SourceModel, context: BuildContext,
          gate: Gate) -> Climb:
    """Raises :class:`NothingToServeError` ``AccuracyNotReached`` or ``NotFasterThanSource``, and :class:`UserError`
    ``PrecisionUnsupported`` when no engine has such a rung here."""
    rungs = _rungs(engines, precision, context)
    context.progress(0.0, "asking the source model")
    references = [source.run(batch) for batch in gate.evaluation.batches]
    built = [_try(engines, rung, wanted, model, gate, references, _part(context, index, len(rungs)))
             for index, (rung, wanted) in enumerate(rungs)]
    try:
        inputs = gate.evaluation.request(_compared_batch(source, context.max_batch_size, gate))
        batch = len(next(iter(inputs.values())))
        timings = measure(_runs(built, source), inputs, gate.measure_seconds,
                          progress=lambda fraction, detail: context.progress(0.6 + 0.4 * fraction, detail))
    finally:
        for candidate in built:
            if candidate.runner:
                candidate.runner.close()
    measured = [replace(one, runner=None, timing=timings.get(one.name)) for one in built]
    judgement = judge(measured, timings[REFERENCE], gate.accuracy.tolerance, gate.objective, source.candidate)
    summaries = tuple(candidate.summary(batch) for candidate in judgement.candidates)
    winner = judgement.winner
    if winner is None or winner.artifact is None or winner.timing is None or winner.accuracy is None:
        raise _nothing(judgement, summaries, gate.accuracy)
    return Climb(winner=winner, artifact=winner.artifact, candidates=summaries, reference=timings[REFERENCE],
                 batch=batch,
                 speedup=speedup(timings[REFERENCE], winner.timing), accuracy=winner.accuracy)


def _rungs(engines: Sequence[Engine], precision: str, context: BuildContext) -> list[tuple[Rung, bool]]:
    """Rungs asked for, and for the offer a full-precision one that was not, most precise first."""
    wanted = [rung for engine in engines for rung in engine.rungs(precision, context)]
    if not any(not rung.unavailable for rung in wanted):
        reasons = "; ".join(f"{rung.backend}: {rung.unavailable}" for rung in wanted) or "no engine has it"
        raise UserError("PrecisionUnsupported", f"{precision} cannot be built here: {reasons}",
                        field="spec.engine.precision", value=precision, remedy="write auto, or give what is missing")
    if any(rung.precision in FULL_PRECISION for rung in wanted):
        return [(rung, True) for rung in wanted]
    extra = [rung for engine in engines for rung in engine.rungs("fp32", context) if not rung.unavailable]
    return [*((rung, False) for rung in extra[:1]), *((rung, True) for rung in wanted)]


def _part(context: BuildContext, index: int, count: int) -> BuildContext:
    begin, width = 0.1 + 0.5 * index / count, 0.5 / count
    return replace(context, progress=lambda fraction, detail: context.progress(begin + width * fraction, detail))


def _try(engines: Sequence[Engine], rung: Rung, wanted: bool, model: ExportedModel, gate: Gate,
         references: Sequence[Tensors], context: BuildContext) -> Candidate:
    """Builds and gates one rung. What goes wrong costs this rung, not the build, unless it would hit all of them."""
    name = f"{rung.backend} {rung.precision}"
    if rung.unavailable:
        return Candidate(rung=rung, wanted=wanted)
    engine = next(engine for engine in engines if engine.name == rung.backend)
    context.progress(0.0, f"building {name}")
    try:
        artifact = engine.build(rung, model, context)
        runner = engine.load(artifact)
        context.progress(0.7, f"comparing {name} with the source model")
        accuracy = compare(gate.accuracy.metric, references, map(runner, gate.evaluation.batches))
    except Exception as error:  # any class of any runtime library
        known = classify(error)
        if known.family == "transient" or known.reason in ("StoreFull", "StoreReadOnly", "ReferenceNotFinite"):
            raise
        log.warning("%s failed", name, exc_info=error)
        return Candidate(rung=rung, wanted=wanted, failure=known.message)
    return Candidate(rung=rung, wanted=wanted, artifact=artifact, runner=runner, accuracy=accuracy)


def _runs(built: Sequence[Candidate], source: SourceModel) -> dict[str, Callable[[Tensors], object]]:
    return {REFERENCE: source.run, **{one.name: one.runner for one in built if one.runner}}


def _compared_batch(source: SourceModel, max_batch_size: int, gate: Gate) -> int:
    """Halved while the source needs much longer for one batch than the latency objective allows: no candidate is so
    much faster that such a batch would be served."""
    batch = max(1, min(COMPARED_BATCH, max_batch_size))
    limit = gate.objective.latency_ms
    while batch > 1 and limit > 0:
        inputs = gate.evaluation.request(batch)
        timing = measure({REFERENCE: source.run}, inputs, 0.0)[REFERENCE]
        if timing.percentile(50) <= 8 * limit:
            break
        batch //= 2
    return batch


def _nothing(judgement: Judgement, summaries: tuple[CandidateSummary, ...],
             accuracy: AccuracyRequest) -> NothingToServeError:
    offered = next((one for one in summaries if one.verdict == "Offered"), None)
    offer = f"; offered instead: {offered.backend} {offered.precision}" if offered else ""
    if judgement.problem == "NotFasterThanSource":
        return NothingToServeError(judgement.problem, f"no candidate is faster than the source model as it is{offer}",
                                   summaries,
                              field="spec.engine", value="", remedy="serve the source model as it is, allow more "
                              "precisions (spec.engine.precision: auto), or build on other hardware")
    best = max((one for one in summaries if one.accuracy_low is not None), key=lambda one: one.accuracy_low or 0.0,
               default=None)
    figures = (f"the closest is {best.backend} {best.precision} with {accuracy.metric} {best.accuracy:.4f} "
               f"(lower bound {best.accuracy_low:.4f})" if best else "none could be measured")
    return NothingToServeError("AccuracyNotReached", f"no candidate asked for reaches {accuracy.metric} ≥ "
                          f"{1 - accuracy.tolerance:.4g}: {figures}{offer}", summaries, field="spec.accuracy.tolerance",
                          value=accuracy.tolerance, remedy="raise the tolerance, allow more precisions "
                          "(spec.engine.precision: auto), or give more evaluation samples")

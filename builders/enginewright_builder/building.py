"""The first half of a build, once it is clear that there is something to build: on the device, from the source to the
engines that may ship. Imports PyTorch where the source needs it. ``proving`` is the second half."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.competition.ladder import Climb, Gate, climb
from enginewright_builder.contract import BuildRequest, Outcome, PostprocessStep
from enginewright_builder.data.lengths import load_samples, spread
from enginewright_builder.engine_store import store
from enginewright_builder.engine_store.folder import TIMING_CACHES
from enginewright_builder.engine_store.signing import read_keys
from enginewright_builder.engines.base import Artifact, BuildContext, Engine, ExportedModel, Runner
from enginewright_builder.engines.buckets import batch_buckets
from enginewright_builder.engines.composite import CompositeRunner
from enginewright_builder.engines.own_steps import own_stepped
from enginewright_builder.engines.registry import WITHOUT_GRAPH, all_engines, engines_for
from enginewright_builder.engines.sequenced import sequenced
from enginewright_builder.engines.texted import texted
from enginewright_builder.errors import brief
from enginewright_builder.evidence.content import accuracy_evidence, hardware, reference_figures
from enginewright_builder.evidence.finalists import count, measured, plainest
from enginewright_builder.evidence.folded import measure_folded, not_apart, steps_of
from enginewright_builder.evidence.gated import gated_answers
from enginewright_builder.evidence.lengths import Settled, borne_by, run_positions
from enginewright_builder.evidence.profiled import profile_served, served
from enginewright_builder.hand_over import Handed, HandOver, Keeper, Plain
from enginewright_builder.measure.layers import Folded
from enginewright_builder.measure.look import Look
from enginewright_builder.measure.profile import EngineProfile
from enginewright_builder.measure.work import look
from enginewright_builder.models import SourceModel
from enginewright_builder.models.base import takes_missing
from enginewright_builder.models.own_steps import OwnStepped
from enginewright_builder.models.sequenced import Sequenced
from enginewright_builder.models.texted import Texted, in_tokens
from enginewright_builder.own_steps import of_source
from enginewright_builder.padding import USUAL_MASK
from enginewright_builder.preparing import Prepared, prepare
from enginewright_builder.proving import OwnServers, prove_finalists
from enginewright_builder.quality.kept import keep_reference
from enginewright_builder.resolve import Resolved
from enginewright_builder.shapes import takes_batches
from enginewright_builder.steps import MEASURE_SECONDS, MEASURE_SHARE, Budget, Steps
from enginewright_builder.tensors import Tensors, whole_call
from enginewright_builder.texts import without_texts
from enginewright_builder.triton import smoke_record
from enginewright_builder.triton.prove import Case

# Of each sequence: steps that quantisers see, and those that replicas are tried with.
CALIBRATION_STEPS, SMOKE_STEPS = 8, 8


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What the engine that ships answered in this process: ``cases`` are requests one by one, ``mixed`` single ones of
    different length, which are sent at once and may run together as ``settled`` says. ``smoke`` is what replicas are
    tried with, None where a sample is too large to keep."""

    cases: tuple[Case, ...]
    mixed: tuple[Case, ...]
    settled: Settled
    smoke: smoke_record.SmokeSamples | None = None


def build(resolved: Resolved, scratch: Path, steps: Steps, budget: Budget, engines: Sequence[Engine] = ()) -> Outcome:
    """Builds, proves and publishes on this machine. Raises :class:`BuilderError`, or anything for a bug; nothing is
    published then."""
    folder = scratch / "hand-over"
    build_finalists(resolved, scratch, folder, steps, budget, engines)
    return prove_finalists(Handed(folder), OwnServers(scratch / "served"), steps, budget)


def build_finalists(resolved: Resolved, scratch: Path, folder: Path, steps: Steps, budget: Budget,
                    engines: Sequence[Engine] = ()) -> None:
    """Leaves in ``folder`` what :func:`prove_finalists` goes on with. Raises as :func:`build` does."""
    request = resolved.request
    shelf = store.of(request, steps.tracker.note)
    shelf.bring_timings()
    every = engines or all_engines()
    chosen = engines_for(request.engine.backend, every)
    prepared = prepare(resolved, scratch, steps)
    every, chosen = (_around(prepared.source, _able(prepared.exported, some)) for some in (every, chosen))
    try:
        climbed = _climb(chosen, every if request.engine.fallback == "source" else (), resolved, prepared, scratch,
                         steps, budget)
    finally:  # what was timed counts for the next build, whatever becomes of this one
        shelf.keep_timings()
    with steps.step("finalists", f"keeping {climbed.name}, and answers to prove it with"):
        keeper = Keeper(folder, functools.partial(_folded, request, prepared))
        if request.keep_reference:
            sent = dataclasses.replace(prepared.exported, interface=prepared.source.interface)
            keep_reference(keeper.staging, sent, request.accuracy, resolved.metric_graph,
                           map(prepared.source.run, prepared.evaluation.batches))
        document = _hand_over(keeper, resolved, prepared, climbed, every, budget)
    if request.engine.profile:
        document = dataclasses.replace(document, profiles=_profiles(keeper, prepared, climbed, scratch, steps, budget))
    keeper.write(dataclasses.replace(document, steps=dict(steps.seconds), spent=budget.spent))


def _able(exported: ExportedModel, engines: Sequence[Engine]) -> Sequence[Engine]:
    return [one for one in engines if one.name in WITHOUT_GRAPH] if exported.missing else engines


def _around(source: SourceModel, engines: Sequence[Engine]) -> Sequence[Engine]:
    """``engines`` with all that stands around the source."""
    if isinstance(source, OwnStepped):
        return own_stepped(_around(source.inner, engines), source)
    if isinstance(source, Texted):
        return texted(engines, source.interface, source.tokeniser)
    return sequenced(engines, source.inner.interface) if isinstance(source, Sequenced) else engines


def _hand_over(keeper: Keeper, resolved: Resolved, prepared: Prepared, climbed: Climb, engines: Sequence[Engine],
               budget: Budget) -> HandOver:
    request, settled = resolved.request, prepared.settled
    samples = load_samples(prepared.evaluation, settled.joined.mask if settled.joined else USUAL_MASK,
                           prepared.exported.given)
    figures, plain = measured(climbed.built), plainest(climbed.built)
    largest = prepared.max_batch_size
    tried = _try(engines, prepared, climbed, request.accuracy.tolerance)
    served = keeper.served(climbed.artifact, largest)
    return HandOver(
        request=request, source=resolved.source, name=climbed.name,
        shipped=tuple(sorted(set(climbed.shipped.values()))), speedup=climbed.speedup, fallback=climbed.fallback,
        served=served,
        plain=Plain(name=plain[0], engine=keeper.engine(plain[1])) if plain else None, engines=keeper.engines,
        candidates=climbed.candidates, accuracy=accuracy_evidence(request, climbed, prepared.evaluation),
        reference=reference_figures(prepared.source.name, climbed), hardware=hardware(request.device),
        figures=tuple(figures), counted=count(request, prepared.exported, samples[0], figures, budget),
        drift=prepared.drifts.reports,
        notes=(*resolved.notes, *filter(None, (prepared.exported.missing,)), *prepared.source.notes,
               *prepared.weights.notes, *tried.settled.notes),
        requests=tuple(map(keeper.tensors, samples)), warmup=keeper.tensors(prepared.evaluation.request(1)),
        cases=tuple(map(keeper.case, tried.cases)), mixed=tuple(map(keeper.case, tried.mixed)),
        takes_missing=takes_missing(prepared.source), joined=tried.settled.joined, not_apart=not_apart(
            steps_of(prepared.source.interface, _postprocess(request)),
            [keeper.engines[share.engine].folded for share in served]),
        smoke=keeper.smoke(tried.smoke) if tried.smoke else None,
        steps={}, spent=0.0)


def _profiles(keeper: Keeper, prepared: Prepared, climbed: Climb, scratch: Path, steps: Steps, budget: Budget
              ) -> tuple[EngineProfile, ...]:
    """Their time is none of the budget's: what is measured afterwards is measured for as long as without."""
    take, batched = prepared.exported.given, takes_batches(prepared.exported.interface)

    def given(batch: int) -> Tensors:
        inputs = take(prepared.evaluation.request(batch))
        return inputs if batched else whole_call(inputs)

    began = budget.spent
    with steps.step("profile", f"profiling {climbed.name}"):
        found = profile_served(served(climbed), in_tokens(prepared.source), given, scratch, keeper.staging)
    budget.leave_out(budget.spent - began)
    for one in found:
        if one.problem:
            steps.tracker.note(f"there is no profile of {one.name}: {one.problem}")
    return found


def _folded(request: BuildRequest, prepared: Prepared, artifact: Artifact) -> tuple[Folded, ...]:
    take, batched = prepared.exported.given, takes_batches(prepared.exported.interface)
    calls = {size: take(prepared.evaluation.request(size)) for size in {1, prepared.max_batch_size}}
    return measure_folded(artifact, steps_of(prepared.source.interface, _postprocess(request)),
                          calls if batched else {1: whole_call(calls[1])}, request.device.accelerator)


def _postprocess(request: BuildRequest) -> tuple[PostprocessStep, ...]:
    return request.interface.postprocess if request.interface else ()


def _climb(engines: Sequence[Engine], fallback: Sequence[Engine], resolved: Resolved, prepared: Prepared,
           scratch: Path, steps: Steps, budget: Budget) -> Climb:
    request = resolved.request
    with steps.step("ladder", "building candidates") as report:
        size = prepared.max_batch_size
        take = prepared.exported.given
        context = BuildContext(device=request.device, runtime=request.runtime,
                               calibration=_calibration(prepared),
                               max_batch_size=size, buckets=batch_buckets(size, _preferred(request, size)),
                               example=take(prepared.evaluation.typical), source=in_tokens(prepared.source),
                               located=resolved.located, stated=without_texts(of_source(prepared.stated)),
                               joined=prepared.settled.joined, weights=prepared.weights,
                               timing_caches=Path(request.store_path) / TIMING_CACHES,
                               keys=read_keys(request.signing_keys),
                               workspace=scratch / "candidates", progress=report)
        gate = Gate(accuracy=request.accuracy, objective=request.objective, evaluation=prepared.evaluation,
                    budget=budget, worst_layers=prepared.drifts, calibration=prepared.calibration,
                    metric=prepared.metric, fallback=fallback,
                    stop_when=request.engine.stop_when, look=_look(request, prepared, report),
                    vocabulary=resolved.vocabulary,
                    measure_seconds=budget.share(MEASURE_SHARE, MEASURE_SECONDS[request.device.accelerator]))
        climbed = climb(engines, request.engine.precision, prepared.exported, prepared.source, context, gate)
        for candidate in climbed.candidates:
            report(1.0, f"{candidate.name}: {candidate.verdict}: {candidate.reason}")
        for one in climbed.built:
            if one.verdict == "AccuracyRefused" and one.artifact and one.rung.name not in prepared.drifts.reports:
                report(1.0, f"looking where {one.name} drifts")
                prepared.drifts(one.artifact, prepared.exported,
                                prepared.calibration or prepared.evaluation.batches)
        return climbed


def _calibration(prepared: Prepared) -> list[Tensors]:
    """What the graph takes of it. Of sequences also in their course, with the state that the source has there: the
    first steps alone would tell a quantiser that the state is zero."""
    source = prepared.source
    if isinstance(source, Sequenced):
        return [call for batch in prepared.calibration for call in source.calls(batch, CALIBRATION_STEPS)]
    return [prepared.exported.given(batch) for batch in prepared.calibration]


def _short(prepared: Prepared) -> Tensors:
    """The typical samples; sequences with their first steps alone, as each replica is tried with them."""
    typical = prepared.evaluation.typical
    return {name: array[:, :SMOKE_STEPS] for name, array in typical.items()} if isinstance(
        prepared.source, Sequenced) else typical


def _preferred(request: BuildRequest, largest: int) -> tuple[int, ...]:
    return tuple(size for size in request.batching.preferred_batch_sizes if size <= largest)


def _look(request: BuildRequest, prepared: Prepared, report: Callable[[float, str], None]) -> Look | None:
    """What the model is made of, by which trials on a GPU are ordered. Without it all benchmarked models count
    alike."""
    if request.device.accelerator != "gpu" or prepared.exported.missing:
        return None
    try:
        given = prepared.exported.given(prepared.evaluation.request(1))
        return look(prepared.exported.path, given, prepared.max_batch_size,
                    batched=takes_batches(prepared.exported.interface))
    except Exception as error:  # any class of ONNX Runtime's
        report(0.0, f"the model's operators could not be counted, and do not order the trials: {brief(error, 200)}")
        return None


def _try(engines: Sequence[Engine], prepared: Prepared, climbed: Climb, tolerance: float) -> Tried:
    """A request in each bucket, so that each member of a composite is asked through the real server, and one of an odd
    size."""
    runner, largest = _runner(climbed.artifact, engines), _requested(prepared)
    try:
        sizes = sorted({min(size, largest) for size in (1, 3, *climbed.shipped)})
        requests = [prepared.evaluation.request(size) for size in sizes]
        settled = _borne(runner, prepared, tolerance)
        return Tried(cases=tuple(Case(inputs=inputs, expected=dict(runner(inputs))) for inputs in requests),
                     mixed=tuple(Case(inputs=inputs, expected=dict(runner(inputs)))
                                 for inputs in settled.samples or _interleaved(prepared)),
                     settled=settled, smoke=_smoke(runner, prepared, climbed.artifact))
    finally:
        runner.close()


def _smoke(runner: Runner, prepared: Prepared, artifact: Artifact) -> smoke_record.SmokeSamples | None:
    largest = _requested(prepared)
    chosen = smoke_record.choose(_short(prepared), prepared.source.run, largest)
    return chosen and dataclasses.replace(chosen, gated=gated_answers(runner, artifact, chosen, largest))


def _requested(prepared: Prepared) -> int:
    """How many samples one request may hold: of sequences it is a step of one, whatever runs together."""
    return 1 if isinstance(prepared.source, Sequenced) else prepared.max_batch_size


def _interleaved(prepared: Prepared) -> list[Tensors]:
    """Sequences that are asked for at once, none of which may take another's state."""
    if not isinstance(prepared.source, Sequenced):
        return []
    return load_samples(prepared.evaluation, USUAL_MASK, prepared.exported.given)


def _borne(runner: Runner, prepared: Prepared, tolerance: float) -> Settled:
    """As far as the engine that ships bears it, with what a run of it costs: of the engine alone, since texts are made
    token ids of before they are joined."""
    settled, largest = prepared.settled, prepared.max_batch_size
    joined, samples = settled.joined, spread(settled.samples, largest)
    if joined is None or len(samples) < 2:
        return Settled(notes=settled.notes)
    tokens = [prepared.exported.given(sample) for sample in samples]
    if problem := borne_by(runner, joined, tokens, tolerance):
        return Settled(notes=(*settled.notes, f"Requests of different length are not joined: padded, {problem}.",))
    cost = run_positions(runner, joined, tokens, largest)
    return dataclasses.replace(settled, samples=tuple(samples),
                               joined=dataclasses.replace(joined, run_positions=round(cost, 1)))


def _runner(artifact: Artifact, engines: Sequence[Engine]) -> Runner:
    if artifact.members:
        return CompositeRunner(artifact, engines)
    return next(engine for engine in engines if engine.name == artifact.rung.backend).load(artifact)

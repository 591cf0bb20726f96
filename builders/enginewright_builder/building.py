"""The heavy part of a build, once it is clear that there is something to build. Imports PyTorch where the source needs
it."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from enginewright_builder import engine_store, own_device, store
from enginewright_builder.accuracy.drift import DriftTables
from enginewright_builder.accuracy.gate import Metric
from enginewright_builder.accuracy.metrics import open_metric
from enginewright_builder.competition.buckets import batch_buckets
from enginewright_builder.competition.ladder import Climb, Gate, climb
from enginewright_builder.contract import (
    MODEL_FOLDER,
    MODEL_REPOSITORY,
    SMOKE_FILE,
    BatchTime,
    BuildRequest,
    EngineSummary,
    Outcome,
    ServingChoice,
)
from enginewright_builder.data.sets import SYNTHETIC, SampleSet, gate_samples
from enginewright_builder.engines.base import Artifact, BuildContext, Engine, ExportedModel, Runner
from enginewright_builder.engines.composite import CompositeRunner
from enginewright_builder.engines.registry import all_engines, engines_for
from enginewright_builder.evidence.appraisal import appraise
from enginewright_builder.evidence.content import build_report, device_name
from enginewright_builder.evidence.look import Look
from enginewright_builder.evidence.performance import Performance, device_class
from enginewright_builder.evidence.work import look
from enginewright_builder.export import export_model
from enginewright_builder.models import SourceModel, load_model
from enginewright_builder.quality.reference import keep_reference
from enginewright_builder.report import write_report
from enginewright_builder.resolve import Resolved
from enginewright_builder.signing import read_keys
from enginewright_builder.steps import MEASURE_SECONDS, MEASURE_SHARE, SWEEP_SECONDS, SWEEP_SHARE, Budget, Steps, now
from enginewright_builder.sweep import SweepResult, sweep
from enginewright_builder.system import available_cpus
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton import smoke_record
from enginewright_builder.triton.prove import Case, Proof, prove
from enginewright_builder.triton.repository import write_model

# Single requests that the sweep sends round and round.
SWEEP_REQUESTS = 16


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The source model opened, its data as batches, its ONNX checked."""

    source: SourceModel
    exported: ExportedModel
    evaluation: SampleSet
    calibration: Sequence[Tensors]
    metric: str | Metric
    drifts: DriftTables = field(default_factory=DriftTables)


def build(resolved: Resolved, scratch: Path, steps: Steps, budget: Budget, engines: Sequence[Engine] = ()) -> Outcome:
    """Raises :class:`BuilderError`, or anything for a bug; nothing is published then."""
    request = resolved.request
    shelf = engine_store.of(request, steps.tracker.note)
    shelf.bring_timings()
    gpus = tuple(range(request.device.gpu_count)) if request.device.accelerator == "gpu" else ()
    every = engines or all_engines()
    chosen = engines_for(request.engine.backend, every)
    prepared = _prepare(resolved, scratch, steps)
    try:
        climbed = _climb(chosen, every if request.engine.fallback == "source" else (), request, prepared, scratch,
                         steps, budget)
    finally:  # what was timed counts for the next build, whatever becomes of this one
        shelf.keep_timings()
    swept = _sweep(request, prepared, climbed, scratch, steps, budget, gpus)
    with steps.step("appraise", "comparing with plain serving and with what the device could do"):
        performance = appraise(request, prepared.exported, climbed, swept, _requests(prepared.evaluation),
                               scratch / "appraisal", budget, gpus)
    staging = scratch / "staging"
    shutil.rmtree(staging, ignore_errors=True)
    serving = _serving(request, swept)
    with steps.step("repository", "writing the model repository"):
        folder = write_model(staging / MODEL_REPOSITORY, MODEL_FOLDER, climbed.artifact, serving, gpus=gpus,
                             warmup=prepared.evaluation.request(1))
        config = (folder / "config.pbtxt").read_text()
    if request.keep_reference:
        keep_reference(staging, prepared.exported, request.accuracy, resolved.metric_graph,
                       map(prepared.source.run, prepared.evaluation.batches))
    with steps.step("verify-load", "loading the finished repository in a fresh tritonserver"):
        proof = _prove(staging, every, prepared, climbed, serving, gpus)
    outcome = Outcome(kind="build", ok=True, source=resolved.source, fingerprint=request.fingerprint(),
                      built=now(), build_seconds=round(budget.spent, 1), serving=serving,
                      engine=_summary(request, prepared, climbed, swept, proof, performance),
                      candidates=climbed.candidates)
    with steps.step("publish", "writing the report and publishing"):
        write_report(build_report(request, outcome, climbed, swept, proof, prepared.source.name, prepared.evaluation,
                                  config, resolved, steps.seconds, performance, prepared.drifts.reports), staging)
        manifest = shelf.publish(staging, request.fingerprint(), outcome=outcome)
    steps.tracker.step("done", "published")
    return dataclasses.replace(manifest.outcome, manifest_digest=store.manifest_digest(manifest))


def _prepare(resolved: Resolved, scratch: Path, steps: Steps) -> Prepared:
    request = resolved.request
    own_device.check(request.device, steps.tracker.note)
    with steps.step("fetch", f"opening the {resolved.located.format} source"):
        source = load_model(resolved.located, request.interface, scratch,
                            "cuda" if request.device.accelerator == "gpu" else "cpu")
        evaluation, calibration = gate_samples(resolved.evaluation, resolved.calibration, request.accuracy, source)
        metric = open_metric(request.accuracy.metric, resolved.metric_graph)
        if evaluation.origin == SYNTHETIC:
            steps.tracker.note(f"no evaluation data: {evaluation.count} synthetic samples are used")
    with steps.step("export", "exporting to ONNX") as report:
        sizes = sorted({1, min(3, request.engine.max_batch_size), request.engine.max_batch_size})
        shapes = (evaluation.batches[0], evaluation.batches[-1], evaluation.typical)
        checks = [evaluation.request(size, of) for size, of in zip(sizes, shapes, strict=False)]
        exported = export_model(source, scratch / "export", checks)
        report(1.0, f"export agrees with the source at batch {', '.join(map(str, sizes))}")
    return Prepared(source=source, exported=exported, evaluation=evaluation, calibration=calibration,
                    metric=metric)


def _climb(engines: Sequence[Engine], fallback: Sequence[Engine], request: BuildRequest, prepared: Prepared,
           scratch: Path, steps: Steps, budget: Budget) -> Climb:
    with steps.step("ladder", "building candidates") as report:
        size = request.engine.max_batch_size
        context = BuildContext(device=request.device, runtime=request.runtime, calibration=prepared.calibration,
                               max_batch_size=size, buckets=batch_buckets(size, request.batching.preferred_batch_sizes),
                               example=prepared.evaluation.typical, source=prepared.source,
                               timing_caches=Path(request.store_path) / store.TIMING_CACHES,
                               keys=read_keys(request.signing_keys),
                               workspace=scratch / "candidates", progress=report)
        gate = Gate(accuracy=request.accuracy, objective=request.objective, evaluation=prepared.evaluation,
                    budget=budget, worst_layers=prepared.drifts, metric=prepared.metric, fallback=fallback,
                    stop_when=request.engine.stop_when, look=_look(request, prepared, report),
                    measure_seconds=budget.share(MEASURE_SHARE, MEASURE_SECONDS[request.device.accelerator]))
        climbed = climb(engines, request.engine.precision, prepared.exported, prepared.source, context, gate)
        for candidate in climbed.candidates:
            report(1.0, f"{candidate.name}: {candidate.verdict}: {candidate.reason}")
        for one in climbed.built:
            if one.verdict == "AccuracyRefused" and one.artifact and one.rung.name not in prepared.drifts.reports:
                report(1.0, f"looking where {one.name} drifts")
                prepared.drifts(one.artifact, prepared.exported, prepared.evaluation.batches)
        return climbed


def _look(request: BuildRequest, prepared: Prepared, report: Callable[[float, str], None]) -> Look | None:
    """What the model is made of, by which trials on a GPU are ordered. Without it all benchmarked models count
    alike."""
    if request.device.accelerator != "gpu":
        return None
    try:
        return look(prepared.exported.path, prepared.evaluation.request(1), request.engine.max_batch_size)
    except Exception as error:  # any class of ONNX Runtime's
        report(0.0, f"the model's operators could not be counted, and do not order the trials: {str(error)[:200]}")
        return None


def _sweep(request: BuildRequest, prepared: Prepared, climbed: Climb, scratch: Path, steps: Steps, budget: Budget,
           gpus: tuple[int, ...]) -> SweepResult:
    with steps.step("sweep", f"serving {climbed.name} on tritonserver") as report:
        return sweep(climbed.artifact, request.model_name, _requests(prepared.evaluation), scratch / "sweep",
                     max_batch_size=request.engine.max_batch_size, objective=request.objective,
                     batching=request.batching, instances=request.instances, gpus=gpus, cores=available_cpus(),
                     budget_seconds=budget.share(SWEEP_SHARE, SWEEP_SECONDS), progress=report)


def _requests(evaluation: SampleSet) -> list[Tensors]:
    """Single samples of one shape, as clients that pad to a common length send them: Triton joins equal shapes only."""
    typical = evaluation.typical
    count = min(SWEEP_REQUESTS, len(next(iter(typical.values()))))
    return [{name: array[index:index + 1] for name, array in typical.items()} for index in range(count)]


def _serving(request: BuildRequest, swept: SweepResult) -> ServingChoice:
    return dataclasses.replace(swept.serving, max_batch_size=min(swept.serving.max_batch_size or 1,
                                                                 request.engine.max_batch_size))


def _prove(staging: Path, engines: Sequence[Engine], prepared: Prepared, climbed: Climb, serving: ServingChoice,
           gpus: tuple[int, ...]) -> Proof:
    """Also leaves what replicas are to be tried with beside the repository."""
    smoke = smoke_record.choose(prepared.evaluation.typical, prepared.source.run, serving.max_batch_size)
    repeated = [smoke.request(batch) for batch in smoke.batches] if smoke else []
    proof = prove(staging / MODEL_REPOSITORY, MODEL_FOLDER, _cases(engines, prepared, climbed, serving.max_batch_size),
                  gpus=gpus, repeated=repeated)
    if smoke:
        (staging / SMOKE_FILE).write_text(smoke_record.record(smoke, proof.answers), encoding="utf-8")
    return proof


def _cases(engines: Sequence[Engine], prepared: Prepared, climbed: Climb, max_batch_size: int) -> list[Case]:
    """A request in each bucket, so that each member of a composite is asked through the real server, and one of an odd
    size."""
    runner = _runner(climbed.artifact, engines)
    try:
        sizes = sorted({min(size, max_batch_size) for size in (1, 3, *climbed.shipped)})
        requests = [prepared.evaluation.request(size) for size in sizes]
        return [Case(inputs=inputs, expected=dict(runner(inputs))) for inputs in requests]
    finally:
        runner.close()


def _runner(artifact: Artifact, engines: Sequence[Engine]) -> Runner:
    if artifact.members:
        return CompositeRunner(artifact, engines)
    return next(engine for engine in engines if engine.name == artifact.rung.backend).load(artifact)


def _summary(request: BuildRequest, prepared: Prepared, climbed: Climb, swept: SweepResult, proof: Proof,
             performance: Performance) -> EngineSummary:
    artifact, best = climbed.artifact, swept.best
    devices, count = device_class(request.device)
    return EngineSummary(
        backend=artifact.rung.backend, precision=artifact.rung.precision, triton_backend=artifact.triton_backend,
        size_bytes=artifact.size_bytes, speedup=round(climbed.speedup, 3), p50_ms=best.p50_ms, p95_ms=best.p95_ms,
        p99_ms=best.p99_ms, throughput=best.throughput, accuracy=climbed.accuracy.value,
        accuracy_low=climbed.accuracy.low, device=device_name(request.device), runtime_version=artifact.runtime_version,
        load_seconds=round(proof.load_seconds, 3), memory_bytes=proof.memory_bytes, objective_met=swept.objective_met,
        evaluation=prepared.evaluation.origin, throughput_at_objective=performance.throughput_at_objective,
        device_class=devices, device_count=count, inferences_per_joule=performance.inferences_per_joule,
        gpu_utilisation=best.use.utilisation if best.use else None, bound=performance.bound, fallback=climbed.fallback,
        service_curve=tuple(BatchTime(batch=one.batch, p50_ms=round(one.p50_ms, 4)) for one in swept.service_curve))

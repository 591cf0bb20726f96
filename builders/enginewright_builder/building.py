"""The heavy part of a build, once it is clear that there is something to build. Imports PyTorch where the source needs
it."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder import store
from enginewright_builder.accuracy_rules import samples_needed
from enginewright_builder.contract import MODEL_REPOSITORY, BuildRequest, EngineSummary, Outcome, ServingChoice
from enginewright_builder.data import SYNTHETIC, SampleSet, sample_set, synthetic_set
from enginewright_builder.data_files import CALIBRATION
from enginewright_builder.engines.base import BuildContext, Engine, ExportedModel, Tensors
from enginewright_builder.engines.registry import all_engines, engines_for
from enginewright_builder.evidence import build_report, device_name
from enginewright_builder.export import export_model
from enginewright_builder.ladder import Climb, Gate, climb
from enginewright_builder.models import SourceModel, load_model
from enginewright_builder.report import write_report
from enginewright_builder.resolve import Resolved
from enginewright_builder.steps import MEASURE_SECONDS, MEASURE_SHARE, SWEEP_SECONDS, SWEEP_SHARE, Budget, Steps, now
from enginewright_builder.sweep import SweepResult, sweep
from enginewright_builder.system import available_cpus
from enginewright_builder.triton.prove import Case, Proof, prove
from enginewright_builder.triton.repository import write_model

# Made-up samples when the user gives none. They prove that the arithmetic holds, not that production's inputs fare
# well.
SYNTHETIC_SAMPLES = 64
# Single requests that the sweep sends round and round.
SWEEP_REQUESTS = 16


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The source model opened, its data as batches, its ONNX checked."""

    source: SourceModel
    exported: ExportedModel
    evaluation: SampleSet
    calibration: Sequence[Tensors]


def build(resolved: Resolved, scratch: Path, steps: Steps, budget: Budget, engines: Sequence[Engine] = ()) -> Outcome:
    """Raises :class:`BuilderError`, or anything for a bug; nothing is published then."""
    request = resolved.request
    gpus = tuple(range(request.device.gpu_count)) if request.device.accelerator == "gpu" else ()
    chosen = engines_for(request.engine.backend, engines or all_engines())
    prepared = _prepare(resolved, scratch, steps)
    climbed = _climb(chosen, request, prepared, scratch, steps, budget)
    swept = _sweep(request, prepared, climbed, scratch, steps, budget, gpus)
    staging = scratch / "staging"
    shutil.rmtree(staging, ignore_errors=True)
    serving = _serving(request, swept)
    with steps.step("repository", "writing the model repository"):
        folder = write_model(staging / MODEL_REPOSITORY, request.model_name, climbed.artifact, serving, gpus=gpus,
                             warmup=prepared.evaluation.request(1))
        config = (folder / "config.pbtxt").read_text()
    with steps.step("verify-load", "loading the finished repository in a fresh tritonserver"):
        proof = prove(staging / MODEL_REPOSITORY, request.model_name,
                      _cases(chosen, prepared, climbed, serving.max_batch_size), gpus=gpus)
    outcome = Outcome(kind="build", ok=True, source=resolved.source, fingerprint=request.fingerprint(),
                      built=now(), build_seconds=round(budget.spent, 1), serving=serving,
                      engine=_summary(request, prepared, climbed, swept, proof), candidates=climbed.candidates)
    with steps.step("publish", "writing the report and publishing"):
        write_report(build_report(request, outcome, climbed, swept, proof, prepared.source.name, prepared.evaluation,
                                  config, resolved, steps.seconds), staging)
        manifest = store.publish(staging, Path(request.store_path), request.fingerprint(),
                                 model_name=request.model_name, outcome=outcome)
    steps.tracker.step("done", "published")
    return dataclasses.replace(manifest.outcome, manifest_digest=store.manifest_digest(manifest))


def _prepare(resolved: Resolved, scratch: Path, steps: Steps) -> Prepared:
    request = resolved.request
    with steps.step("fetch", f"opening the {resolved.located.format} source"):
        source = load_model(resolved.located, request.interface, scratch)
        evaluation = (sample_set(resolved.evaluation, source) if resolved.evaluation else synthetic_set(
            source, max(SYNTHETIC_SAMPLES, samples_needed(request.accuracy.metric, request.accuracy.tolerance))))
        calibration = sample_set(resolved.calibration, source, CALIBRATION).batches if resolved.calibration else ()
        if evaluation.origin == SYNTHETIC:
            steps.tracker.note(f"no evaluation data: {evaluation.count} synthetic samples are used")
    with steps.step("export", "exporting to ONNX") as report:
        sizes = sorted({1, min(3, request.engine.max_batch_size), request.engine.max_batch_size})
        shapes = (evaluation.batches[0], evaluation.batches[-1], evaluation.typical)
        checks = [evaluation.request(size, of) for size, of in zip(sizes, shapes, strict=False)]
        exported = export_model(source, scratch / "export", checks)
        report(1.0, f"export agrees with the source at batch {', '.join(map(str, sizes))}")
    return Prepared(source=source, exported=exported, evaluation=evaluation, calibration=calibration)


def _climb(engines: Sequence[Engine], request: BuildRequest, prepared: Prepared, scratch: Path, steps: Steps,
           budget: Budget) -> Climb:
    with steps.step("ladder", "building candidates") as report:
        context = BuildContext(device=request.device, runtime=request.runtime, calibration=prepared.calibration,
                               max_batch_size=request.engine.max_batch_size, workspace=scratch / "candidates",
                               progress=report)
        gate = Gate(accuracy=request.accuracy, objective=request.objective, evaluation=prepared.evaluation,
                    measure_seconds=budget.share(MEASURE_SHARE, MEASURE_SECONDS))
        climbed = climb(engines, request.engine.precision, prepared.exported, prepared.source, context, gate)
        for candidate in climbed.candidates:
            report(1.0, f"{candidate.backend} {candidate.precision}: {candidate.verdict}: {candidate.reason}")
        return climbed


def _sweep(request: BuildRequest, prepared: Prepared, climbed: Climb, scratch: Path, steps: Steps, budget: Budget,
           gpus: tuple[int, ...]) -> SweepResult:
    with steps.step("sweep", f"serving {climbed.winner.name} on tritonserver") as report:
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


def _cases(engines: Sequence[Engine], prepared: Prepared, climbed: Climb, max_batch_size: int) -> list[Case]:
    engine = next(engine for engine in engines if engine.name == climbed.winner.rung.backend)
    runner = engine.load(climbed.artifact)
    try:
        requests = [prepared.evaluation.request(size) for size in sorted({1, min(3, max_batch_size), max_batch_size})]
        return [Case(inputs=inputs, expected=dict(runner(inputs))) for inputs in requests]
    finally:
        runner.close()


def _summary(request: BuildRequest, prepared: Prepared, climbed: Climb, swept: SweepResult,
             proof: Proof) -> EngineSummary:
    artifact, best = climbed.artifact, swept.best
    return EngineSummary(
        backend=artifact.rung.backend, precision=artifact.rung.precision, triton_backend=artifact.triton_backend,
        size_bytes=artifact.size_bytes, speedup=round(climbed.speedup, 3), p50_ms=best.p50_ms, p95_ms=best.p95_ms,
        p99_ms=best.p99_ms, throughput=best.throughput, accuracy=climbed.accuracy.value,
        accuracy_low=climbed.accuracy.low, device=device_name(request.device), runtime_version=artifact.runtime_version,
        load_seconds=round(proof.load_seconds, 3), memory_bytes=proof.memory_bytes, objective_met=swept.objective_met,
        evaluation=prepared.evaluation.origin)

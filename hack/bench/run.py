"""One model through the product's own competition, then every candidate again, exhaustively, beside the baselines."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import baselines, cells
from bench.published import Published
from bench.zoo import Entry
from enginewright_builder.accuracy.drift import worst_layers
from enginewright_builder.accuracy.gate import Accuracy, compare
from enginewright_builder.accuracy.reference_answers import remembered
from enginewright_builder.competition.candidates import Candidate
from enginewright_builder.competition.ladder import Climb, Gate, climb
from enginewright_builder.contract import AccuracyRequest, DeviceRequest, ObjectiveRequest, RuntimeRequest
from enginewright_builder.data.sets import SampleSet, synthetic_set
from enginewright_builder.engines.base import (
    Artifact,
    Beside,
    BuildContext,
    Engine,
    ExportedModel,
    Foresighted,
    Rung,
    Runner,
    Shelf,
)
from enginewright_builder.engines.buckets import bucket_of
from enginewright_builder.engines.registry import all_engines
from enginewright_builder.engines.trt_builder import tool
from enginewright_builder.engines.trt_device import gpu, tensorrt
from enginewright_builder.engines.trt_graphs import typed_graph
from enginewright_builder.errors import classify
from enginewright_builder.export import export_model
from enginewright_builder.measure.work import look
from enginewright_builder.models import SourceModel
from enginewright_builder.steps import Budget
from enginewright_builder.tensors import Call, Tensors

log = logging.getLogger(__name__)

METRIC, TOLERANCE = "cosine", 0.01
CALIBRATION = 128
GATE_BATCH = 32
MEASURE_SECONDS = 4.0
# For all candidates of one model at one batch together, after the competition.
CELL_SECONDS = 4.0
# The arm of a cell that is the published engine itself; all others were built apart from it.
AS_SHIPPED = "as shipped"
# Libraries that a serving image for GPUs has; which of them are here, each engine finds out itself.
RUNTIME = RuntimeRequest(backends=("python",), python_runtimes=("onnxruntime", "tensorrt", "torch"))


@dataclass
class Chosen:
    """An engine with only the rungs of ``precisions``, such as ``fp16``, or ``torch bf16`` of one engine: what a
    benchmark can build within its time."""

    engine: Engine
    precisions: frozenset[str]
    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.engine.name

    def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
        return [rung for rung in self.engine.rungs(precision, context) if {rung.precision, rung.name} & self.precisions]

    def specialised(self, rung: Rung, context: BuildContext) -> Sequence[Rung]:
        return self.engine.specialised(rung, context)

    def foresees(self, rung: Rung) -> bool:
        return isinstance(self.engine, Foresighted) and self.engine.foresees(rung)

    def begin(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Beside | None:
        return self.engine.begin(rung, model, context) if isinstance(self.engine, Foresighted) else None

    def build(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Artifact:
        return self.engine.build(rung, model, context)

    def load(self, artifact: Artifact) -> Runner:
        return self.engine.load(artifact)


def chosen_engines(precisions: str) -> list[Engine]:
    """All engines, with the comma-separated ``precisions`` alone; with all of theirs where that is empty."""
    wanted = frozenset(name for name in precisions.split(",") if name)
    return [Chosen(engine, wanted) for engine in all_engines()] if wanted else list(all_engines())


@dataclass(frozen=True)
class Subject:
    """A model with its data and its ONNX."""

    entry: Entry
    source: SourceModel
    exported: ExportedModel
    evaluation: SampleSet
    references: Sequence[Tensors]
    calibration: tuple[Tensors, ...]


@dataclass(frozen=True)
class Found:
    """A benchmarked model: its record for the result file, and what is needed to serve what it ships."""

    record: dict[str, Any]
    subject: Subject
    climbed: Climb

    def shipped(self, batch: int) -> Candidate:
        name = self.climbed.shipped[bucket_of(batch, tuple(sorted(self.climbed.shipped)))]
        return next(one for one in self.climbed.built if one.name == name)


def benchmark(entry: Entry, inputs: Path, scratch: Path, timing_caches: Path, device: DeviceRequest,
              budget_seconds: float, engines: Sequence[Engine], published: Published | None = None) -> Found:
    """``published`` takes part in every cell, as :data:`AS_SHIPPED`. The record is ``{"model", "weights", "cells",
    "seconds", "refused"}``; see docs/benchmarks for their meaning."""
    begin = time.monotonic()
    subject = prepare(entry, inputs, scratch, "cuda" if device.accelerator == "gpu" else "cpu")
    context = context_of(subject, scratch / "candidates", timing_caches, device)
    gate = Gate(accuracy=AccuracyRequest(metric=METRIC, tolerance=TOLERANCE), objective=ObjectiveRequest(),
                evaluation=subject.evaluation, measure_seconds=MEASURE_SECONDS, budget=Budget(budget_seconds),
                worst_layers=worst_layers, calibration=subject.calibration,
                look=look(subject.exported.path, subject.evaluation.request(1), cells.BATCHES[-1]))
    climbed = climb(engines, "auto", subject.exported, subject.source, context, gate)
    competed = time.monotonic() - begin
    log.info("%s: ships %s after %.0f s", entry.name, dict(climbed.shipped), competed)
    rivals = _baselines(subject)
    measured = [cell(subject, climbed, engines, batch, CELL_SECONDS, rivals, published) for batch in cells.BATCHES]
    refused = [{"candidate": one.name, "verdict": one.verdict, "reason": one.reason} for one in climbed.built
               if one.verdict in ("AccuracyRefused", "Failed", "Skipped")]
    record = {"model": entry.name, "weights": entry.weights, "cells": measured, "refused": refused,
              "competition_seconds": round(competed, 1), "seconds": round(time.monotonic() - begin, 1)}
    return Found(record, subject, climbed)


def prepare(entry: Entry, inputs: Path, scratch: Path, device: str) -> Subject:
    shutil.rmtree(scratch, ignore_errors=True)
    source = entry.load(inputs, device)
    samples = evaluation(entry, source)
    exported = export_model(source, scratch / "export", [samples.request(size) for size in (1, 3)])
    references = remembered(map(source.run, samples.batches), scratch / "references")
    return Subject(entry, source, exported, samples, references, tuple(calibration(source).batches))


def evaluation(entry: Entry, source: SourceModel) -> SampleSet:
    return synthetic_set(source, entry.samples, seed=1, batch=GATE_BATCH)


def calibration(source: SourceModel) -> SampleSet:
    return synthetic_set(source, CALIBRATION, seed=100_003, batch=GATE_BATCH)


def context_of(subject: Subject, workspace: Path, timing_caches: Path, device: DeviceRequest) -> BuildContext:
    return BuildContext(device=device, runtime=RUNTIME, max_batch_size=cells.BATCHES[-1], buckets=cells.BATCHES,
                        calibration=subject.calibration, example=subject.evaluation.typical, source=subject.source,
                        timing_caches=timing_caches, workspace=workspace,
                        progress=lambda fraction, detail: log.info("%s %3.0f %% %s", subject.entry.name,
                                                                   100 * fraction, detail))


@dataclass(frozen=True)
class Rival:
    """A baseline, and how accurate it is: the same at every batch."""

    baseline: baselines.Baseline
    accuracy: dict[str, Any]


def _baselines(subject: Subject) -> dict[str, Rival]:
    """By name, without those that do not compile."""
    found = {}
    for name in baselines.NAMES:
        with _kept_going(f"{subject.entry.name} {name}"):
            baseline = baselines.Baseline(subject.source, name)
            found[name] = Rival(baseline, _accuracy(subject, baseline))
    return found


def cell(subject: Subject, climbed: Climb, engines: Sequence[Engine], batch: int, seconds: float,
         rivals: Mapping[str, Rival], published: Published | None = None) -> dict[str, Any]:
    """Every candidate that was built, and the baselines, interleaved at one batch."""
    inputs = subject.evaluation.request(batch)
    candidates: dict[str, dict[str, Any]] = {}
    with contextlib.ExitStack() as stack:
        calls: dict[str, Call] = {}
        for one in climbed.built:
            if one.artifact is not None and one.rung.covers(batch):
                calls[one.name] = stack.enter_context(_loaded(engines, one.artifact)).bind(inputs)
        if published is not None:
            runner = stack.enter_context(contextlib.closing(published.runner(batch)))
            candidates[AS_SHIPPED] = {"ships": False, **published.accuracy(batch)}
            calls[AS_SHIPPED] = runner.bind(inputs)
        for name, rival in rivals.items():
            with _kept_going(f"{subject.entry.name} {name}"):
                calls[name] = rival.baseline.bind(inputs)
                candidates[name] = {"ships": False, **rival.accuracy}
        for name, times in cells.timed(calls, batch, seconds).items():
            candidates[name] = {**times, **candidates.get(name, {})}
    for one in climbed.built:
        if one.name in calls and one.accuracy is not None:
            candidates[one.name] |= {"ships": True, **judged(one.accuracy)}
    measured = {name: figures for name, figures in candidates.items() if "ms" in figures}
    shipped = climbed.shipped[bucket_of(batch, tuple(sorted(climbed.shipped)))]
    found = {"model": subject.entry.name, "batch": batch, "candidates": measured, "shipped": shipped}
    log.info("%s @%d: shipped %s, %.3f× the best", subject.entry.name, batch, shipped, cells.regret(found))
    return found


def _accuracy(subject: Subject, runner: Callable[[Tensors], Tensors]) -> dict[str, Any]:
    """As the candidates' own, judged by the same rule on the same samples."""
    return judged(compare(METRIC, subject.references, map(runner, subject.evaluation.batches)))


def judged(accuracy: Accuracy) -> dict[str, Any]:
    return {"accuracy": round(accuracy.value, 6), "accuracy_low": round(accuracy.low, 6),
            "passes": accuracy.passes(TOLERANCE)}


@contextlib.contextmanager
def _loaded(engines: Sequence[Engine], artifact: Artifact) -> Iterator[Runner]:
    engine = next(one for one in engines if one.name == artifact.rung.backend)
    runner = engine.load(artifact)
    try:
        yield runner
    finally:
        runner.close()


@contextlib.contextmanager
def _kept_going(what: str) -> Iterator[None]:
    """A baseline that does not compile costs its own column."""
    try:
        yield
    except Exception as error:
        log.warning("%s: %s", what, classify(error).message[:300])


def rebuild(entry: Entry, subject: Subject, scratch: Path, timing_caches: Path, device: DeviceRequest,
            precision: str = "fp16") -> dict[str, Any]:
    """``{"model", "candidate", "graph_s", "alone_s", "builder_s", "cold_s", "warm_s"}``: seconds that writing the
    precision into the graph takes; those of a TensorRT build of that graph with all timings in the cache that makes a
    builder for itself, and how much of it that is; and with the builder of the candidate before it at hand, as in a
    ladder, those of a build without a timing cache, and of one more with the cache that this one left."""
    engine = next(one for one in all_engines() if one.name == "tensorrt")
    shutil.rmtree(timing_caches, ignore_errors=True)
    alone = context_of(subject, scratch / "rebuild", timing_caches, device)
    context = dataclasses.replace(alone, shelf=Shelf())
    rung = next(one for one in engine.rungs(precision, context) if not one.unavailable)
    graph = _seconds(lambda: typed_graph(precision, subject.exported, context))
    builder = _seconds(lambda: tool(tensorrt(), context.shelf, gpu(), gpu))
    cold, warm = (_seconds(lambda: engine.build(rung, subject.exported, context)) for _ in range(2))
    if context.shelf:
        context.shelf.clear()
    return {"model": entry.name, "candidate": rung.name, "graph_s": graph, "builder_s": builder, "cold_s": cold,
            "warm_s": warm, "alone_s": _seconds(lambda: engine.build(rung, subject.exported, alone))}


def _seconds(call: Callable[[], object]) -> float:
    begin = time.monotonic()
    call()
    return round(time.monotonic() - begin, 2)

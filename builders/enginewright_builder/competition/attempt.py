"""One rung from plan to gated candidate: built, loaded, held against the source model."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from enginewright_builder.accuracy.drift import first_not_finite
from enginewright_builder.accuracy.gate import Accuracy, Beside, Metric, compare, least
from enginewright_builder.competition.candidates import Candidate
from enginewright_builder.contract import AccuracyRequest
from enginewright_builder.data.sets import SampleSet
from enginewright_builder.engines.base import (
    Artifact,
    BuildContext,
    Engine,
    ExportedModel,
    OutOfTimeError,
    Rung,
    Runner,
)
from enginewright_builder.engines.modelopt_graphs import has_qdq
from enginewright_builder.errors import classify, no_device_memory
from enginewright_builder.tensors import Array, Tensors, count

log = logging.getLogger(__name__)

# ONNX nodes whose low precision costs the most accuracy, for a second try; none where that is unknown.
WorstLayers = Callable[[Artifact, ExportedModel, Sequence[Tensors]], tuple[str, ...]]

# What would hit every other rung as well, so that trying them is of no use.
_FATAL = ("StoreFull", "StoreReadOnly", "ReferenceNotFinite")
NO_DEVICE_MEMORY = "the GPU had no memory left for it"
STOPPED = ("its build was stopped after {seconds:.0f} s: what is left of the time budget is needed to measure and "
           "prove what passes; raise spec.engine.buildBudgetSeconds to have it built")


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """What all attempts share. ``references`` are the source model's answers to ``evaluation.batches``; ``beside`` is
    what the gate demands besides agreement with them. ``calibration`` are other samples, as clients send them; none
    where the user gives none."""

    engines: Sequence[Engine]
    model: ExportedModel
    context: BuildContext
    accuracy: AccuracyRequest
    metric: str | Metric
    evaluation: SampleSet
    references: Sequence[Tensors]
    calibration: Sequence[Tensors] = ()
    beside: Beside = field(default_factory=Beside)
    worst_layers: WorstLayers | None = None
    clock: Callable[[], float] = time.monotonic

    def engine(self, rung: Rung) -> Engine:
        return next(engine for engine in self.engines if engine.name == rung.backend)

    def attempt(self, rung: Rung, wanted: bool, progress: Callable[[float, str], None],
                kept: tuple[str, ...] = (), time_left: Callable[[], float] = lambda: math.inf) -> Candidate:
        """Builds and gates one rung, with the ONNX nodes ``kept`` in higher precision; its build is stopped once no
        ``time_left``, in seconds, is left. Never raises for what this rung alone fails at; raises what would hit all
        of them. The candidate comes with an open runner, unless it failed or was stopped."""
        candidate = Candidate(rung=rung, wanted=wanted, kept=kept)
        if rung.unavailable:
            return candidate
        progress(0.0, f"building {candidate.name}")
        context = replace(self.context, progress=lambda fraction, detail: progress(0.7 * fraction, detail),
                          time_left=time_left)
        if kept:
            context = replace(context, keep_precise=kept, workspace=self.context.workspace / "kept-precise")
        runner: Runner | None = None
        begin = self.clock()
        try:
            artifact = self.engine(rung).build(rung, self.model, context)
            built = self.clock()
            runner = self.engine(rung).load(artifact)
            progress(0.7, f"comparing {candidate.name} with the source model")
            accuracy = self._compared(runner, rung)
        except OutOfTimeError:
            took = self.clock() - begin
            return replace(candidate, skipped=STOPPED.format(seconds=took), late=True, build_seconds=took)
        except Exception as error:  # any class of any runtime library
            if runner is not None:
                runner.close()
            known, starved = classify(error), self.starves(error)
            if known.reason in _FATAL or (known.family == "transient" and not starved):
                raise
            log.warning("%s failed", candidate.name, exc_info=error)
            failure = NO_DEVICE_MEMORY if starved else known.message
            return replace(candidate, failure=failure, starved=starved, build_seconds=self.clock() - begin)
        candidate = replace(candidate, artifact=artifact, runner=runner,
                            build_seconds=artifact.beside_seconds or built - begin,
                            gate_seconds=self.clock() - built)
        if not accuracy.finite:
            accuracy = replace(accuracy, layer=self._first_layer(candidate, accuracy))
        return replace(candidate, accuracy=accuracy)

    def _compared(self, runner: Runner, rung: Rung) -> Accuracy:
        """The first batch that refuses it, or the least of all that it is compared at. That it passes at each is an
        intersection–union test (Berger 1982), so that the bound needs no correction for how many they are."""
        found = list[Accuracy]()
        for size in rung.gated_at or (0,):
            accuracy = compare(self.metric, self.references, answers(runner, self.evaluation.batches, size),
                               self.beside)
            found.append(replace(accuracy, batch=size))
            if not accuracy.passes(self.accuracy.tolerance):
                return found[-1]
        return least(found)

    def starves(self, error: Exception) -> bool:
        """Whether the GPU has no memory for one candidate, which says nothing of others."""
        return self.context.device.accelerator == "gpu" and no_device_memory(error)

    def _first_layer(self, candidate: Candidate, accuracy: Accuracy) -> str:
        batch, sample = accuracy.broken
        inputs = {name: array[sample:sample + 1] for name, array in self.evaluation.batches[batch].items()}
        return first_not_finite(candidate.artifact, self.model, inputs) if candidate.artifact else ""

    def layers_to_keep(self, refused: Candidate) -> tuple[str, ...]:
        """For one more try; empty where the loss has another cause than low precision, where the model brings its own
        quantisation, which is kept whole, or where it is unknown. They are chosen on calibration samples where there
        are any: chosen on the evaluation, they would fit the very samples that judge them."""
        if self.worst_layers is None or refused.artifact is None or refused.rung.precision == "fp32" or refused.kept:
            return ()
        if self.model.missing or has_qdq(self.model.path):
            return ()
        try:
            return self.worst_layers(refused.artifact, self.model, self.calibration or self.evaluation.batches)
        except Exception as error:  # it only helps: without it the refusal stands
            log.warning("the layers of %s could not be compared", refused.name, exc_info=error)
            return ()


def closed(candidate: Candidate) -> Candidate:
    """Its runner's memory is free afterwards."""
    if candidate.runner is not None:
        candidate.runner.close()
    return replace(candidate, runner=None)


def answers(runner: Runner, batches: Sequence[Tensors], size: int = 0) -> Iterator[Tensors]:
    """The runner's answers to ``batches``, each in one call; or in calls of exactly ``size`` samples. Neighbours of one
    shape are called together then, and what is left of them is filled up, the answers to which are left away."""
    if not size:
        yield from ({**runner(batch)} for batch in batches)
        return
    for group in _of_one_shape(batches, size):
        whole = {name: np.concatenate([batch[name] for batch in group]) for name in group[0]}
        answered, start = _in_calls(runner, whole, size), 0
        for batch in group:
            end = start + count(batch)
            yield {name: array[start:end] for name, array in answered.items()}
            start = end


def _of_one_shape(batches: Sequence[Tensors], size: int) -> Iterator[list[Tensors]]:
    """Neighbours, until they are ``size`` samples or more."""
    group = list[Tensors]()
    for batch in batches:
        if group and (sum(map(count, group)) >= size or _shapes(batch) != _shapes(group[0])):
            yield group
            group = []
        group.append(batch)
    if group:
        yield group


def _shapes(batch: Tensors) -> dict[str, tuple[int, ...]]:
    return {name: array.shape[1:] for name, array in batch.items()}


def _in_calls(runner: Runner, whole: Tensors, size: int) -> Tensors:
    total, parts = count(whole), list[Tensors]()
    for start in range(0, total, size):
        rows = np.arange(start, start + size) % total
        keep = min(size, total - start)
        parts.append({name: array[:keep] for name, array in runner(_picked(whole, rows)).items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _picked(whole: Tensors, rows: Array) -> Tensors:
    return {name: array[rows] for name, array in whole.items()}

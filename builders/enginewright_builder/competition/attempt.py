"""One rung from plan to gated candidate: built, loaded, held against the source model."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from enginewright_builder.accuracy.drift import first_not_finite
from enginewright_builder.accuracy.gate import Accuracy, Beside, Metric, compare
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
from enginewright_builder.tensors import Array, Tensors

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
    what is asked beside agreement with them."""

    engines: Sequence[Engine]
    model: ExportedModel
    context: BuildContext
    accuracy: AccuracyRequest
    metric: str | Metric
    evaluation: SampleSet
    references: Sequence[Tensors]
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
            accuracy = compare(self.metric, self.references, answers(runner, rung, self.evaluation.batches),
                               self.beside)
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

    def starves(self, error: Exception) -> bool:
        """Whether the GPU has no memory for one candidate, which says nothing of others."""
        return self.context.device.accelerator == "gpu" and no_device_memory(error)

    def _first_layer(self, candidate: Candidate, accuracy: Accuracy) -> str:
        batch, sample = accuracy.broken
        inputs = {name: array[sample:sample + 1] for name, array in self.evaluation.batches[batch].items()}
        return first_not_finite(candidate.artifact, self.model, inputs) if candidate.artifact else ""

    def layers_to_keep(self, refused: Candidate) -> tuple[str, ...]:
        """For one more try; empty where the loss has another cause than low precision, where the model brings its own
        quantisation, which is kept whole, or where it is unknown."""
        if self.worst_layers is None or refused.artifact is None or refused.rung.precision == "fp32" or refused.kept:
            return ()
        if self.model.missing or has_qdq(self.model.path):
            return ()
        try:
            return self.worst_layers(refused.artifact, self.model, self.evaluation.batches)
        except Exception as error:  # it only helps: without it the refusal stands
            log.warning("the layers of %s could not be compared", refused.name, exc_info=error)
            return ()


def closed(candidate: Candidate) -> Candidate:
    """Its runner's memory is free afterwards."""
    if candidate.runner is not None:
        candidate.runner.close()
    return replace(candidate, runner=None)


def answers(runner: Runner, rung: Rung, batches: Sequence[Tensors]) -> Iterator[Tensors]:
    """The runner's answers to ``batches``, in parts of the largest size that the rung takes. A rest that is smaller
    than it takes is filled up with its last sample, and the answers to that are left away."""
    for batch in batches:
        count, start, parts = len(next(iter(batch.values()))), 0, list[Tensors]()
        for size in _parts(rung, count):
            part = {name: _filled(array[start:start + size], size) for name, array in batch.items()}
            keep = min(size, count - start)
            parts.append({name: array[:keep] for name, array in runner(part).items()})
            start += keep
        yield {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _parts(rung: Rung, count: int) -> list[int]:
    """Sizes to run, which together hold ``count`` samples; the last may be larger than what is left."""
    if not rung.ranges:
        return [count]
    largest = max(one.high for one in rung.ranges)
    rest = count % largest
    last = [min(max(rest, one.low) for one in rung.ranges if one.high >= rest)] if rest else []
    return [largest] * (count // largest) + last


def _filled(array: Array, size: int) -> Array:
    return array if len(array) == size else np.concatenate([array, np.repeat(array[-1:], size - len(array), axis=0)])

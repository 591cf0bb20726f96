"""What candidates are built from: the source model opened, its data as batches, and its ONNX checked. Imports PyTorch
where the source needs it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from enginewright_builder import own_device
from enginewright_builder.accuracy.drift import DriftTables
from enginewright_builder.accuracy.gate import Metric
from enginewright_builder.accuracy.metric_fit import check_classes_last
from enginewright_builder.accuracy.metrics import open_metric
from enginewright_builder.contract import BuildRequest, Interface
from enginewright_builder.data.files import note_left_out, note_rounded
from enginewright_builder.data.sets import SYNTHETIC, SampleSet, gate_samples
from enginewright_builder.engines.base import ExportedModel
from enginewright_builder.errors import UserError
from enginewright_builder.evidence.lengths import Settled, settle
from enginewright_builder.export import export_model, trace_model
from enginewright_builder.models import SourceModel, load_model
from enginewright_builder.models.own_steps import OwnStepped
from enginewright_builder.models.sequenced import Sequenced
from enginewright_builder.models.texted import given, in_tokens
from enginewright_builder.narrowing import NO_GRAPH, Opened, as_free_as_possible, has_program, package_lacks
from enginewright_builder.onnx_sparse import sparse_share
from enginewright_builder.onnx_weights import Weights, weights_of
from enginewright_builder.resolve import Resolved
from enginewright_builder.sequences import most_joined
from enginewright_builder.shapes import takes_batches
from enginewright_builder.steps import Steps
from enginewright_builder.tensors import Tensors

# Of each sequence: steps that the export is tried with.
EXPORT_STEPS = 3


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The source model opened, its data as batches, its ONNX checked. ``max_batch_size`` is how many samples one call
    may hold: 1 for a model that takes no batches, whose samples are whole calls, or sequences of them. ``settled`` is
    how requests of different length are joined, ``weights`` what the graph has of them, ``stated`` the interface that
    the source was opened with."""

    source: SourceModel
    exported: ExportedModel
    evaluation: SampleSet
    calibration: Sequence[Tensors]
    metric: str | Metric
    max_batch_size: int
    settled: Settled = field(default_factory=Settled)
    weights: Weights = field(default_factory=Weights)
    stated: Interface | None = None
    drifts: DriftTables = field(default_factory=DriftTables)


def prepare(resolved: Resolved, scratch: Path, steps: Steps) -> Prepared:
    """As free as the source can be exported. Raises :class:`BuilderError`."""
    request = resolved.request
    own_device.check(request.device, steps.tracker.note)
    own_device.check_meter(request.objective, request.device)
    with steps.step("fetch", f"opening the {resolved.located.format} source"):
        source = load_model(resolved.located, request.interface, scratch,
                            "cuda" if request.device.accelerator == "gpu" else "cpu",
                            Path(request.steps_socket) if request.steps_socket else None)
        opened = Opened(source=source, stated=request.interface)
    lacks = package_lacks(request)
    try:
        return as_free_as_possible(opened, resolved.located.format,
                                   functools.partial(_exported, resolved, scratch, steps), steps.tracker.note,
                                   packaged=not lacks)
    except UserError as error:
        if lacks and error.reason in NO_GRAPH and has_program(source):
            error.remedy += f"; or let PyTorch's own package serve it, which needs no ONNX: {' and '.join(lacks)}"
        raise


def _exported(resolved: Resolved, scratch: Path, steps: Steps, opened: Opened) -> Prepared:
    request, source = resolved.request, opened.source
    if not isinstance(source, Sequenced):
        check_classes_last(request.accuracy.metric, source.interface.outputs,
                           batched=takes_batches(source.interface))
    with steps.step("fetch", "reading evaluation data"):
        evaluation, calibration = gate_samples(resolved.evaluation, resolved.calibration, request.accuracy, source,
                                               request.engine.max_batch_size)
        metric = open_metric(request.accuracy.metric, resolved.metric_graph)
        if evaluation.origin == SYNTHETIC:
            steps.tracker.note(f"no evaluation data: {evaluation.count} synthetic samples are used")
        for note in (*note_left_out(evaluation.left_out, "evaluation"),
                     *note_rounded(evaluation.rounded, "evaluation")):
            steps.tracker.note(note)
        settled = Settled() if isinstance(source, Sequenced | OwnStepped) else settle(
            source, request.interface.padding if request.interface else None, evaluation,
            rounded=request.device.accelerator == "gpu")
        for note in (*source.notes, *settled.notes):
            steps.tracker.note(note)
    largest = _largest(request, source)
    with steps.step("export", "exporting to ONNX") as report:
        sizes = sorted({1, min(3, largest), largest})
        shapes = (evaluation.batches[0], evaluation.batches[-1], evaluation.typical)
        checks = [evaluation.request(size, of) for size, of in zip(sizes, shapes, strict=False)]
        checks += opened.checks(shapes)
        taken = ([call for one in checks for call in source.calls(one, EXPORT_STEPS)]
                 if isinstance(source, Sequenced) else [given(source, one) for one in checks])
        exported = (trace_model(in_tokens(source), scratch / "export", taken, opened.no_graph) if opened.no_graph else
                    export_model(in_tokens(source), scratch / "export", taken))
        exported = dataclasses.replace(exported, given=functools.partial(given, source))
        report(1.0, f"export agrees with the source at batch {', '.join(map(str, sizes))}")
    weights = _weights(request, exported)
    for note in weights.notes:
        steps.tracker.note(note)
    return Prepared(source=source, exported=exported, evaluation=evaluation, calibration=calibration,
                    metric=metric, max_batch_size=largest, settled=settled, weights=weights,
                    stated=opened.stated)


def _weights(request: BuildRequest, exported: ExportedModel) -> Weights:
    if exported.missing:
        return Weights()
    weights = weights_of(exported.path)
    on_gpu = request.device.accelerator == "gpu"
    return dataclasses.replace(weights, sparse=sparse_share(exported.path)) if on_gpu else weights


def _largest(request: BuildRequest, source: SourceModel) -> int:
    """How many samples one call may hold."""
    interface, largest = in_tokens(source).interface, request.engine.max_batch_size
    if not takes_batches(interface):
        return 1
    return most_joined(interface.sequence_batching, largest) if interface.sequence_batching else largest

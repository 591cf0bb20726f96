"""Where a candidate loses its accuracy: the same samples through both graphs, compared tensor by tensor.

The original ONNX and the graph that the candidate was built from run on the CPU with every inner value exposed and
nothing fused, so that each tensor of one has its counterpart in the other. A tensor's *error* is ``‖candidate −
original‖ / ‖original‖`` over all samples. What a layer *added* is ``√(error² − came_in²)``, where ``came_in`` is the
largest error among its inputs: rounding errors are independent, so their squares add up. Quantisers round a layer's
output behind it, so what then turns up in a layer that is not lowered itself is counted to the one before it that is.
Layers are called by their ONNX node's name, or by their first output where the node has none.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from enginewright_builder.accuracy.drift_graph import ExposedGraph, LayerPair, label, matched, read_graph
from enginewright_builder.accuracy.drift_report import WORST_LAYERS, DriftReport, LayerDrift
from enginewright_builder.engines.base import Artifact, ExportedModel
from enginewright_builder.errors import brief
from enginewright_builder.shapes import takes_batches
from enginewright_builder.tensors import Array, Tensors, count, whole_call

log = logging.getLogger(__name__)

# Inner values are large: a few samples tell which layer drifts, all of them would not fit into memory.
DRIFT_BATCHES, SAMPLES_OF_A_BATCH = 4, 4
# Inner values fetched by one run, each of which computes the whole graph.
_VALUES_AT_ONCE = 128
# The original may be all zero where the candidate is not.
_SMALLEST, _LARGEST = 1e-300, 1e9
# Used where the artifact names no graph of its own: ONNX Runtime serves the graph itself.
_OWN_GRAPH = "model.onnx"


def worst_layers(artifact: Artifact, model: ExportedModel, batches: Sequence[Tensors],
                 count: int = WORST_LAYERS) -> tuple[str, ...]:
    """Names for ``BuildContext.keep_precise``; empty when nothing is known. Never raises."""
    return tuple(layer.node for layer in drift_of(artifact, model, batches).worst(count))


class DriftTables:
    """:func:`worst_layers` that keeps the whole reports, by the engine's name, for the build report."""

    def __init__(self) -> None:
        self.reports: dict[str, DriftReport] = {}

    def __call__(self, artifact: Artifact, model: ExportedModel, batches: Sequence[Tensors]) -> tuple[str, ...]:
        report = self.reports[artifact.rung.name] = drift_of(artifact, model, batches)
        return tuple(layer.node for layer in report.worst())


def first_not_finite(artifact: Artifact, model: ExportedModel, sample: Tensors) -> str:
    """The first layer that answers NaN or infinity to ``sample``; empty where that does not show on a CPU."""
    return drift_of(artifact, model, [sample]).first_not_finite


def drift_of(artifact: Artifact, model: ExportedModel, batches: Sequence[Tensors]) -> DriftReport:
    """Never raises: a report that cannot be made says why."""
    graph = artifact.graph or artifact.files.get(_OWN_GRAPH)
    if graph is None:
        return DriftReport(unavailable=f"{artifact.rung.name} was not built from an ONNX of its own")
    try:
        given = [model.given(one) for one in _few(batches)]
        return drift(model.path, graph, given, batched=takes_batches(model.interface))
    except Exception as error:  # any class of ONNX Runtime's
        log.warning("no drift report of %s", artifact.rung.name, exc_info=error)
        return DriftReport(unavailable=f"its graph does not run on a CPU: {brief(error, 200)}")


def drift(original: Path, candidate: Path, batches: Sequence[Tensors], *, batched: bool = True) -> DriftReport:
    """``batched`` False: each sample is a whole call. Raises what ONNX Runtime raises where it cannot run one of the
    graphs on a CPU."""
    source, other = read_graph(original), read_graph(candidate)
    pairs = matched(source, other)
    few = _few(batches)
    sums = {pair.tensor: _Sums() for pair in pairs}
    left, right = (ExposedGraph(path, model, names) for path, model, names in (
        (original, source, [pair.tensor for pair in pairs]), (candidate, other, [pair.counterpart for pair in pairs])))
    calls = few if batched else [whole_call(batch, index) for batch in few for index in range(count(batch))]
    for batch in calls:
        for start in range(0, len(pairs), _VALUES_AT_ONCE):
            part = pairs[start:start + _VALUES_AT_ONCE]
            here = left.run(batch, [pair.tensor for pair in part])
            there = right.run(batch, [pair.counterpart for pair in part])
            for pair, one, two in zip(part, here, there, strict=True):
                sums[pair.tensor].add(one, two)
    samples = sum(map(count, few))
    return _report(source, pairs, {name: total for name, total in sums.items() if total.seen}, samples)


def _few(batches: Sequence[Tensors]) -> list[Tensors]:
    """Spread over the whole set, as its batches may be sorted by length."""
    picks = sorted({round(place) for place in np.linspace(0, len(batches) - 1, min(DRIFT_BATCHES, len(batches)))})
    return [{name: array[:SAMPLES_OF_A_BATCH] for name, array in batches[pick].items()} for pick in picks]


class _Sums:
    """Squared error and size of one tensor, batch by batch."""

    def __init__(self) -> None:
        self.seen, self.finite, self._error, self._size = False, True, 0.0, 0.0

    def add(self, original: Array | None, candidate: Array | None) -> None:
        if original is None or candidate is None or original.shape != candidate.shape:
            return
        here, there = original.astype(np.float64), candidate.astype(np.float64)
        known = np.isfinite(here)
        self.seen = True
        if not np.isfinite(there[known]).all():
            self.finite = False
            return
        self._error += float(np.sum((there[known] - here[known]) ** 2))
        self._size += float(np.sum(here[known] ** 2))

    @property
    def error(self) -> float:
        if not self.finite or self._error == 0:
            return 0.0
        # A report holds no infinity; what was nothing and is something is off by as much as can be known.
        return min(math.sqrt(self._error / max(self._size, _SMALLEST)), _LARGEST)


def _report(source: onnx.ModelProto, pairs: Sequence[LayerPair], sums: Mapping[str, _Sums],
            samples: int) -> DriftReport:
    by_tensor = {pair.tensor: pair for pair in pairs}
    layers = tuple(_layers(source, by_tensor, sums))
    broken = next((layer.node for layer in layers if not layer.finite), "")
    return DriftReport(layers=layers, first_not_finite=broken, samples=samples,
                       unavailable="" if layers else "no inner value of its graph has the name it has in the original")


def _layers(source: onnx.ModelProto, pairs: Mapping[str, LayerPair],
            sums: Mapping[str, _Sums]) -> Iterator[LayerDrift]:
    """In the graph's order. What is not compared hands on the largest error that came in."""
    errors: dict[str, float] = {}
    # By tensor the lowered layer that its error is counted to, by layer what it added, squared.
    owners: dict[str, str] = {}
    added: dict[str, float] = {}
    compared: list[tuple[onnx.NodeProto, list[str]]] = []
    for node in source.graph.node:
        worst_input = max(node.input, key=lambda name: errors.get(name, 0.0), default="")
        came_in = errors.get(worst_input, 0.0)
        names = [name for name in node.output if name in sums]
        lowered = any(pairs[name].lowered for name in names)
        owner = label(node) if lowered else owners.get(worst_input, label(node))
        errors.update({name: sums[name].error if name in sums else came_in for name in node.output})
        owners.update(dict.fromkeys(node.output, owner))
        if names:
            error = max(sums[name].error for name in names)
            added[owner] = added.get(owner, 0.0) + max(0.0, error ** 2 - came_in ** 2)
            compared.append((node, names))
    for node, names in compared:
        yield LayerDrift(node=label(node), operator=node.op_type, error=max(sums[name].error for name in names),
                         added=math.sqrt(added.get(label(node), 0.0)), finite=all(sums[name].finite for name in names),
                         lowered=any(pairs[name].lowered for name in names))

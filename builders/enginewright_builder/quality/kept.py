"""The source model beside an engine, for the monitor of serving pods: a build writes it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from enginewright_builder.accuracy.rules import ONNX_METRIC
from enginewright_builder.accuracy.scores import Floats, norms
from enginewright_builder.contract import REFERENCE_FOLDER, AccuracyRequest, canonical, to_plain
from enginewright_builder.engines.base import ExportedModel
from enginewright_builder.quality.reference import ABOUT, GRAPH, METRIC_GRAPH
from enginewright_builder.quality.window import typical_norm
from enginewright_builder.tensors import Tensors

# Of the evaluation, for the norms of the source's answers: medians of so many hardly move any more.
NORM_SAMPLES = 256


def keep_reference(staging: Path, exported: ExportedModel, accuracy: AccuracyRequest,
                   metric_graph: Path | None, answers: Iterable[Tensors] = ()) -> None:
    """Into ``staging/reference``: the export with its weights, the metric, what is asked of it, and the norms of the
    source model's ``answers`` to the evaluation data, of which no more are asked for than are needed."""
    import onnx

    folder = staging / REFERENCE_FOLDER
    folder.mkdir(parents=True)
    graph = onnx.load(str(exported.path), load_external_data=False).graph
    beside = {entry.value for tensor in graph.initializer for entry in tensor.external_data if entry.key == "location"}
    for source, name in ((exported.path, GRAPH), *((exported.path.parent / name, name) for name in sorted(beside))):
        shutil.copyfile(source, folder / name)
    if accuracy.metric == ONNX_METRIC and metric_graph is not None:
        shutil.copyfile(metric_graph, folder / METRIC_GRAPH)
    about = {"metric": accuracy.metric, "tolerance": accuracy.tolerance, "interface": to_plain(exported.interface),
             "norms": typical_norms(answers)}
    (folder / ABOUT).write_text(canonical(about), encoding="utf-8")


def typical_norms(answers: Iterable[Tensors]) -> dict[str, float]:
    """Of each output of the first :data:`NORM_SAMPLES` answers."""
    found: dict[str, list[Floats]] = {}
    count = 0
    for batch in answers:
        for name, array in batch.items():
            found.setdefault(name, []).append(norms(array))
        count += len(next(iter(batch.values())))
        if count >= NORM_SAMPLES:
            break
    every = {name: np.concatenate(parts) for name, parts in found.items()}
    return {name: typical_norm(one[np.isfinite(one)]) for name, one in every.items()}

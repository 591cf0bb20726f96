"""The source model beside an engine, for the monitor of serving pods: a build writes it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from enginewright_builder.accuracy.rules import ONNX_METRIC
from enginewright_builder.accuracy.scores import Seen, Usual
from enginewright_builder.contract import REFERENCE_FOLDER, AccuracyRequest, canonical, to_plain
from enginewright_builder.engines.base import ExportedModel
from enginewright_builder.quality.reference import ABOUT, GRAPH, METRIC_GRAPH
from enginewright_builder.tensors import Tensors, count

# Of the evaluation, for what the source's answers are like: medians of so many hardly move any more.
NORM_SAMPLES = 256


def keep_reference(staging: Path, exported: ExportedModel, accuracy: AccuracyRequest,
                   metric_graph: Path | None, answers: Iterable[Tensors] = ()) -> None:
    """Writes into ``staging/reference``: the export with its weights, the metric and its tolerance, and what the
    source's ``answers`` to the evaluation data are like. It reads no more of these than it needs."""
    import onnx

    folder = staging / REFERENCE_FOLDER
    folder.mkdir(parents=True)
    graph = onnx.load(str(exported.path), load_external_data=False).graph
    beside = {entry.value for tensor in graph.initializer for entry in tensor.external_data if entry.key == "location"}
    for source, name in ((exported.path, GRAPH), *((exported.path.parent / name, name) for name in sorted(beside))):
        shutil.copyfile(source, folder / name)
    if accuracy.metric == ONNX_METRIC and metric_graph is not None:
        shutil.copyfile(metric_graph, folder / METRIC_GRAPH)
    usual = usual_answers(answers)
    about = {"metric": accuracy.metric, "tolerance": accuracy.tolerance, "interface": to_plain(exported.interface),
             "norms": {name: one.size for name, one in usual.items()},
             "levels": {name: one.level for name, one in usual.items()},
             "thresholds": {name: one.threshold for name, one in usual.items() if one.threshold}}
    (folder / ABOUT).write_text(canonical(about), encoding="utf-8")


def usual_answers(answers: Iterable[Tensors]) -> dict[str, Usual]:
    """Of each output of the first :data:`NORM_SAMPLES` answers."""
    seen: dict[str, Seen] = {}
    samples = 0
    for batch in answers:
        for name, array in batch.items():
            seen.setdefault(name, Seen()).add(array)
        samples += count(batch)
        if samples >= NORM_SAMPLES:
            break
    return {name: one.usual for name, one in seen.items()}

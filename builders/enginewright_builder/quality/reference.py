"""The source model as it lies beside an engine, for the monitor: written by a build, opened in a serving pod."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from enginewright_builder.accuracy.gate import Metric
from enginewright_builder.accuracy.metrics import open_metric
from enginewright_builder.accuracy.rules import ONNX_METRIC
from enginewright_builder.accuracy.scores import MIN_RANKS, Floats, norms
from enginewright_builder.contract import REFERENCE_FOLDER, AccuracyRequest, Interface, canonical, load, to_plain
from enginewright_builder.engines.base import ExportedModel
from enginewright_builder.ort_session import OrtRunner
from enginewright_builder.quality.trace import readable
from enginewright_builder.quality.window import typical_norm
from enginewright_builder.tensors import Tensors

GRAPH, METRIC_GRAPH, ABOUT = "model.onnx", "metric.onnx", "reference.json"


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


@dataclass(frozen=True, kw_only=True)
class About:
    """What ``reference.json`` says: the gate's metric and tolerance, the model's tensors, and the typical norm of each
    output where that was measured."""

    metric: str
    tolerance: float
    interface: Interface
    norms: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def nothing(cls) -> Self:
        """Of an engine that cannot say."""
        return cls(metric="", tolerance=0.0, interface=Interface())

    @property
    def problem(self) -> str:
        """Why live traffic cannot be compared; empty where it can."""
        wrong = [f"{one.name} ({one.dtype})" for one in (*self.interface.inputs, *self.interface.outputs)
                 if not readable(one.dtype)]
        if wrong:
            return f"Triton's trace does not hold tensors of this type: {', '.join(wrong)}"
        narrow = self.metric == "spearman" and all(
            all(isinstance(size, int) for size in one.shape[1:]) and math.prod(map(int, one.shape[1:])) < MIN_RANKS
            for one in self.interface.outputs)
        return ("outputs of fewer than three numbers have ranks among requests alone, and live requests may be all "
                "alike: spearman cannot be measured") if narrow else ""


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


class Reference:
    """The source model on the CPU, with ``threads`` at most."""

    def __init__(self, folder: Path, about: About, threads: int) -> None:
        self.about = about
        graph = folder / METRIC_GRAPH
        self.metric: str | Metric = open_metric(about.metric, graph if graph.is_file() else None)
        self._outputs = [tensor.name for tensor in about.interface.outputs]
        self._runner = OrtRunner(folder / GRAPH, parameters={"threads": str(threads)})

    def answer(self, inputs: Tensors) -> Tensors:
        answers = self._runner(inputs)
        return {name: answers[name] for name in self._outputs}


def read_about(folder: Path) -> About:
    """Raises :class:`OSError` where there is none, :class:`~enginewright_builder.contract.ContractError` where it makes
    no sense."""
    return load(About, (folder / ABOUT).read_text(encoding="utf-8"))

"""The source model as it lies beside an engine, opened in a serving pod; :mod:`kept` writes it there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from enginewright_builder.accuracy.gate import Metric
from enginewright_builder.accuracy.metrics import open_metric
from enginewright_builder.accuracy.scores import MIN_RANKS, SIGN, Usual
from enginewright_builder.contract import Interface, TensorSpec, load
from enginewright_builder.ort_session import OrtRunner
from enginewright_builder.quality.trace import readable
from enginewright_builder.shapes import STRING, sample_shape, takes_batches
from enginewright_builder.tensors import Tensors

GRAPH, METRIC_GRAPH, ABOUT = "model.onnx", "metric.onnx", "reference.json"


@dataclass(frozen=True, kw_only=True)
class About:
    """What ``reference.json`` says: the gate's metric and tolerance, the model's tensors, and where they were measured
    the typical norm of each output, the root of the norms' mean square and, where an answer is one number, what divides
    yes from no."""

    metric: str
    tolerance: float
    interface: Interface
    norms: Mapping[str, float] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def nothing(cls) -> Self:
        """Of an engine that cannot say."""
        return cls(metric="", tolerance=0.0, interface=Interface())

    @property
    def usual(self) -> dict[str, Usual]:
        """Of each output that was measured; an older build measured norms alone."""
        return {name: Usual(size=size, level=self.levels.get(name, size), threshold=self.thresholds.get(name, SIGN))
                for name, size in self.norms.items()}

    @property
    def unseen(self) -> str:
        """Why not even what clients send can be had; empty where it can."""
        return _absent(self.interface.inputs)

    @property
    def problem(self) -> str:
        """Why live traffic cannot be compared; empty where it can."""
        if wrong := _absent((*self.interface.inputs, *self.interface.outputs)):
            return wrong
        if texts := [one.name for one in self.interface.inputs if one.dtype == STRING]:
            return f"answers to texts are not compared: {', '.join(texts)}"
        narrow = self.metric == "spearman" and all(
            all(isinstance(size, int) for size in shape) and math.prod(map(int, shape)) < MIN_RANKS
            for shape in (sample_shape(one, batched=takes_batches(self.interface)) for one in self.interface.outputs))
        return ("outputs of fewer than three numbers have ranks among requests alone, and live requests may be all "
                "alike: spearman cannot be measured") if narrow else ""


def _absent(specs: Iterable[TensorSpec]) -> str:
    wrong = [f"{one.name} ({one.dtype})" for one in specs if not readable(one.dtype)]
    return f"Triton's trace does not hold tensors of this type: {', '.join(wrong)}" if wrong else ""


class Reference:
    """The source model on the CPU, with ``threads`` at most."""

    def __init__(self, folder: Path, about: About, threads: int) -> None:
        self.about = about
        graph = folder / METRIC_GRAPH
        self.metric: str | Metric = open_metric(about.metric, graph if graph.is_file() else None)
        self._outputs = [tensor.name for tensor in about.interface.outputs]
        self.batched = takes_batches(about.interface)
        self._runner = OrtRunner(folder / GRAPH, parameters={"threads": str(threads)})

    def answer(self, inputs: Tensors) -> Tensors:
        answers = self._runner(inputs)
        return {name: answers[name] for name in self._outputs}


def read_about(folder: Path) -> About:
    """Raises :class:`OSError` where there is none, :class:`~enginewright_builder.contract.ContractError` where it makes
    no sense."""
    return load(About, (folder / ABOUT).read_text(encoding="utf-8"))

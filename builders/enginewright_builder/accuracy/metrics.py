"""Metrics of the user's own: an ONNX graph that comes with the source, or a Python entry point of the builder image.

* ``onnx``: ``metric.onnx`` in the source's folder. For each of the model's outputs that it looks at, it takes
  ``<output>.reference`` and ``<output>.candidate`` with the batch in front, in any floating-point or whole type; it
  answers one number a sample, ``[batch]``, 1 for equal answers and down to 0. ONNX Runtime runs it on the CPU, as data:
  there is no code in it. Being part of the source, it is part of the source's digest.
* ``python:NAME``: an entry point of the group ``enginewright.metrics``, installed in the builder image by those who run
  the platform; never code out of a source. It is called as ``metric(reference, candidate)`` with mappings of output
  name to NumPy array, and answers as the graph does. The image's digest stands for it in the fingerprint.

Such a metric is the whole judgement, but for NaN, infinity and shapes: no guard stands beside it. So it is tried before
anything is built: it must give 1 to equal answers, and not to zero, inverted and exchanged ones alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from enginewright_builder.accuracy.gate import Metric
from enginewright_builder.accuracy.rules import (
    CANDIDATE,
    METRIC_GROUP,
    ONNX_METRIC,
    PYTHON_METRIC,
    REFERENCE,
    unknown_metric,
)
from enginewright_builder.errors import UserError, brief, known_or
from enginewright_builder.tensors import Array, Tensors

# What equal answers must score, and what obviously wrong ones must not reach, on average.
_EQUAL, _BLIND = 0.999, 0.99
# Above 1 by rounding alone.
_ROUNDING = 1e-3


def open_metric(metric: str, graph: Path | None = None) -> str | Metric:
    """The metric to hand to ``compare``: one of the four is its own name. Raises :class:`UserError`
    ``MetricInvalid`` or ``MetricUnknown``."""
    if metric == ONNX_METRIC:
        if graph is None:
            raise _invalid("the source has no metric.onnx", metric, "put it into the model's folder")
        return Checked(OnnxMetric(graph))
    if metric.startswith(PYTHON_METRIC):
        return Checked(PythonMetric(metric.removeprefix(PYTHON_METRIC)))
    return metric


class OnnxMetric:
    """Raises :class:`UserError` ``MetricInvalid`` where the graph cannot be loaded or run."""

    name = ONNX_METRIC

    def __init__(self, graph: Path) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 3
        try:
            self._session = ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # a class of ONNX Runtime's own, for each kind of fault
            raise known_or(error, _invalid(f"metric.onnx cannot be loaded: {brief(error, 200)}", graph,
                                           "try it with ONNX Runtime on a CPU")) from error
        self._types = {value.name: _NUMPY.get(value.type) for value in self._session.get_inputs()}

    def __call__(self, reference: Tensors, candidate: Tensors) -> Array:
        values = {}
        for name, dtype in self._types.items():
            output, _, side = name.rpartition(".")
            answers = reference if side == REFERENCE else candidate
            if output not in answers or side not in (REFERENCE, CANDIDATE):
                raise _invalid(f"metric.onnx takes {name}, but the model answers {', '.join(sorted(reference))}", name,
                               f"call its inputs <output>.{REFERENCE} and <output>.{CANDIDATE}")
            values[name] = answers[output].astype(dtype) if dtype else answers[output]
        try:
            scores: Array = self._session.run(None, values)[0]
        except Exception as error:  # a class of ONNX Runtime's own, for each kind of fault
            raise known_or(error, _invalid(f"metric.onnx failed: {brief(error, 200)}", "",
                                           "try it with ONNX Runtime on answers of the model")) from error
        return scores


class PythonMetric:
    """Raises :class:`UserError` ``MetricUnknown`` or ``MetricInvalid``."""

    def __init__(self, name: str) -> None:
        self.name = f"{PYTHON_METRIC}{name}"
        found = list(metadata.entry_points(group=METRIC_GROUP, name=name))
        if not found:
            raise unknown_metric(name)
        try:
            self._metric: Callable[[Mapping[str, Array], Mapping[str, Array]], Any] = found[0].load()
        except Exception as error:  # whatever the module does when it is imported
            raise _invalid(f"{self.name} cannot be imported: {type(error).__name__}: {error}", self.name,
                           "mend it in the builder image") from error

    def __call__(self, reference: Tensors, candidate: Tensors) -> Array:
        try:
            return np.asarray(self._metric(reference, candidate))
        except Exception as error:  # whatever it does
            raise known_or(error, _invalid(f"{self.name} failed: {type(error).__name__}: {error}", self.name,
                                           "mend it in the builder image")) from error


class Checked:
    """A metric whose every answer is looked at."""

    def __init__(self, metric: Metric) -> None:
        self.name, self._metric = metric.name, metric

    def __call__(self, reference: Tensors, candidate: Tensors) -> Array:
        count = len(next(iter(reference.values())))
        scores = np.asarray(self._metric(reference, candidate))
        if scores.shape != (count,) or scores.dtype.kind not in "fiub":
            raise _invalid(f"{self.name} answers {list(scores.shape)} {scores.dtype} for {count} samples",
                           list(scores.shape), "let it answer one number for each sample")
        found = scores.astype(np.float64)
        if not np.isfinite(found).all() or found.max() > 1 + _ROUNDING:
            raise _invalid(f"{self.name} gives {found.max():.4g}", found.max(), "let it give numbers from 0 to 1")
        clipped: Array = np.clip(found, 0.0, 1.0)
        return clipped


def try_metric(metric: Metric, references: Iterable[Tensors]) -> None:
    """With the source's answers, batch after batch until one tells: in a batch of one nothing can be exchanged, and
    where all answers are 0, zero and inverted ones are right. Raises :class:`UserError` ``MetricInvalid``."""
    for reference in references:
        equal = metric(reference, reference)
        if equal.min() < _EQUAL:
            raise _invalid(f"{metric.name} gives {equal.min():.4g} to equal answers", equal.min(),
                           "let it give 1 where candidate and reference are the same")
        if any(metric(reference, wrong).mean() <= _BLIND for wrong in _wrong(reference)):
            return
    raise _invalid(f"{metric.name} gives 1 to answers that are zero, inverted, or another sample's", 1,
                   "let it look at both reference and candidate")


def _wrong(reference: Tensors) -> Iterator[Tensors]:
    yield {name: np.zeros_like(array) for name, array in reference.items()}
    yield {name: _inverted(array) for name, array in reference.items()}
    yield {name: np.roll(array, 1, axis=0) for name, array in reference.items()}


def _inverted(array: Array) -> Array:
    return ~array if array.dtype.kind == "b" else np.negative(array)


def _invalid(message: str, value: object, remedy: str) -> UserError:
    return UserError("MetricInvalid", message, field="spec.accuracy.metric", value=value, remedy=remedy)


_NUMPY = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64,
          "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}

"""A user's metric before anything is built: is it there, and of the right form? No ONNX Runtime: the resolve step
asks."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from enginewright_builder.accuracy.rules import (
    CANDIDATE,
    METRIC_GROUP,
    ONNX_METRIC,
    PYTHON_METRIC,
    REFERENCE,
    unknown_metric,
)
from enginewright_builder.errors import UserError
from enginewright_builder.sources.formats import METRIC_FILE
from enginewright_builder.sources.integrity import check_onnx

_FORM = f"give it inputs <output>.{REFERENCE} and <output>.{CANDIDATE} and one output, [batch]"


def find_metric(metric: str, source: Path) -> Path | None:
    """The graph of metric ``onnx`` in the source's folder, None for other metrics. Raises :class:`UserError`
    ``MetricInvalid`` or ``MetricUnknown``."""
    if metric.startswith(PYTHON_METRIC):
        name = metric.removeprefix(PYTHON_METRIC)
        if not metadata.entry_points(group=METRIC_GROUP, name=name):
            raise unknown_metric(name)
    if metric != ONNX_METRIC:
        return None
    path = source / METRIC_FILE
    if not source.is_dir() or not path.is_file():
        raise UserError("MetricInvalid", f"the source has no {METRIC_FILE}", field="spec.accuracy.metric", value=metric,
                        remedy="put it beside the model and let spec.source.uri name the folder, or write another "
                               "metric")
    _check(path)
    return path


def _check(path: Path) -> None:
    import onnx

    check_onnx(path)
    graph = onnx.load(str(path), load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value.name for value in graph.input if value.name not in constants]
    sides = {name.rpartition(".")[2] for name in inputs}
    if sides != {REFERENCE, CANDIDATE} or any(not name.rpartition(".")[0] for name in inputs):
        raise UserError("MetricInvalid", f"{METRIC_FILE} takes {', '.join(inputs) or 'nothing'}",
                        field="spec.accuracy.metric", value=", ".join(inputs), remedy=_FORM)
    if len(graph.output) != 1:
        raise UserError("MetricInvalid", f"{METRIC_FILE} has {len(graph.output)} outputs", field="spec.accuracy.metric",
                        value=len(graph.output), remedy=_FORM)

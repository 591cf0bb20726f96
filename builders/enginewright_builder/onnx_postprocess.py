"""Writes into an ONNX graph what becomes of its outputs before clients get them. Needs ``onnx`` and NumPy only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from enginewright_builder.best_few import indices_of
from enginewright_builder.contract import Interface, PostprocessStep
from enginewright_builder.detection import Plan
from enginewright_builder.errors import UserError
from enginewright_builder.onnx_detection import fold_detection
from enginewright_builder.onnx_names import rename_values
from enginewright_builder.onnx_steps import GraphSteps, opset_of
from enginewright_builder.postprocess import (
    ALONE,
    ARG_MAX,
    LEAST_NORM,
    LEAST_TOKENS,
    MEAN_POOLING,
    TOP_K,
    best_axis,
)

# Softmax along one axis, and ReduceSum and Unsqueeze with axes as inputs.
_LEAST_OPSET = 13


def fold_outputs(path: Path, steps: Sequence[PostprocessStep], made: Interface, boxes: Plan | None = None) -> None:
    """The graph at ``path`` answers what ``steps`` make of its outputs; ``made`` is the interface then, ``boxes`` how
    boxes are made where they are. Weights beside the graph stay where they are. Raises :class:`UserError`
    ``ExportFailed`` for a graph too old."""
    model = onnx.load(str(path), load_external_data=False)
    if (found := opset_of(model)) < _LEAST_OPSET:
        raise UserError("ExportFailed", f"outputs cannot be processed in a graph of opset {found}",
                        field="spec.interface.postprocess", value=found,
                        remedy=f"export the model with opset {_LEAST_OPSET} or later, or leave postprocess out")
    shapes = {spec.name: spec.shape for spec in made.outputs}
    consumed = boxes.consumed if boxes else ()
    for value in list(model.graph.output):
        mine = [step for step in steps if step.output == value.name and step.output not in consumed]
        if mine:
            _fold(model.graph, value, mine, shapes[value.name])
    if boxes:
        fold_detection(model.graph, boxes, behind(boxes.output))
    onnx.save(model, str(path))


def behind(name: str) -> str:
    """How the nodes are called that make the answer ``name``."""
    return f"{name}/postprocess"


def _fold(graph: onnx.GraphProto, value: onnx.ValueInfoProto, steps: Sequence[PostprocessStep],
          shape: tuple[int | str, ...]) -> None:
    name = value.name
    dimensions = len(value.type.tensor_type.shape.dim)
    own = f"{name}/source"
    rename_values(graph, {name: own})
    value.name = name
    made = GraphSteps(behind(name))
    last = own
    half = value.type.tensor_type.elem_type == TensorProto.FLOAT16
    if half:  # sums of many numbers
        last = made.add("Cast", last, to=TensorProto.FLOAT)
    numbers = True
    for step in steps:
        if step.function == ARG_MAX:
            last, numbers = _best(made, step, last, dimensions), False
        elif step.function == TOP_K:
            last, indices = _best_few(made, step, last)
            made.rename(indices, indices_of(name))
        else:
            last = _step(made, step, last)
            dimensions -= step.function == MEAN_POOLING
    if half and numbers:
        last = made.add("Cast", last, to=TensorProto.FLOAT16)
    made.rename(last, name)
    graph.node.extend(made.nodes)
    graph.initializer.extend(made.constants)
    _declare(value, steps, shape, whole=not numbers)
    if any(step.function == TOP_K for step in steps):
        graph.output.append(_indices(value))


def _declare(value: onnx.ValueInfoProto, steps: Sequence[PostprocessStep], shape: tuple[int | str, ...], *,
             whole: bool) -> None:
    """What the graph says of the output: names of dimensions stay."""
    dims = value.type.tensor_type.shape.dim
    for step in steps:
        if step.function == MEAN_POOLING:  # the tokens are gone
            del dims[1]
        elif step.function == ARG_MAX and len(dims) == ALONE:
            dims[1].Clear()
            dims[1].dim_value = 1
        elif step.function == TOP_K:
            dims[1].Clear()
            dims[1].dim_value = step.k
        elif step.function == ARG_MAX:
            del dims[best_axis(step, len(dims))]
    if len(dims) != len(shape):
        raise ValueError(f"{value.name}: {len(dims)} dimensions, {len(shape)} expected")
    if whole:
        value.type.tensor_type.elem_type = TensorProto.INT32


def _step(made: GraphSteps, step: PostprocessStep, last: str) -> str:
    if step.function == "softmax":
        return made.add("Softmax", last, axis=-1)
    if step.function == "sigmoid":
        return made.add("Sigmoid", last)
    if step.function == MEAN_POOLING:
        return _pooled(made, last, step.mask)
    square = made.add("ReduceSum", made.add("Mul", last, last), made.constant([-1], np.int64), keepdims=1)
    return made.add("Div", last, made.add("Max", made.add("Sqrt", square), made.constant(LEAST_NORM)))


def _best(made: GraphSteps, step: PostprocessStep, last: str, dimensions: int) -> str:
    place = made.add("ArgMax", last, axis=best_axis(step, dimensions), keepdims=int(dimensions == ALONE))
    return made.add("Cast", place, to=TensorProto.INT32)


def _best_few(made: GraphSteps, step: PostprocessStep, last: str) -> tuple[str, str]:
    """Scores and classes. TensorRT takes constants alone for how many, and gives them sorted alone."""
    scores, places = made.add_with(("scores", "indices"), "TopK", last, made.constant([step.k], np.int64),
                                   axis=-1, largest=1, sorted=1)
    return scores, made.add("Cast", places, to=TensorProto.INT32)


def _indices(scores: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    beside = onnx.ValueInfoProto()
    beside.CopyFrom(scores)
    beside.name = indices_of(scores.name)
    beside.type.tensor_type.elem_type = TensorProto.INT32
    return beside


def _pooled(made: GraphSteps, tokens: str, mask: str) -> str:
    along = made.constant([1], np.int64)
    counted = made.add("Unsqueeze", made.add("Cast", mask, to=TensorProto.FLOAT), made.constant([2], np.int64))
    total = made.add("ReduceSum", made.add("Mul", tokens, counted), along, keepdims=0)
    count = made.add("ReduceSum", counted, along, keepdims=0)
    return made.add("Div", total, made.add("Max", count, made.constant(LEAST_TOKENS)))

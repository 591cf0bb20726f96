"""Writes into an ONNX graph what makes boxes of a detector's raw outputs. Needs ``onnx`` and NumPy only.

TensorRT wants answers of a fixed size. ``NonMaxSuppression`` answers as many rows as it keeps, so that scores of what
it keeps are put back to where they came from, among zeros; what follows is the same with and without it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from enginewright_builder.detection import MADE, Plan, made_outputs
from enginewright_builder.onnx_names import rename_values
from enginewright_builder.onnx_steps import GraphSteps
from enginewright_builder.same_boxes import BOXES, LABELS, NOTHING, SCORES

_TYPES = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32}
_END = np.iinfo(np.int64).max


def fold_detection(graph: onnx.GraphProto, one: Plan, name: str) -> None:
    """The outputs that ``one`` is about become ``scores``, ``labels`` and ``boxes``, behind all others. ``name`` begins
    the names of the nodes."""
    consumed = {value.name: value for value in graph.output if value.name in one.consumed}
    # Inner values of the answers' names step aside, too.
    rename_values(graph, {output: f"{output}/source" for output in (*MADE, *consumed)})
    batch = next(iter(consumed.values())).type.tensor_type.shape.dim[0]
    kept = [value for value in graph.output if value.name not in {f"{output}/source" for output in consumed}]
    del graph.output[:]
    graph.output.extend(kept)
    made = GraphSteps(name)
    scores, boxes = _split(made, one, {output: made.add("Cast", f"{output}/source", to=TensorProto.FLOAT)
                                       for output in one.used})
    scores, boxes = _scored(made, one, scores), _corners(made, one, boxes)
    if one.how.nms_threshold:
        scores = _suppressed(made, one, scores, boxes)
    for output, value in zip((SCORES, LABELS, BOXES), _best(made, one, scores, boxes), strict=True):
        made.rename(value, output)
    graph.node.extend(made.nodes)
    graph.initializer.extend(made.constants)
    for spec in made_outputs(one):
        answer = helper.make_tensor_value_info(spec.name, _TYPES[spec.dtype], spec.shape)
        answer.type.tensor_type.shape.dim[0].CopyFrom(batch)
        graph.output.append(answer)


def _split(made: GraphSteps, one: Plan, outputs: dict[str, str]) -> tuple[str, str]:
    """Scores ``[batch, boxes, classes]`` and boxes ``[batch, boxes, 4]``."""
    if one.how.boxes:
        return outputs[one.output], outputs[one.how.boxes]
    turned = made.add("Transpose", outputs[one.output], perm=[0, 2, 1])
    return _slice(made, turned, 4, _END), _slice(made, turned, 0, 4)


def _slice(made: GraphSteps, value: str, start: int, end: int) -> str:
    """Along the last of three dimensions."""
    return made.add("Slice", value, *(made.constant([number], np.int64) for number in (start, end, 2)))


def _scored(made: GraphSteps, one: Plan, scores: str) -> str:
    how = one.how
    if how.scoring != "none":
        scores = made.add("Softmax", scores, axis=-1) if how.scoring == "softmax" else made.add("Sigmoid", scores)
    if how.background != "none":
        scores = _slice(made, scores, 1, _END) if how.background == "first" else _slice(made, scores, 0, -1)
    if how.scoring == "softmax":  # of each box the best class alone
        best, _ = made.add_with(("scores", "indices"), "TopK", scores, made.constant([1], np.int64), axis=-1)
        scores = made.add("Where", made.add("Less", scores, best), made.constant(0), scores)
    return scores


def _corners(made: GraphSteps, one: Plan, boxes: str) -> str:
    """No product with a matrix, in which a quantiser would look for weights."""
    if one.how.box_format == "cxcywh":
        centre = _slice(made, boxes, 0, 2)
        half = made.add("Mul", _slice(made, boxes, 2, 4), made.constant(0.5))
        boxes = made.add("Concat", made.add("Sub", centre, half), made.add("Add", centre, half), axis=-1)
    if not one.how.target_sizes:
        return boxes
    (height, width), sizes = one.axes, one.source
    places = made.constant([width, height, width, height], np.int64)
    pixels = made.add("Cast", made.add("Gather", made.add("Shape", one.how.target_sizes), places),
                      to=TensorProto.FLOAT)
    return made.add("Mul", boxes, made.add("Mul", pixels, made.constant([1 / size for size in (*sizes[::-1],
                                                                                             *sizes[::-1])])))


def _suppressed(made: GraphSteps, one: Plan, scores: str, boxes: str) -> str:
    by_class = made.add("Transpose", scores, perm=[0, 2, 1])
    found = made.add("NonMaxSuppression", boxes, by_class, made.constant([one.k], np.int64),
                     made.constant([one.how.nms_threshold]), made.constant([one.how.threshold]))
    nothing = made.add("Mul", by_class, made.constant(0))
    kept = made.add("ScatterND", nothing, found, made.add("GatherND", by_class, found))
    return made.add("Transpose", kept, perm=[0, 2, 1])


def _best(made: GraphSteps, one: Plan, scores: str, boxes: str) -> Sequence[str]:
    flat = made.add("Reshape", scores, made.constant([0, -1], np.int64))
    best, places = made.add_with(("scores", "indices"), "TopK", flat, made.constant([one.k], np.int64), axis=-1,
                                 largest=1, sorted=1)
    classes = made.constant(one.classes, np.int64)
    box = made.add("Div", places, classes)
    label = made.add("Add", made.add("Sub", places, made.add("Mul", box, classes)), made.constant(one.first, np.int64))
    column = made.add("Unsqueeze", box, made.constant([2], np.int64))
    corners = made.add("GatherElements", boxes, made.add("Concat", *[column] * 4, axis=2), axis=1)
    kept = made.add("Greater", best, made.constant(one.how.threshold))
    return (made.add("Where", kept, best, made.constant(0)),
            made.add("Cast", made.add("Where", kept, label, made.constant(NOTHING, np.int64)), to=TensorProto.INT32),
            made.add("Where", made.add("Unsqueeze", kept, made.constant([2], np.int64)), corners, made.constant(0)))

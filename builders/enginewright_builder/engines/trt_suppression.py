"""Non-maximum suppression as TensorRT builds it.

TensorRT 10.6 fails on ``NonMaxSuppression`` of ONNX, whatever follows: it merges the operator with the cast behind it,
and that node then has two outputs (``castNode.cpp``, ``signedSize(out) == 1``; H200). What
:mod:`enginewright_builder.onnx_detection` writes around the operator is therefore made of others.

Of the best places of all classes a box is kept where no kept box before it, of the same class, overlaps with it by more
than the threshold. There is one such choice, the one that picking the best again and again makes, and it is reached by
applying the rule to all boxes at once until nothing changes: after as many turns as the longest chain of boxes that
decide about each other, so mostly a few. ``CANDIDATES`` places are looked at; where more than these are above the least
score that counts, what is behind them is not answered, and the gate sees it.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.onnx_steps import GraphSteps

# Every two of them are held against each other: 4 MB for a sample. TensorRT's TopK picks at most 3,840.
CANDIDATES = 1024
_OPERATOR = "NonMaxSuppression"


def without_suppression(source: Path) -> Path:
    """Where the graph lies without the operator: beside ``source``, whose files of weights it shares. ``source`` itself
    where nothing was to be done, or the operator stands in another graph than ours: TensorRT says what it lacks."""
    if not _mentions_operator(source):
        return source
    model = onnx.shape_inference.infer_shapes(onnx.load(str(source), load_external_data=False))
    found = [one for node in model.graph.node if node.op_type == _OPERATOR and (one := _matched(model.graph, node))]
    for one in found:
        _replace(model.graph, one)
    if not found:
        return source
    target = source.with_name(f"{source.stem}-without-suppression.onnx")
    onnx.save(model, str(target))
    return target


def _mentions_operator(graph: Path) -> bool:
    """Without reading its weights as a graph: each engine of a build asks, and few graphs have the operator."""
    with graph.open("rb") as reader, mmap.mmap(reader.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(_OPERATOR.encode()) >= 0


@dataclass(frozen=True, kw_only=True)
class _Match:
    """``nodes`` go. ``scores`` ``[batch, classes, count]`` and ``boxes`` are FP32, ``kept`` is of type ``dtype``."""

    nodes: Sequence[onnx.NodeProto]
    boxes: str
    scores: str
    kept: str
    overlap: float
    least: float
    classes: int
    count: int
    dtype: int


def _matched(graph: onnx.GraphProto, node: onnx.NodeProto) -> _Match | None:
    """Kept scores among zeros, by GatherND and ScatterND."""
    takers = [one for one in graph.node if node.output[0] in one.input]
    gather = next((one for one in takers if one.op_type == "GatherND"), None)
    scatter = next((one for one in takers if one.op_type == "ScatterND"), None)
    overlap, least = (_number(graph, name) for name in [*node.input, "", "", ""][3:5])  # they may be left out
    types = {one.name: one.type.tensor_type for one in (*graph.value_info, *graph.input, *graph.output)}
    if len(takers) != 2 or not gather or not scatter or node.input[1] not in types:
        return None
    sizes = [dim.dim_value for dim in types[node.input[1]].shape.dim]
    if overlap is None or least is None or len(sizes) != 3 or not all(sizes[1:]):
        return None
    kept = scatter.output[0]
    return _Match(nodes=(node, gather, scatter), boxes=node.input[0], scores=node.input[1], kept=kept,
                  overlap=overlap, least=least, classes=sizes[1], count=sizes[2],
                  dtype=types[kept].elem_type if kept in types else TensorProto.FLOAT)


def _number(graph: onnx.GraphProto, name: str) -> float | None:
    """Of a constant of one number; None for what is computed."""
    made = [node.attribute[0].t for node in graph.node if node.op_type == "Constant" and name in node.output]
    found = next((one for one in graph.initializer if one.name == name), made[0] if made else None)
    values = None if found is None else numpy_helper.to_array(found).reshape(-1)
    return float(values[0]) if values is not None and len(values) == 1 else None


def _replace(graph: onnx.GraphProto, one: _Match) -> None:
    made = GraphSteps(f"{one.nodes[0].name or one.kept}/suppression")
    kept = _kept(made, one)
    if one.dtype not in (TensorProto.FLOAT, TensorProto.UNDEFINED):
        kept = made.add("Cast", kept, to=one.dtype)
    made.rename(kept, one.kept)
    place = list(graph.node).index(one.nodes[-1])
    nodes = [*list(graph.node)[:place], *made.nodes, *list(graph.node)[place:]]
    del graph.node[:]
    graph.node.extend(node for node in nodes if all(node is not gone for gone in one.nodes))
    graph.initializer.extend(made.constants)


def _kept(made: GraphSteps, one: _Match) -> str:
    """Scores ``[batch, classes, count]``, zero where a box is not kept."""
    flat = made.add("Reshape", one.scores, made.constant([0, -1], np.int64))
    most = min(CANDIDATES, one.classes * one.count)
    best, places = made.add_with(("scores", "places"), "TopK", flat, made.constant([most], np.int64), axis=-1,
                                 largest=1, sorted=1)
    count = made.constant(one.count, np.int64)
    label = made.add("Div", places, count)
    column = made.add("Unsqueeze", made.add("Sub", places, made.add("Mul", label, count)),
                      made.constant([2], np.int64))
    corners = made.add("GatherElements", one.boxes, made.add("Concat", *[column] * 4, axis=2), axis=1)
    beaten = _beaten(made, one, corners, made.add("Unsqueeze", label, made.constant([2], np.int64)), most)
    counting = made.add("Cast", made.add("Greater", best, made.constant(one.least)), to=TensorProto.FLOAT)
    standing = _standing(made, beaten, made.add("Unsqueeze", counting, made.constant([2], np.int64)), most)
    left = made.add("Mul", best, made.add("Squeeze", standing, made.constant([2], np.int64)))
    nothing = made.add("Mul", flat, made.constant(0))
    return made.add("Reshape", made.add("ScatterElements", nothing, places, left, axis=1),
                    made.add("Shape", one.scores))


def _beaten(made: GraphSteps, one: _Match, corners: str, label: str, most: int) -> str:
    """``[batch, most, most]``: 1 where the box of a column, if it is kept, drops that of the row."""
    sides = [made.add("Slice", corners, *(made.constant([number], np.int64) for number in (side, side + 1, 2)))
             for side in range(4)]
    shared, area = "", ""
    for begin, end in zip(sides[:2], sides[2:], strict=True):
        overlap = made.add("Max", made.add("Sub", made.add("Min", end, _turned(made, end)),
                                           made.add("Max", begin, _turned(made, begin))), made.constant(0))
        length = made.add("Sub", end, begin)
        shared = made.add("Mul", shared, overlap) if shared else overlap
        area = made.add("Mul", area, length) if area else length
    union = made.add("Sub", made.add("Add", area, _turned(made, area)), shared)
    over = made.add("Greater", shared, made.add("Mul", union, made.constant(one.overlap)))
    alike = made.add("And", over, made.add("Equal", label, _turned(made, label)))
    before = made.constant(np.tril(np.ones((most, most), np.bool_), -1), np.bool_)
    return made.add("Cast", made.add("And", alike, before), to=TensorProto.FLOAT)


def _turned(made: GraphSteps, column: str) -> str:
    return made.add("Transpose", column, perm=[0, 2, 1])


def _standing(made: GraphSteps, beaten: str, counting: str, most: int) -> str:
    """``[batch, most, 1]``: 1 for each box that stands when nothing changes any longer, at the latest after ``most``
    turns."""
    turn = GraphSteps(f"{made.name}/turn")
    hit = turn.add("MatMul", beaten, f"{turn.name}/before")
    now = turn.add("Mul", counting, turn.add("Cast", turn.add("Equal", hit, turn.constant(0)), to=TensorProto.FLOAT))
    moved = turn.add("ReduceSum", turn.add("Abs", turn.add("Sub", now, f"{turn.name}/before")), keepdims=0)
    going = turn.add("Greater", moved, turn.constant(0))
    boxes: list[str | int | None] = ["batch", most, 1]
    body = helper.make_graph(
        turn.nodes, "turn",
        [helper.make_tensor_value_info(f"{turn.name}/number", TensorProto.INT64, []),
         helper.make_tensor_value_info(f"{turn.name}/go", TensorProto.BOOL, []),
         helper.make_tensor_value_info(f"{turn.name}/before", TensorProto.FLOAT, boxes)],
        [helper.make_tensor_value_info(going, TensorProto.BOOL, []),
         helper.make_tensor_value_info(now, TensorProto.FLOAT, boxes)], turn.constants)
    return made.add("Loop", made.constant(most, np.int64), made.constant(True, np.bool_), counting, body=body)

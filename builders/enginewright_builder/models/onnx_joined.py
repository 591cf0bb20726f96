"""Whether steps of several sequences may run as one batch, which is tried out, and the graph that takes them so.

State has the batch where its operators want it, an LSTM's behind the layers: ``[layers, batch, width]``. The graph gets
Transposes, so that it stands in front of all inputs and outputs, and everything that joins and splits batches does so
here. What clients send and get stays as it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.errors import first_line, lacks_memory
from enginewright_builder.models.onnx_batch import SAME, TRIED, Opened, Settled, distance
from enginewright_builder.models.onnx_tidy import save
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.onnx_names import rename_values
from enginewright_builder.onnx_steps import GraphSteps
from enginewright_builder.sequences import answered, sent
from enginewright_builder.shapes import BATCH, is_batch, shape_text
from enginewright_builder.tensors import Tensors

# By tensor, where its batch stands.
Axes = Mapping[str, int]


def joined_steps(path: Path, found: Interface, whole: Interface, folder: Path, vocabulary: int, opened: Opened
                 ) -> Settled:
    """``found`` is what the graph at ``path`` says, ``whole`` the same for requests of one sequence each. Where steps
    cannot be joined the result is these, and its only note says why in half a sentence. Writes into ``folder``."""
    why = next(filter(None, (_stands(spec, found, whole) for spec in (*found.inputs, *found.outputs))), "")
    if not why:
        axes = {spec.name: _axes(spec)[0] for spec in (*found.inputs, *found.outputs)}
        made = Settled(path=_in_front(path, axes, folder), interface=_moved(found, whole, axes))
        if not (why := _dependence(made, path, whole, axes, vocabulary, opened)):
            return made
    return Settled(path=path, interface=whole, notes=(why,))


def _axes(spec: TensorSpec) -> list[int]:
    return [axis for axis, size in enumerate(spec.shape) if is_batch(size)]


def _stands(spec: TensorSpec, found: Interface, whole: Interface) -> str:
    """Why requests cannot be joined along one size of this tensor; empty where they can. One that clients send or get
    has a batch of 1 in front and keeps it, so that its shape on the wire is the same."""
    kind = "input" if spec in found.inputs else "output"
    described, axes = f"{kind} {spec.name!r} {shape_text(spec.shape)}", _axes(spec)
    if len(axes) != 1:
        return f"{described} has {'more than one size' if axes else 'no free size'} that is a batch"
    if spec.name in {one.name for one in (*sent(whole), *answered(whole))} and (axes[0] or len(spec.shape) < 2):
        return f"{described} does not have the batch in front of its other sizes"
    return ""


def _moved(found: Interface, whole: Interface, axes: Axes) -> Interface:
    def moved(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return tuple(dataclasses.replace(spec, shape=(BATCH, *(size for axis, size in enumerate(spec.shape)
                                                               if axis != axes[spec.name]))) for spec in specs)

    return dataclasses.replace(whole, inputs=moved(found.inputs), outputs=moved(found.outputs))


def _in_front(path: Path, axes: Axes, folder: Path) -> Path:
    if not any(axes.values()):
        return path
    model = onnx.load(str(path))
    graph, steps = model.graph, GraphSteps("enginewright/joined")
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants and axes[value.name]]
    outputs = [value for value in graph.output if axes[value.name]]
    names = {f"{steps.name}/{value.name}": value.name for value in (*inputs, *outputs)}
    rename_values(graph, {name: within for within, name in names.items()})
    for side in (inputs, outputs):
        for value in side:
            within, value.name = value.name, names[value.name]
            front = _turn(value, axes[value.name])
            if side is inputs:
                steps.rename(steps.add("Transpose", value.name, perm=np.argsort(front).tolist()), within)
            else:
                steps.rename(steps.add("Transpose", within, perm=front), value.name)
    nodes = [*steps.nodes[:len(inputs)], *graph.node, *steps.nodes[len(inputs):]]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    made = folder / f"{path.stem}.joined.onnx"
    save(model, made)
    return made


def _turn(value: onnx.ValueInfoProto, axis: int) -> list[int]:
    """Which of its sizes come first to last, once ``axis`` is in front."""
    sizes = value.type.tensor_type.shape.dim
    front = [axis, *(other for other in range(len(sizes)) if other != axis)]
    turned = [onnx.TensorShapeProto.Dimension.FromString(sizes[other].SerializeToString()) for other in front]
    del sizes[:]
    sizes.extend(turned)
    return front


def _dependence(made: Settled, path: Path, whole: Interface, axes: Axes, vocabulary: int, opened: Opened) -> str:
    """Why steps of ``made`` are not answered together as by the graph at ``path`` one by one; empty where they are."""
    inputs = example_inputs(made.interface, TRIED, vocabulary=vocabulary)
    calls: Tensors = {name: np.moveaxis(array[:, None], 1, 1 + axes[name]) for name, array in inputs.items()}
    try:
        expected, together = opened(path, whole)(calls), opened(made.path, made.interface)(inputs)
    except Exception as error:  # ONNX Runtime's own classes, whatever the graph trips over
        if lacks_memory(error):  # it says nothing of the graph
            raise
        return f"it fails at another batch: {first_line(error)}"
    for name, array in expected.items():
        if distance(np.moveaxis(array, 1 + axes[name], 1)[:, 0], together[name]) > SAME:
            return "its answers depend on what else is in the batch"
    return ""

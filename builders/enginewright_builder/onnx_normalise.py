"""Writes normalisation into an ONNX graph, in front of all that it computes. Needs ``onnx`` and NumPy only."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import TensorSpec
from enginewright_builder.normalise import factors, order


def fold(path: Path, specs: Iterable[TensorSpec]) -> None:
    """Inputs of the graph at ``path`` become what clients send: ``specs`` with ``normalise``, by name. Weights beside
    the graph stay where they are."""
    model = onnx.load(str(path), load_external_data=False)
    for spec in specs:
        _fold(model.graph, spec)
    onnx.save(model, str(path))


def _fold(graph: onnx.GraphProto, spec: TensorSpec) -> None:
    assert spec.normalise is not None
    value = next(one for one in graph.input if one.name == spec.name)
    tensor = value.type.tensor_type
    own_type, name = tensor.elem_type, f"{spec.name}/normalise"
    _rename(graph, spec.name, f"{name}d")
    scale, shift = factors(spec.normalise, len(spec.shape))
    graph.initializer.extend([numpy_helper.from_array(scale, f"{name}/scale"),
                              numpy_helper.from_array(shift, f"{name}/shift")])
    # The cast comes first: of bytes TensorRT can do nothing else.
    steps: list[tuple[str, list[str], dict[str, Any]]] = [("Cast", [], {"to": TensorProto.FLOAT})]
    if (turned := list(order(spec))) != sorted(turned):
        steps.append(("Transpose", [], {"perm": turned}))
    steps += [("Mul", [f"{name}/scale"], {}), ("Add", [f"{name}/shift"], {})]
    if own_type != TensorProto.FLOAT:
        steps.append(("Cast", [], {"to": own_type}))
    nodes, last = [], spec.name
    for index, (kind, constants, attributes) in enumerate(steps):
        out = f"{name}d" if index == len(steps) - 1 else f"{name}/{index}"
        nodes.append(helper.make_node(kind, [last, *constants], [out], name=f"{name}/{kind}{index}", **attributes))
        last = out
    for node in reversed(nodes):
        graph.node.insert(0, node)
    own_shape = onnx.TensorShapeProto()
    own_shape.CopyFrom(tensor.shape)
    tensor.elem_type = TensorProto.UINT8
    for axis, place in enumerate(turned):
        tensor.shape.dim[place].CopyFrom(own_shape.dim[axis])


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Wherever ``old`` is read, also in the bodies of loops and branches; no other tensor of an ONNX graph has its
    name."""
    for node in graph.node:
        for index, read in enumerate(node.input):
            if read == old:
                node.input[index] = new
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _rename(body, old, new)

"""Writes into an ONNX graph what makes the source's input of the bytes that clients send: resize, crop, normalisation,
in front of all that it computes. Needs ``onnx`` and NumPy only."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from enginewright_builder.contract import Preprocess, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.normalise import factors, order
from enginewright_builder.onnx_steps import GraphSteps, opset_of
from enginewright_builder.preprocess import matrix, resized_sizes
from enginewright_builder.shapes import size_range

# ReduceSum, Clip, Slice and Min as they are written here.
_LEAST_OPSET = 13


def fold(path: Path, specs: Iterable[TensorSpec]) -> None:
    """Inputs of the graph at ``path`` become what clients send: ``specs`` with ``normalise``, by name. Weights beside
    the graph stay where they are. Raises :class:`UserError` ``ExportFailed`` for a graph too old to resize."""
    model = onnx.load(str(path), load_external_data=False)
    for spec in specs:
        if spec.preprocess is not None:
            _check_opset(model, spec)
        _fold(model.graph, spec)
    onnx.save(model, str(path))


def _check_opset(model: onnx.ModelProto, spec: TensorSpec) -> None:
    if (found := opset_of(model)) < _LEAST_OPSET:
        raise UserError("ExportFailed", f"input {spec.name!r} cannot be resized in a graph of opset {found}",
                        field=f"spec.interface.inputs[{spec.name}].preprocess", value=found,
                        remedy=f"export the model with opset {_LEAST_OPSET} or later, or leave preprocess out")


def in_front(name: str) -> str:
    """How the nodes are called that make the source's input ``name``."""
    return f"{name}/preprocess"


def _fold(graph: onnx.GraphProto, spec: TensorSpec) -> None:
    assert spec.normalise is not None
    value = next(one for one in graph.input if one.name == spec.name)
    tensor, made = value.type.tensor_type, f"{spec.name}/preprocessed"
    own_type = tensor.elem_type
    _rename(graph, spec.name, made)
    steps = GraphSteps(in_front(spec.name))
    # The cast comes first: of bytes TensorRT can do nothing else.
    last = steps.add("Cast", spec.name, to=TensorProto.FLOAT)
    turned = list(order(spec))
    if spec.preprocess is not None:
        last = _resized(steps, spec, spec.preprocess, last)
    elif turned != sorted(turned):
        last = steps.add("Transpose", last, perm=turned)
    scale, shift = factors(spec.normalise, len(spec.shape))
    last = steps.add("Add", steps.add("Mul", last, steps.constant(scale)), steps.constant(shift))
    if own_type != TensorProto.FLOAT:
        steps.add("Cast", last, to=own_type)
    steps.nodes[-1].output[0] = made
    for node in reversed(steps.nodes):
        graph.node.insert(0, node)
    graph.initializer.extend(steps.constants)
    _send(tensor, spec, turned)


def _send(tensor: onnx.TypeProto.Tensor, spec: TensorSpec, turned: list[int]) -> None:
    """The input's type and shape become those of what clients send."""
    own_shape = onnx.TensorShapeProto()
    own_shape.CopyFrom(tensor.shape)
    tensor.elem_type = TensorProto.UINT8
    for axis, place in enumerate(turned):
        tensor.shape.dim[place].CopyFrom(own_shape.dim[axis])
    for axis in turned[2:] if spec.preprocess is not None else ():
        low, high = size_range(spec.shape[axis])
        tensor.shape.dim[axis].Clear()
        if low == high:
            tensor.shape.dim[axis].dim_value = low
        else:
            tensor.shape.dim[axis].dim_param = f"{spec.name}_{axis}"


def _resized(steps: GraphSteps, spec: TensorSpec, how: Preprocess, last: str) -> str:
    """Columns first, as Pillow does, each time rounded to whole numbers. The matrix stands on the left, where no
    quantiser looks for weights."""
    batch, channels, height, width = order(spec)
    left = [_matrix(steps, spec, how, side) for side in (0, 1)]
    last = steps.add("Transpose", last, perm=[batch, channels, width, height])
    last = _rounded(steps, how, steps.add("MatMul", left[1], last))
    last = steps.add("Transpose", last, perm=[0, 1, 3, 2])
    return _rounded(steps, how, steps.add("MatMul", left[0], last))


def _rounded(steps: GraphSteps, how: Preprocess, last: str) -> str:
    last = steps.add("Floor", steps.add("Add", last, steps.constant(0.5)))
    if how.resample == "bilinear":  # it makes nothing that is outside of what it is made of
        return last
    return steps.add("Clip", last, steps.constant(0), steps.constant(255))


def _matrix(steps: GraphSteps, spec: TensorSpec, how: Preprocess, side: int) -> str:
    """What to multiply rows (``side`` 0) or columns (1) with: a constant where clients send one size."""
    sizes = [size_range(spec.shape[axis]) for axis in order(spec)[2:]]
    if all(low == high for low, high in sizes) or (sizes[side][0] == sizes[side][1] and not how.shortest_edge):
        pixels = sizes[0][1], sizes[1][1]
        return steps.constant(matrix(pixels[side], resized_sizes(how, *pixels)[side], how.made[side], how.resample))
    return _made_matrix(steps, spec, how, side, sizes[side][1])


def _made_matrix(steps: GraphSteps, spec: TensorSpec, how: Preprocess, side: int, most: int) -> str:
    """:func:`preprocess.matrix` of the size that came, of ``most`` pixels at most."""
    pixels, resized = _sizes(steps, spec, how, side)
    kept, half = how.made[side], steps.constant([2], np.int64)
    first = steps.add("Div", steps.add("Sub", resized, steps.constant([how.made[side]], np.int64)), half)
    # Whole numbers below 2^24, which FP32 holds exactly.
    wide, new, begin = (steps.add("Cast", one, to=TensorProto.FLOAT) for one in (pixels, resized, first))
    places = steps.add("Slice", steps.constant(2 * np.arange(most) + 1), steps.constant([0], np.int64), pixels)
    wanted = steps.add("Add", steps.constant(2 * np.arange(kept)[:, None] + 1),
                       steps.add("Mul", begin, steps.constant([2])))
    apart = steps.add("Sub", steps.add("Mul", places, new), steps.add("Mul", wanted, wide))
    reach = steps.add("Mul", steps.add("Max", wide, new), steps.constant([2]))
    weights = _filtered(steps, how, steps.add("Abs", steps.add("Div", apart, reach)))
    return steps.add("Div", weights, steps.add("ReduceSum", weights, steps.constant([1], np.int64), keepdims=1))


def _sizes(steps: GraphSteps, spec: TensorSpec, how: Preprocess, side: int) -> tuple[str, str]:
    """How many pixels came, and how many they become before the crop, as lists of one whole number."""
    shape = steps.add("Shape", spec.name)
    height, width = (steps.add("Gather", shape, steps.constant([axis], np.int64)) for axis in order(spec)[2:])
    pixels = (height, width)[side]
    if not how.shortest_edge:
        return pixels, steps.constant([(how.height, how.width)[side]], np.int64)
    longer = steps.add("Mul", pixels, steps.constant([how.shortest_edge], np.int64))
    return pixels, steps.add("Div", longer, steps.add("Min", height, width))


def _filtered(steps: GraphSteps, how: Preprocess, apart: str) -> str:
    if how.resample == "bilinear":
        return steps.add("Relu", steps.add("Sub", steps.constant(1), apart))

    def polynomial(*factors: float) -> str:
        """Horner's scheme, from the highest power on."""
        last = steps.constant(factors[0])
        for factor in factors[1:]:
            last = steps.add("Add", steps.add("Mul", last, apart), steps.constant(factor))
        return last

    near, far = polynomial(1.5, -2.5, 0, 1), polynomial(-0.5, 2.5, -4, 2)
    far = steps.add("Where", steps.add("Less", apart, steps.constant(2)), far, steps.constant(0))
    return steps.add("Where", steps.add("Less", apart, steps.constant(1)), near, far)


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

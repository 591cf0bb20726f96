"""ONNX graphs as all that works on them takes them: free sizes have names, and every tensor has a dimension."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from enginewright_builder.onnx_names import rename_values
from enginewright_builder.onnx_pools import keep_zeros
from enginewright_builder.shapes import BATCH
from enginewright_builder.sources.onnx_versions import is_old, modern

_PREFIX = "enginewright__"
_ANYWHERE = "C.UTF-8"
# Above what a protobuf message can hold, with room for what is written into the graph.
MOST_BYTES = 1_800_000_000


def tidied(path: Path, folder: Path) -> Path:
    """``path``, or a graph in ``folder`` that computes the same and is written as libraries expect it."""
    model = onnx.load(str(path), load_external_data=False)
    known, padded = _with_known_shapes(model), keep_zeros(model)
    if not (known or padded or _negative(model) or _scalars(model) or is_old(model) or _english(model)):
        return path
    model = onnx.load(str(path))
    if is_old(model):
        model = modern(path, model)
    _with_known_shapes(model)
    keep_zeros(model)
    for node in _english(model):
        node.attribute.append(helper.make_attribute("locale", _ANYWHERE))
    for value, axis in _negative(model):
        value.type.tensor_type.shape.dim[axis].dim_param = BATCH if axis == 0 else f"{value.name}_{axis}"
    _give_scalars_a_dimension(model)
    del model.graph.value_info[:]
    tidy = folder / f"{path.stem}.tidy.onnx"
    save(model, tidy)
    return tidy


def save(model: onnx.ModelProto, path: Path) -> None:
    """With the weights beside the graph where they are too large for it."""
    onnx.save(model, str(path), save_as_external_data=model.ByteSize() > MOST_BYTES, location=f"{path.name}.data")


def _with_known_shapes(model: onnx.ModelProto) -> bool:
    """Gives outputs that state no shape the one that ONNX infers; whether there are any."""
    bare = [value for value in model.graph.output
            if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")]
    if not bare:
        return False
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return False
    shapes = {value.name: value.type.tensor_type for value in inferred.graph.output
              if value.type.tensor_type.HasField("shape")}
    for value in bare:
        if value.name in shapes:
            value.type.tensor_type.CopyFrom(shapes[value.name])
    return any(value.name in shapes for value in bare)


def _english(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Operators on texts that name no locale. ONNX Runtime takes en_US.UTF-8 then, which images lack; letters become
    small and large alike in the locale that each has."""
    return [node for node in model.graph.node if node.op_type == "StringNormalizer" and not node.domain
            and not any(attribute.name == "locale" for attribute in node.attribute)]


def _negative(model: onnx.ModelProto) -> list[tuple[onnx.ValueInfoProto, int]]:
    """Inputs and outputs, and the places of sizes that some exporters write as -1 where they are free."""
    return [(value, axis) for value in (*model.graph.input, *model.graph.output)
            for axis, dim in enumerate(value.type.tensor_type.shape.dim)
            if dim.HasField("dim_value") and dim.dim_value < 0]


def _scalars(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Inputs and outputs without a dimension, which no request can carry."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [value for value in (*model.graph.input, *model.graph.output)
            if value.name not in constants and value.type.HasField("tensor_type")
            and value.type.tensor_type.HasField("shape") and not value.type.tensor_type.shape.dim]


def _give_scalars_a_dimension(model: onnx.ModelProto) -> None:
    """One number becomes a list of one, which a Reshape takes apart again."""
    graph, scalars = model.graph, _scalars(model)
    if not scalars:
        return
    inner = {value.name: f"{_PREFIX}scalar_{index}" for index, value in enumerate(scalars)}
    inputs = {value.name for value in graph.input}
    rename_values(graph, inner)
    graph.initializer.extend([numpy_helper.from_array(np.array([], np.int64), f"{_PREFIX}no_sizes"),
                              numpy_helper.from_array(np.array([1], np.int64), f"{_PREFIX}one_size")])
    before, after = [], []
    for name, renamed in inner.items():
        value = next(one for one in (*graph.input, *graph.output) if one.name == renamed)
        value.name = name
        value.type.tensor_type.shape.dim.add(dim_value=1)
        if name in inputs:
            before.append(helper.make_node("Reshape", [name, f"{_PREFIX}no_sizes"], [renamed]))
        else:
            after.append(helper.make_node("Reshape", [renamed, f"{_PREFIX}one_size"], [name]))
    nodes = [*before, *graph.node, *after]
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)

"""Names in an exported graph: inputs, outputs and free dimensions get the interface's, whatever is inside.

The exporter can emit an output name that an inner value also has ("Duplicate definition of name"; pytorch issues 158094
and 168211). So it is given placeholders that nothing else can be called, and the wanted names are put in afterwards,
with inner values that stand in the way renamed first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.onnx_pools import keep_zeros
from enginewright_builder.shapes import BATCH, size_range

_PREFIX = "enginewright__"


def placeholder_names(side: str, names: Sequence[str]) -> list[str]:
    return [f"{_PREFIX}{side}_{index}" for index, _ in enumerate(names)]


def finish_export(path: Path, interface: Interface) -> None:
    """Renames in the file at ``path``, which must have as many inputs and outputs as ``interface``, in its order, and
    keeps ONNX Runtime from computing something else (:mod:`onnx_pools`)."""
    model = onnx.load(str(path))
    apply_interface(model, interface)
    keep_zeros(model)
    onnx.save(model, str(path))


def apply_interface(model: onnx.ModelProto, interface: Interface) -> None:
    graph = model.graph
    wanted = {old.name: spec.name for old, spec in zip([*graph.input, *graph.output],
                                                       [*interface.inputs, *interface.outputs], strict=True)}
    rename_values(graph, wanted)
    dims: dict[str, str] = {}
    for value, spec in zip([*graph.input, *graph.output], [*interface.inputs, *interface.outputs], strict=True):
        _note_dimensions(value, spec, dims)
    for value in [*graph.input, *graph.output]:
        _name_dimensions(value, dims)
    # Shapes inside speak of the exporter's dimension names; ONNX Runtime works them out again.
    del graph.value_info[:]


def rename_values(graph: onnx.GraphProto, wanted: Mapping[str, str]) -> None:
    """Renames values of ``graph`` by ``wanted`` (old to new); others that already have a new name step aside."""
    taken = set(_value_names(graph))
    mapping = dict(wanted)
    for name in set(wanted.values()) & taken - set(wanted):
        mapping[name] = _unused(f"{_PREFIX}{name}", taken)
    _rename_in(graph, mapping)


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _value_names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in (*graph.input, *graph.output))
    yield from (tensor.name for tensor in graph.initializer)
    for node in graph.node:
        yield from node.output
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _value_names(inner)


def _rename_in(graph: onnx.GraphProto, mapping: Mapping[str, str]) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        value.name = mapping.get(value.name, value.name)
    for tensor in graph.initializer:
        tensor.name = mapping.get(tensor.name, tensor.name)
    for node in graph.node:
        node.input[:] = [mapping.get(name, name) for name in node.input]
        node.output[:] = [mapping.get(name, name) for name in node.output]
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename_in(inner, mapping)


def _note_dimensions(value: onnx.ValueInfoProto, spec: TensorSpec, dims: dict[str, str]) -> None:
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        if not dim.dim_param or dim.dim_param in dims:
            continue
        if axis == 0:
            dims[dim.dim_param] = BATCH
        elif axis < len(spec.shape):
            size = spec.shape[axis]
            plain = isinstance(size, str) and size_range(size)[0] != size_range(size)[1] and ".." not in size
            dims[dim.dim_param] = _unused(str(size) if plain else f"{spec.name}_{axis}", set(dims.values()))


def _name_dimensions(value: onnx.ValueInfoProto, dims: Mapping[str, str]) -> None:
    for dim in value.type.tensor_type.shape.dim:
        if dim.dim_param:
            dim.dim_param = dims.get(dim.dim_param, dim.dim_param)

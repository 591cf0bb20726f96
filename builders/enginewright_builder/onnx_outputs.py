"""Which outputs of an ONNX graph are served: those that the user lists, or all of them; maps as tensors. Needs ``onnx``
only, so that the resolve step can ask."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import TensorProto, helper

from enginewright_builder.contract import Interface
from enginewright_builder.errors import UserError

_SHOWN = 8


def settle_outputs(model: onnx.ModelProto, stated: Interface | None) -> tuple[str, ...] | None:
    """Changes ``model``; what the user should know of that, and None where nothing had to be changed. Raises
    :class:`UserError` ``InterfaceInvalid``."""
    wanted = [spec.name for spec in stated.outputs] if stated else []
    left_out = _chosen(model.graph, wanted)
    maps = tuple(_as_tensors(model.graph))
    return maps if maps or left_out else None


def _chosen(graph: onnx.GraphProto, wanted: list[str]) -> bool:
    """Whether any output is left out."""
    known = [value.name for value in graph.output]
    if unknown := [name for name in wanted if name not in known]:
        raise UserError("InterfaceInvalid", f"the model has no output {unknown[0]!r}; it gives {', '.join(known)}",
                        field="spec.interface.outputs", value=unknown[0],
                        remedy="name the model's own outputs, or leave outputs out to serve all")
    kept = [value for value in graph.output if value.name in wanted]
    if not wanted or len(kept) == len(known):
        return False
    del graph.output[:]
    graph.output.extend(kept)
    _prune(graph)
    return True


def _prune(graph: onnx.GraphProto) -> None:
    """Leaves what outputs are made of. Nodes stand behind those that they take values of."""
    needed = {value.name for value in graph.output}
    for place in reversed(range(len(graph.node))):
        if needed.intersection(graph.node[place].output):
            needed.update(_taken(graph.node[place]))
        else:
            del graph.node[place]
    for place in reversed(range(len(graph.initializer))):
        if graph.initializer[place].name not in needed:
            del graph.initializer[place]


def _taken(node: onnx.NodeProto) -> Iterator[str]:
    """With what graphs within it take of the graph around them."""
    yield from node.input
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            yield from (value.name for value in inner.output)
            for one in inner.node:
                yield from _taken(one)


def _as_tensors(graph: onnx.GraphProto) -> Iterator[str]:
    """Classifiers end in a ZipMap, by which converters give probabilities as a list of maps: no server sends that."""
    outputs = {value.name: value for value in graph.output}
    for node in graph.node:
        if node.op_type != "ZipMap" or node.output[0] not in outputs:
            continue
        name = node.output[0]
        labels = [str(label.decode() if isinstance(label, bytes) else label)
                  for attribute in node.attribute for label in helper.get_attribute_value(attribute)]
        node.CopyFrom(helper.make_node("Identity", [node.input[0]], [name], name=node.name))
        outputs[name].CopyFrom(helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, len(labels)]))
        more = ", …" if len(labels) > _SHOWN else ""
        yield (f"{name} is a tensor with a column for each class, in the order {', '.join(labels[:_SHOWN])}{more}: "
               "the ZipMap at its end is left out, as no server sends maps")

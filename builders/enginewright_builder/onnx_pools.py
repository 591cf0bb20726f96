"""MaxPool behind Pad, as the specification has it. ONNX Runtime makes one operator of the two where Pad writes zeros
(``pad_fusion.cc``), and MaxPool's own padding counts as less than any number: below zero the zeros are the largest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from onnx import helper

_INDICES = "enginewright__indices"


def keep_zeros(model: onnx.ModelProto) -> bool:
    """Writes each MaxPool behind a Pad so that ONNX Runtime leaves the two apart. ``auto_pad`` in its place says that
    it has no padding of its own; where it has, or rounds its size up, it gets its second output, which costs time and
    which nothing reads. Whether there was any."""
    found = [pool for nodes in _scopes(model) for pool in _behind_pad(nodes)]
    for place, pool in enumerate(found):
        set_up = {one.name: one for one in pool.attribute}
        if _numbers(set_up.get("pads")) or _numbers(set_up.get("ceil_mode")):
            pool.output.append(f"{_INDICES}_{place}")
            continue
        for name in {"pads", "auto_pad"} & set(set_up):
            pool.attribute.remove(set_up[name])
        pool.attribute.append(helper.make_attribute("auto_pad", "VALID"))
    return bool(found)


def keep_zeros_in(path: Path) -> None:
    """The same in a file."""
    model = onnx.load(str(path))
    if keep_zeros(model):
        onnx.save(model, str(path))


def _scopes(model: onnx.ModelProto) -> Iterator[Iterable[onnx.NodeProto]]:
    """The nodes of the graph, of each graph within it, and of functions: one scope each."""
    waiting = [model.graph.node, *(function.node for function in model.functions)]
    while waiting:
        nodes = waiting.pop()
        yield nodes
        waiting += [inner.node for node in nodes for one in node.attribute for inner in (one.g, *one.graphs)]


def _behind_pad(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Those that ONNX Runtime may join with a Pad, also across a Cast."""
    made = {node.output[0]: node for node in nodes if node.op_type in ("Pad", "Cast")}
    for pool in nodes:
        if pool.op_type != "MaxPool" or len(pool.output) > 1 or _pads_itself(pool):
            continue
        before = made.get(pool.input[0])
        if before is not None and before.op_type == "Cast":
            before = made.get(before.input[0])
        if before is not None and before.op_type == "Pad":
            yield pool


def _pads_itself(pool: onnx.NodeProto) -> bool:
    """By a rule of its own, for which ONNX Runtime leaves it alone."""
    return any(one.name == "auto_pad" and one.s not in (b"", b"NOTSET") for one in pool.attribute)


def _numbers(attribute: onnx.AttributeProto | None) -> bool:
    """Whether there are any but zeros."""
    return attribute is not None and any((attribute.i, *attribute.ints))

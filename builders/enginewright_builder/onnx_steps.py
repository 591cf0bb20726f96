"""Nodes that the builder adds to an ONNX graph, in order, under names of their own. Needs ``onnx`` and NumPy only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


class GraphSteps:
    """``name`` stands in front of all names. ``nodes`` and ``constants`` are the caller's to put into the graph."""

    def __init__(self, name: str) -> None:
        self.name, self.nodes, self.constants = name, list[onnx.NodeProto](), list[onnx.TensorProto]()

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"{self.name}/constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Returns the name of the node's output."""
        return self.add_with(("out",), kind, *inputs, **attributes)[0]

    def add_with(self, outputs: Sequence[str], kind: str, *inputs: str, **attributes: Any) -> list[str]:
        """Returns the names of the node's outputs, which end in ``outputs``."""
        place = f"{self.name}/{kind}{len(self.nodes)}"
        names = [f"{place}/{output}" for output in outputs]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=place, **attributes))
        return names

    def rename(self, value: str, name: str) -> None:
        """Of an output that no other node takes."""
        for node in self.nodes:
            node.output[:] = [name if one == value else one for one in node.output]


def opset_of(model: onnx.ModelProto) -> int:
    """Of ONNX's own operators; 0 where the graph has none of them."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)

"""Nodes that the builder adds to an ONNX graph, in order, under names of their own. Needs ``onnx`` and NumPy only."""

from __future__ import annotations

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
        place = f"{self.name}/{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [f"{place}/out"], name=place, **attributes))
        return f"{place}/out"


def opset_of(model: onnx.ModelProto) -> int:
    """Of ONNX's own operators; 0 where the graph has none of them."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)

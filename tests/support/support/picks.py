"""An engine that fails on some requests and answers others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.engines.base import Artifact, Rung


def picks(folder: Path) -> Artifact:
    """Of three weights; it fails where there is none of that number."""
    interface = Interface(inputs=(TensorSpec(name="x", dtype="int64", shape=("batch", 1)),),
                          outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 1)),))
    graph = helper.make_graph([helper.make_node("Gather", ["weights", "x"], ["y"])], "picks",
                              [helper.make_tensor_value_info("x", TensorProto.INT64, ["batch", 1])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 1])],
                              [numpy_helper.from_array(np.array([5, 6, 7], np.float32), "weights")])
    folder.mkdir()
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10),
              folder / "model.onnx")
    return Artifact(rung=Rung(backend="onnxruntime", precision="fp32"), triton_backend="python", interface=interface,
                    files={"model.onnx": folder / "model.onnx"}, runtime_version="onnxruntime")

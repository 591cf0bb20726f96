"""What a real tritonserver serves in the study: a small real model, or one that only takes a device's time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import Interface, ServingChoice, TensorSpec
from enginewright_builder.engines.base import Artifact, Rung
from enginewright_builder.triton.model_config import ServedModel, model_config, to_text
from enginewright_builder.triton.repository import write_model

# Two layers of this size: 134 MB of weights, which are read once for all of a batch.
WIDTH, LAYERS = 4096, 2
# The stand-in's input is small: what is sent costs nothing.
NARROW = 8
INTERFACE = Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", -1)),),
                      outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", -1)),))


def write_perceptron(root: Path, name: str, max_batch: int) -> int:
    """Returns the width of its input."""
    rng = np.random.default_rng(0)
    nodes, weights, before = [], [], "x"
    for layer in range(LAYERS):
        weight = (rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        after = "y" if layer == LAYERS - 1 else f"r{layer}"
        nodes += [helper.make_node("MatMul", [before, f"w{layer}"], [f"h{layer}"]),
                  helper.make_node("Relu", [f"h{layer}"], [after])]
        before = after
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, ["batch", WIDTH]) for end in "xy"]
    graph = helper.make_graph(nodes, "perceptron", ends[:1], ends[1:], weights)
    path = root.parent / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    artifact = Artifact(rung=Rung(backend="onnxruntime", precision="fp32"), files={"model.onnx": path},
                        triton_backend="python", interface=INTERFACE, runtime_version="onnxruntime")
    write_model(root, name, artifact, ServingChoice(max_batch_size=max_batch), cores=1,
                warmup={"x": np.ones((1, WIDTH), np.float32)})
    return WIDTH


def write_stand_in(root: Path, name: str, max_batch: int, curve: Mapping[int, float]) -> int:
    """A model that waits for as long as a device would compute: ``curve`` has seconds by batch. The server, its batcher
    and its model control are real, and a busy machine's cores are not what is measured."""
    served = ServedModel(name="", triton_backend="python", interface=INTERFACE,
                         serving=ServingChoice(max_batch_size=max_batch))
    folder = root / name
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(to_text(model_config(served)), encoding="utf-8")
    (folder / "1" / "model.py").write_text(dedent(f"""\
        import time

        import numpy as np
        import triton_python_backend_utils as pb_utils

        CURVE = {sorted(curve.items())!r}


        class TritonPythonModel:
            def execute(self, requests):
                inputs = [pb_utils.get_input_tensor_by_name(one, "x").as_numpy() for one in requests]
                batches, seconds = zip(*CURVE)
                time.sleep(float(np.interp(sum(len(one) for one in inputs), batches, seconds)))
                return [pb_utils.InferenceResponse([pb_utils.Tensor("y", one)]) for one in inputs]
    """), encoding="utf-8")
    return NARROW

"""MaxPool behind Pad on a real GPU: zeros that a graph pads with count as values, by every engine.

    make test-gpu
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from enginewright_builder.contract import DeviceRequest, RuntimeRequest
from enginewright_builder.engines.base import BuildContext, ExportedModel
from enginewright_builder.engines.onnxruntime import OnnxRuntimeEngine
from enginewright_builder.engines.tensorrt import TensorRtEngine
from enginewright_builder.models.onnx import load_onnx

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

# The pool's own padding is less than any number, that of Pad is zero.
OWN: dict[str, dict[str, Any]] = {"none": {}, "pads": {"pads": [1, 1, 1, 1]}, "rounds up": {"ceil_mode": 1}}


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("engine", [TensorRtEngine, OnnxRuntimeEngine])
def test_zeros_in_front_of_a_pool_count(engine: type[TensorRtEngine | OnnxRuntimeEngine], own: str,
                                        tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Pad", ["x", "around"], ["padded"]),
         helper.make_node("MaxPool", ["padded"], ["y"], kernel_shape=[3, 3], strides=[2, 2], **OWN[own])],
        "pools", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3, None, None])],
        [numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64), "around")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(tmp_path / "pools.onnx"))
    below_zero = {"x": -1 - np.random.default_rng(1).random((2, 3, 8, 8), dtype=np.float32)}
    wanted: Any = ReferenceEvaluator(model).run(None, below_zero)

    source = load_onnx(tmp_path / "pools.onnx", None)
    context = BuildContext(device=DeviceRequest(accelerator="gpu", gpu_count=1),
                           runtime=RuntimeRequest(python_runtimes=("tensorrt", "onnxruntime")), max_batch_size=4,
                           calibration=(), workspace=tmp_path / "work", source=source, example=below_zero,
                           buckets=(1, 4), progress=lambda fraction, detail: None)
    built = engine()
    rung, *_ = built.rungs("fp32", context)
    artifact = built.build(rung, ExportedModel(path=source.path, interface=source.interface, opset=18), context)
    runner = built.load(artifact)
    np.testing.assert_allclose(runner(below_zero)["y"], wanted[0], rtol=1e-5)
    runner.close()

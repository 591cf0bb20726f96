"""Weights of four and eight bits and 2:4 sparse ones on a real GPU, by TensorRT and ONNX Runtime.

    make test-gpu
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import DeviceRequest, RuntimeRequest
from enginewright_builder.engines.base import Artifact, BuildContext, Engine, ExportedModel
from enginewright_builder.engines.onnxruntime import OnnxRuntimeEngine
from enginewright_builder.engines.ort_quantize import write_int4_weights
from enginewright_builder.engines.tensorrt import TensorRtEngine
from enginewright_builder.models.onnx import OnnxModel, load_onnx
from enginewright_builder.onnx_sparse import sparse_share
from enginewright_builder.onnx_weights import weights_of
from enginewright_builder.ort_session import OrtRunner
from enginewright_builder.tensors import Tensors

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
WIDTH, INNER, BATCH = 1024, 4096, 8
# Least mean cosine with FP32 on a CPU, for weights of a normal distribution.
LEAST = {"int8-weight-only": 0.999, "int4-weight-only": 0.97, "fp16": 0.9999}


def mlp(path: Path, *, sparse: bool = False) -> OnnxModel:
    """Two wide layers; ``sparse``: of each four weights that are summed two are zero."""
    rng = np.random.default_rng(4)
    held: dict[str, Any] = {}
    for name, rows, columns in (("up", WIDTH, INNER), ("down", INNER, WIDTH)):
        weights = (rng.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)
        if sparse:
            kept = np.argsort(rng.random((rows // 4, 4, columns)), axis=1) < 2
            weights = np.where(kept.reshape(rows, columns), weights, 0.0)
        held[name] = weights.astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "up"], ["h"], name="up"),
             helper.make_node("Relu", ["h"], ["r"], name="relu"),
             helper.make_node("MatMul", ["r", "down"], ["y"], name="down")]
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", WIDTH]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "mlp", sides[:1], sides[1:],
                              [numpy_helper.from_array(array, name) for name, array in held.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return load_onnx(path, None)


@pytest.fixture
def inputs() -> Tensors:
    return {"x": np.random.default_rng(6).standard_normal((BATCH, WIDTH)).astype(np.float32)}


def context_for(source: OnnxModel, folder: Path, inputs: Tensors) -> BuildContext:
    folder.mkdir(exist_ok=True)
    return BuildContext(device=DeviceRequest(accelerator="gpu", gpu_count=1), max_batch_size=BATCH, calibration=(),
                        runtime=RuntimeRequest(python_runtimes=("tensorrt", "onnxruntime")), workspace=folder,
                        source=source, example=inputs, buckets=(1, BATCH), weights=weights_of(source.path),
                        progress=lambda fraction, detail: None)


def built(engine: Engine, precision: str, source: OnnxModel, context: BuildContext) -> Artifact:
    rung, = engine.rungs(precision, context)
    assert rung.unavailable == ""
    return engine.build(rung, ExportedModel(path=source.path, interface=source.interface, opset=18), context)


def cosine(engine: Engine, artifact: Artifact, source: Path, inputs: Tensors) -> float:
    """Of the engine's answers with those of the graph ``source`` on the CPU."""
    runner, exact = engine.load(artifact), OrtRunner(source)
    one, other = runner(inputs)["y"], exact(inputs)["y"]
    runner.close()
    exact.close()
    return float(np.mean((one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)))


@pytest.mark.parametrize("precision", ["int8-weight-only", "int4-weight-only"])
def test_onnx_runtime_multiplies_weights_of_few_bits(precision: str, inputs: Tensors, tmp_path: Path) -> None:
    engine, source = OnnxRuntimeEngine(), mlp(tmp_path / "mlp.onnx")
    context = context_for(source, tmp_path / "work", inputs)
    artifact = built(engine, precision, source, context)
    assert LEAST[precision] < cosine(engine, artifact, source.path, inputs) < 1
    assert artifact.size_bytes < 0.6 * built(engine, "fp16", source, context).size_bytes


def test_tensorrt_keeps_weights_of_four_bits_in_the_plan(inputs: Tensors, tmp_path: Path) -> None:
    engine, source = TensorRtEngine(), mlp(tmp_path / "mlp.onnx")
    context = context_for(source, tmp_path / "work", inputs)
    artifact = built(engine, "int4-weight-only", source, context)
    assert LEAST["int4-weight-only"] < cosine(engine, artifact, source.path, inputs) < 1
    # A plan that had them in FP16 again would gain nothing.
    assert artifact.size_bytes < 0.5 * built(engine, "fp16", source, context).size_bytes


@pytest.mark.parametrize("precision", ["fp16", "int4-weight-only"])
def test_tensorrt_keeps_weights_of_four_bits_that_a_source_brings(precision: str, inputs: Tensors,
                                                                  tmp_path: Path) -> None:
    engine = TensorRtEngine()
    write_int4_weights(mlp(tmp_path / "mlp.onnx").path, tmp_path / "brings.onnx")
    source = load_onnx(tmp_path / "brings.onnx", None)
    artifact = built(engine, precision, source, context_for(source, tmp_path / "work", inputs))
    assert cosine(engine, artifact, source.path, inputs) > 0.999
    assert artifact.size_bytes < 0.7 * WIDTH * INNER * 2  # bytes of both products in four bits, with room


def test_weights_that_are_2_4_sparse_answer_as_they_are(inputs: Tensors, tmp_path: Path) -> None:
    engine, source = TensorRtEngine(), mlp(tmp_path / "mlp.onnx", sparse=True)
    assert sparse_share(source.path) == 1.0
    plain = context_for(source, tmp_path / "plain", inputs)
    assert plain.weights is not None
    told = replace(context_for(source, tmp_path / "told", inputs), weights=replace(plain.weights, sparse=1.0))
    for context in (plain, told):
        assert cosine(engine, built(engine, "fp16", source, context), source.path, inputs) > LEAST["fp16"]

"""ONNX Runtime's rungs: which there are on which device, and INT8 that answers alike on every processor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import DeviceRequest, Interface, RuntimeRequest, TensorSpec
from enginewright_builder.engines import ort_gpu
from enginewright_builder.engines.base import BuildContext, ExportedModel, Joined, Rung
from enginewright_builder.engines.onnxruntime import OnnxRuntimeEngine
from enginewright_builder.ort_session import CUDA, OrtRunner

NATIVE = RuntimeRequest(backends=("python", "onnxruntime"), python_runtimes=())
GPU = DeviceRequest(accelerator="gpu", gpu_count=1)
INTERFACE = Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 64)),),
                      outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 32)),))


@pytest.fixture
def model(tmp_path: Path) -> ExportedModel:
    weights = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], "m",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 32])],
                              [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10),
              tmp_path / "m.onnx")
    return ExportedModel(path=tmp_path / "m.onnx", interface=INTERFACE, opset=18)


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    return BuildContext(device=DeviceRequest(), runtime=RuntimeRequest(), max_batch_size=8, calibration=(),
                        workspace=tmp_path / "work", progress=lambda fraction, detail: None)


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()


def has(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(ort_gpu, "has_provider", lambda name: name in names)


def told(context: BuildContext, precision: str = "auto") -> dict[str, str]:
    return {rung.precision: rung.unavailable for rung in OnnxRuntimeEngine().rungs(precision, context)}


def test_on_a_gpu_each_rung_needs_its_provider(context: BuildContext, monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu = replace(context, device=GPU)
    has(monkeypatch)
    assert all("has no CUDA provider" in reason for reason in told(on_gpu).values())
    has(monkeypatch, CUDA)
    assert told(on_gpu) == {"fp32": "", "tf32": "", "fp16": ""}
    assert told(on_gpu, "fp16") == {"fp16": ""}
    assert told(on_gpu, "int8") == {}


def test_a_server_that_cannot_run_it_is_told_of(context: BuildContext, monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, CUDA)
    without = RuntimeRequest(python_runtimes=("torch",))
    assert "has no ONNX Runtime: install it" in told(replace(context, runtime=without), "fp32")["fp32"]
    reasons = told(replace(context, runtime=replace(without, server_image="triton:1")), "fp32")
    assert "spec.serving.image" in reasons["fp32"]
    assert told(replace(context, runtime=NATIVE), "fp32") == {"fp32": ""}
    # Its own backend has no way to be told what these rungs need.
    reasons = told(replace(context, runtime=NATIVE, device=GPU))
    assert [name for name, reason in reasons.items() if reason] == ["fp32"]


def weights(path: Path) -> np.ndarray[Any, Any]:
    graph = onnx.load(str(path)).graph
    return next(numpy_helper.to_array(tensor) for tensor in graph.initializer
                if tensor.data_type == TensorProto.INT8 and len(tensor.dims) == 2)


BOTH = RuntimeRequest(backends=("python", "onnxruntime"), python_runtimes=("onnxruntime",))
JOINED = Joined(mask="x", fill={"x": 0.0})


@pytest.mark.parametrize(("runtime", "joined", "ways"), [
    (BOTH, JOINED, ["onnxruntime", "python"]), (BOTH, None, ["onnxruntime"]), (NATIVE, JOINED, ["onnxruntime"]),
    (RuntimeRequest(), JOINED, ["python"])])
def test_python_is_tried_beside_a_native_backend_where_it_joins_lengths(
        runtime: RuntimeRequest, joined: Joined | None, ways: list[str], model: ExportedModel,
        context: BuildContext) -> None:
    made = OnnxRuntimeEngine().build(Rung(backend="onnxruntime", precision="fp32"), model,
                                     replace(context, runtime=runtime, joined=joined))
    assert [way.triton_backend for way in made.ways] == ways


@pytest.mark.parametrize("runtime", [RuntimeRequest(), NATIVE], ids=["python", "native"])
def test_int8_weights_give_up_a_bit_whatever_the_build_node_has(model: ExportedModel, context: BuildContext,
                                                                runtime: RuntimeRequest) -> None:
    rung = Rung(backend="onnxruntime", precision="int8-dynamic")
    artifact = OnnxRuntimeEngine().build(rung, model, replace(context, runtime=runtime))
    assert artifact.parameters == {}
    assert np.abs(weights(artifact.files["model.onnx"]).astype(int)).max() == 64


@pytest.mark.parametrize("precision", ["int8-dynamic", "int8-static", "int8-weight-only"])
def test_weights_that_the_graph_states_the_shape_of_twice_are_quantised(precision: str, model: ExportedModel,
                                                                        context: BuildContext) -> None:
    """As PyTorch's exporter writes a Linear: a Gemm with its weights transposed, and their shape beside the graph."""
    rows = np.random.default_rng(0).normal(size=(32, 64)).astype(np.float32)
    graph = onnx.load(model.path)
    graph.graph.node[0].CopyFrom(helper.make_node("Gemm", ["x", "w"], ["y"], name="product", transB=1))
    graph.graph.initializer[0].CopyFrom(numpy_helper.from_array(rows, "w"))
    graph.graph.value_info.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, rows.shape))
    onnx.save(graph, model.path)
    data = np.random.default_rng(1).normal(size=(8, 64)).astype(np.float32)
    artifact = OnnxRuntimeEngine().build(Rung(backend="onnxruntime", precision=precision), model,
                                         replace(context, calibration=({"x": data},)))
    runner = OnnxRuntimeEngine().load(artifact)
    expected = data @ rows.T
    assert np.abs(runner({"x": data})["y"] - expected).max() < 0.1 * np.abs(expected).max()
    runner.close()


def test_fp16_of_an_onnx_source_is_converted_and_keeps_its_interface(model: ExportedModel, context: BuildContext,
                                                                     tmp_path: Path) -> None:
    ort_gpu.half_graph(model, context, tmp_path / "half.onnx")
    inputs = {"x": np.random.default_rng(1).normal(size=(3, 64)).astype(np.float32)}
    exact, half = OrtRunner(model.path), OrtRunner(tmp_path / "half.onnx")
    gap = np.abs(half(inputs)["y"] - exact(inputs)["y"]).max()
    assert half(inputs)["y"].dtype == np.float32
    assert 0 < gap < 0.05
    for runner in (exact, half):
        runner.close()


def test_a_gpu_that_is_not_there_is_an_error_rather_than_the_cpu(model: ExportedModel) -> None:
    with pytest.raises(RuntimeError, match="has no CUDAExecutionProvider"):
        OrtRunner(model.path, accelerator="gpu")

"""Weights alone in blocks of 8 or 4 bits, by ONNX Runtime's own tool and kernels; graphs that bring such weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import DeviceRequest, Interface, RuntimeRequest, TensorSpec
from enginewright_builder.engines import ort_gpu
from enginewright_builder.engines.base import BuildContext, ExportedModel, Rung
from enginewright_builder.engines.onnxruntime import OnnxRuntimeEngine
from enginewright_builder.engines.ort_quantize import write_int4_weights
from enginewright_builder.engines.tensorrt import TensorRtEngine
from enginewright_builder.engines.trt_device import Gpu
from enginewright_builder.engines.trt_graphs import quantised_in, typed_graph
from enginewright_builder.errors import UserError
from enginewright_builder.onnx_weights import Weights, weights_of
from enginewright_builder.ort_session import OrtRunner
from support.inputs import graphs

WIDTH, INNER, WORDS = 64, 256, 50
# The least mean cosine of an answer in blocks of so many bits with FP32's, for weights of a normal distribution.
BITS = {"int8-weight-only": (8, 0.9999), "int4-weight-only": (4, 0.97)}


def tied(path: Path) -> ExportedModel:
    """An embedding, a product, a Gemm with a bias, and a Gemm over the embedding's own table: token ids to words."""
    rng = np.random.default_rng(3)
    held = {"table": rng.normal(size=(WORDS, WIDTH)), "up": rng.normal(size=(WIDTH, INNER)) / WIDTH**0.5,
            "down": rng.normal(size=(WIDTH, INNER)) / INNER**0.5, "bias": rng.normal(size=WIDTH),
            "no_bias": np.zeros(WORDS)}
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"], name="embed"),
             helper.make_node("MatMul", ["e", "up"], ["h"], name="up"),
             helper.make_node("Relu", ["h"], ["r"], name="relu"),
             helper.make_node("Gemm", ["r", "down", "bias"], ["d"], name="down", transB=1),
             helper.make_node("Gemm", ["d", "table", "no_bias"], ["y"], name="head", transB=1)]
    graph = helper.make_graph(nodes, "tied", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", WORDS])],
                              [numpy_helper.from_array(array.astype(np.float32), name)
                               for name, array in held.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return ExportedModel(path=path, opset=18, interface=Interface(
        inputs=(TensorSpec(name="ids", dtype="int64", shape=("batch",)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", WORDS)),)))


@pytest.fixture
def model(tmp_path: Path) -> ExportedModel:
    return tied(tmp_path / "tied.onnx")


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    (tmp_path / "work").mkdir()
    return BuildContext(device=DeviceRequest(), runtime=RuntimeRequest(), max_batch_size=8, calibration=(),
                        workspace=tmp_path / "work", progress=lambda fraction, detail: None)


def built(precision: str, model: ExportedModel, context: BuildContext) -> Path:
    made = OnnxRuntimeEngine().build(Rung(backend="onnxruntime", precision=precision), model, context)
    return made.files["model.onnx"]


def answers(path: Path) -> np.ndarray[Any, Any]:
    runner = OrtRunner(path)
    found = runner({"ids": np.arange(WORDS)})["y"]
    runner.close()
    return np.asarray(found)


def cosine(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    return float(np.mean((one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)))


def kinds(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(str(path)).graph.node)


@pytest.mark.parametrize("precision", BITS)
def test_products_read_blocks_of_few_bits_and_answer_as_before(precision: str, model: ExportedModel,
                                                               context: BuildContext) -> None:
    bits, least = BITS[precision]
    path = built(precision, model, context)
    products = [node for node in onnx.load(str(path)).graph.node if node.op_type == "MatMulNBits"]
    assert {helper.get_attribute_value(attribute) for node in products for attribute in node.attribute
            if attribute.name == "bits"} == {bits}
    # All three products, of which one shares its table with the embedding, which stays as it was.
    assert len(products) == 3
    assert "Gemm" not in kinds(path)
    assert least <= cosine(answers(path), answers(model.path)) < 1
    onnx.checker.check_model(str(path))


def test_four_bits_are_smaller_than_eight(model: ExportedModel, context: BuildContext) -> None:
    sizes = [built(precision, model, context).stat().st_size for precision in BITS]
    assert sizes[1] < 0.75 * sizes[0] < 0.75 * model.path.stat().st_size


def test_a_layer_that_is_kept_precise_stays_as_it_is(model: ExportedModel, context: BuildContext) -> None:
    path = built("int4-weight-only", model, replace(context, keep_precise=("down",)))
    assert kinds(path)["MatMulNBits"] == 2
    assert cosine(answers(path), answers(model.path)) > cosine(
        answers(built("int4-weight-only", model, context)), answers(model.path))


def test_products_that_share_their_weights_are_built(tmp_path: Path, context: BuildContext) -> None:
    weights = np.random.default_rng(1).normal(size=(WIDTH, WIDTH)).astype(np.float32) / 8
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"], name="one"), helper.make_node("Relu", ["m"], ["r"], name="relu"),
         helper.make_node("MatMul", ["r", "w"], ["y"], name="two")], "shared",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", WIDTH])],
        [numpy_helper.from_array(weights, "w")])
    path = tmp_path / "shared.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    shape = TensorSpec(name="x", dtype="float32", shape=("batch", WIDTH))
    shared = ExportedModel(path=path, opset=18, interface=Interface(inputs=(shape,),
                                                                    outputs=(replace(shape, name="y"),)))
    x = np.random.default_rng(2).normal(size=(8, WIDTH)).astype(np.float32)
    few, full = (OrtRunner(one)({"x": x})["y"] for one in (built("int8-weight-only", shared, context), path))
    assert cosine(few, full) > 0.999


def test_a_graph_without_constant_weights_says_so(tmp_path: Path, context: BuildContext) -> None:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "x"], ["y"], name="square")], "none",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4, 4])])
    path = tmp_path / "none.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    shape = TensorSpec(name="x", dtype="float32", shape=("batch", 4, 4))
    bare = ExportedModel(path=path, opset=18, interface=Interface(inputs=(shape,),
                                                                  outputs=(replace(shape, name="y"),)))
    told, = OnnxRuntimeEngine().rungs("int4-weight-only", replace(context, weights=weights_of(path)))
    assert "no MatMul or Gemm of the model has constant weights" in told.unavailable
    with pytest.raises(UserError, match="no MatMul or Gemm of the graph has constant weights") as caught:
        built("int4-weight-only", bare, context)
    assert (caught.value.reason, caught.value.field) == ("CandidateFailed", "spec.engine.precision")


@pytest.mark.parametrize("accelerator", ["cpu", "gpu"])
def test_only_who_asks_for_it_gets_it(accelerator: str, context: BuildContext) -> None:
    context = replace(context, device=DeviceRequest(accelerator=accelerator))
    engine = OnnxRuntimeEngine()
    assert not any(rung.precision in BITS for rung in engine.rungs("auto", context))
    for precision in BITS:
        assert [rung.precision for rung in engine.rungs(precision, context)] == [precision]


def test_what_a_graph_brings_is_told_and_not_quantised_again(model: ExportedModel, context: BuildContext) -> None:
    assert weights_of(model.path) == Weights(products=3)
    path = built("int4-weight-only", model, context)
    found = weights_of(path)
    assert found == Weights(products=0, brought={"int4 weights of MatMulNBits": 3}, foreign=("MatMulNBits",))
    assert "3 × int4 weights of MatMulNBits" in found.notes[0]
    brings = replace(context, weights=found)
    for precision in ("auto", "int8", *BITS):
        told = {rung.precision: rung.unavailable for rung in OnnxRuntimeEngine().rungs(precision, brings)}
        assert all("brings its own quantisation (3 × int4" in why for name, why in told.items() if name != "fp32")
        assert not told.get("fp32")


def test_on_a_gpu_the_rest_is_in_half_precision(model: ExportedModel, context: BuildContext) -> None:
    path = built("int4-weight-only", model, replace(context, device=DeviceRequest(accelerator="gpu")))
    scales = [tensor.data_type for tensor in onnx.load(str(path)).graph.initializer if tensor.name.endswith("_scales")]
    assert scales == [TensorProto.FLOAT16] * 3
    assert cosine(answers(path), answers(model.path)) > BITS["int4-weight-only"][1]


@pytest.mark.parametrize("native", [True, False], ids=["MatMulNBits", "DequantizeLinear"])
def test_half_precision_leaves_what_a_source_brings(native: bool, tmp_path: Path) -> None:
    source, half = tmp_path / "source.onnx", tmp_path / "half.onnx"
    onnx.save(graphs.few_bits(native=native), source)
    ort_gpu.halved(source, half)
    assert weights_of(half) == weights_of(source)
    x = {"x": np.random.default_rng(8).normal(size=(8, 64)).astype(np.float32)}
    exact, lower = (OrtRunner(path)(x)["y"] for path in (source, half))
    assert 0.999 < cosine(exact, lower) < 1


def dequantised(path: Path) -> dict[str, int]:
    """By the name of what is behind each DequantizeLinear the rows of its blocks."""
    return {node.input[0]: attribute.i for node in onnx.load(str(path)).graph.node for attribute in node.attribute
            if node.op_type == "DequantizeLinear" and attribute.name == "block_size"}


def test_tensorrt_reads_int4_behind_a_dequantizelinear_in_whole_blocks_alone(model: ExportedModel,
                                                                             tmp_path: Path) -> None:
    path = tmp_path / "few.onnx"
    write_int4_weights(model.path, path)
    assert list(dequantised(path).values()) == [128]  # of three products one has rows in whole blocks
    found = onnx.load(str(path))
    assert found.opset_import[0].version == 21
    assert [tensor.name for tensor in found.graph.initializer if tensor.data_type == TensorProto.INT4] == list(
        dequantised(path))
    (scales,) = (numpy_helper.to_array(tensor) for tensor in found.graph.initializer if tensor.name.endswith("/scales"))
    assert scales.min() > 0, "TensorRT 10.6 refuses a scale below zero"
    assert BITS["int4-weight-only"][1] < cosine(answers(path), answers(model.path)) < 1
    assert weights_of(path) == Weights(products=2, brought={"int4 weights of DequantizeLinear": 1})
    assert quantised_in(path) == "int4-weight-only"
    with pytest.raises(ValueError, match="whole blocks of 128"):
        write_int4_weights(model.path, path, keep_precise=("down",))


@pytest.mark.torch
@pytest.mark.usefixtures("warm_modelopt")
def test_tensorrts_graph_of_weights_alone_is_fp16s_with_those_weights(model: ExportedModel,
                                                                      context: BuildContext) -> None:
    path = typed_graph("int4-weight-only", model, context)
    types = Counter(tensor.data_type for tensor in onnx.load(str(path)).graph.initializer if tensor.dims)
    assert types[TensorProto.INT4] == 1
    assert types[TensorProto.FLOAT16] >= 3  # the scales among them, so that products compute in it
    assert TensorProto.FLOAT not in types
    assert BITS["int4-weight-only"][1] < cosine(answers(path), answers(model.path)) < 1


@pytest.mark.torch
@pytest.mark.usefixtures("warm_modelopt")
@pytest.mark.parametrize("precision", ["fp16", "int4-weight-only"])
def test_tensorrt_keeps_int4_that_a_source_brings(precision: str, model: ExportedModel, context: BuildContext,
                                                  tmp_path: Path) -> None:
    brings = tmp_path / "brings.onnx"
    write_int4_weights(model.path, brings)
    path = typed_graph(precision, replace(model, path=brings), context)
    assert dequantised(path) == dequantised(brings)
    assert cosine(answers(path), answers(brings)) > 0.9999


def test_tensorrt_refuses_what_it_has_no_operator_for(context: BuildContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginewright_builder.engines.tensorrt.unservable", lambda context: "")
    monkeypatch.setattr("enginewright_builder.engines.tensorrt.tensorrt", lambda: None)
    monkeypatch.setattr("enginewright_builder.engines.tensorrt.gpu", lambda: Gpu(
        product="H200", capability=(9, 0), memory_bytes=1 << 37, free_bytes=1 << 37))
    on_gpu = replace(context, device=DeviceRequest(accelerator="gpu"))
    brings = Weights(brought={"int4 weights of MatMulNBits": 3}, foreign=("MatMulNBits",))
    for precision in ("auto", "int4-weight-only"):
        told = TensorRtEngine().rungs(precision, replace(on_gpu, weights=brings))
        assert told
        assert all("TensorRT has no MatMulNBits" in rung.unavailable for rung in told)
    bare, = TensorRtEngine().rungs("int4-weight-only", replace(on_gpu, weights=Weights()))
    assert "no MatMul or Gemm" in bare.unavailable
    able, = TensorRtEngine().rungs("int4-weight-only", replace(on_gpu, weights=Weights(products=3)))
    assert able.unavailable == ""
    assert not TensorRtEngine().rungs("int8-weight-only", on_gpu)

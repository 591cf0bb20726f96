"""ONNX with a precision written into it, by the real ModelOpt, judged by ONNX Runtime on the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import DeviceRequest, Interface, Normalise, RuntimeRequest, TensorSpec
from enginewright_builder.engines import trt_graphs
from enginewright_builder.engines.base import BuildContext, ExportedModel
from enginewright_builder.engines.modelopt_graphs import Job, has_qdq, load_batches, rewrite, save_batches
from enginewright_builder.engines.trt_graphs import carries_quantisation, quantised_in, typed_graph
from enginewright_builder.errors import UserError
from enginewright_builder.export import export_model
from enginewright_builder.models.normalised import Normalised
from enginewright_builder.models.onnx import OnnxModel, load_onnx
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.tensors import Tensors

Test = TypeVar("Test", bound=Callable[..., object])
RNG = np.random.default_rng(7)
WIDTH, HEADS, TOKENS = 64, 4, 12


def modelopt(test: Test) -> Test:
    """Marks a test in which ModelOpt writes a graph."""
    marked: Test = pytest.mark.torch(pytest.mark.usefixtures("warm_modelopt")(test))
    return marked


def weights(graph: dict[str, Any], name: str, *shape: int) -> str:
    scale = 1.0 / np.sqrt(np.prod(shape[1:]) if len(shape) == 4 else shape[0])
    graph[name] = (RNG.standard_normal(shape) * scale).astype(np.float32)
    return name


def save(path: Path, nodes: list[onnx.NodeProto], constants: dict[str, Any], inputs: list[onnx.ValueInfoProto],
         output: onnx.ValueInfoProto) -> OnnxModel:
    graph = helper.make_graph(nodes, "test", inputs, [output],
                              [numpy_helper.from_array(array, name) for name, array in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return load_onnx(path, None)


def convnet(folder: Path) -> OnnxModel:
    """Three convolutions with a residual sum, and a linear head."""
    held: dict[str, Any] = {}
    for name, *shape in (("w0", 32, 3, 3, 3), ("w1", 64, 32, 3, 3), ("w2", 64, 64, 3, 3), ("w3", 64, 32)):
        weights(held, str(name), *map(int, shape))
    same: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [helper.make_node("Conv", ["x", "w0"], ["c0"], name="conv0", **same),
             helper.make_node("Relu", ["c0"], ["r0"], name="relu0"),
             helper.make_node("Conv", ["r0", "w1"], ["c1"], name="conv1", strides=[2, 2], **same),
             helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
             helper.make_node("Conv", ["r1", "w2"], ["c2"], name="conv2", **same),
             helper.make_node("Add", ["c2", "r1"], ["s2"], name="add2"),
             helper.make_node("GlobalAveragePool", ["s2"], ["p"], name="pool"),
             helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
             helper.make_node("MatMul", ["f", "w3"], ["y"], name="head")]
    return save(folder / "convnet.onnx", nodes, held,
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 24, 24])],
                helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 32]))


def transformer(folder: Path) -> OnnxModel:
    """One encoder layer: embedding, attention with four heads, LayerNormalization, and an MLP."""
    held: dict[str, Any] = {"table": RNG.standard_normal((100, WIDTH)).astype(np.float32),
                            "split": np.array([0, -1, HEADS, WIDTH // HEADS]), "join": np.array([0, -1, WIDTH]),
                            "scale": np.float32((WIDTH // HEADS) ** -0.5), "one": np.ones(WIDTH, np.float32)}
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"], name="embed")]
    for one, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [helper.make_node("MatMul", ["e", weights(held, f"w{one}", WIDTH, WIDTH)], [one], name=f"to_{one}"),
                  helper.make_node("Reshape", [one, "split"], [f"{one}s"], name=f"split_{one}"),
                  helper.make_node("Transpose", [f"{one}s"], [f"{one}h"], name=f"heads_{one}", perm=perm)]
    nodes += [helper.make_node("MatMul", ["qh", "kh"], ["a0"], name="scores"),
              helper.make_node("Mul", ["a0", "scale"], ["a1"], name="scaled"),
              helper.make_node("Softmax", ["a1"], ["a2"], name="softmax", axis=-1),
              helper.make_node("MatMul", ["a2", "vh"], ["a3"], name="mixed"),
              helper.make_node("Transpose", ["a3"], ["a4"], name="back", perm=[0, 2, 1, 3]),
              helper.make_node("Reshape", ["a4", "join"], ["a5"], name="joined"),
              helper.make_node("MatMul", ["a5", weights(held, "wo", WIDTH, WIDTH)], ["o"], name="to_out"),
              helper.make_node("Add", ["o", "e"], ["s"], name="residual"),
              helper.make_node("LayerNormalization", ["s", "one"], ["n"], name="norm"),
              helper.make_node("MatMul", ["n", weights(held, "w4", WIDTH, 4 * WIDTH)], ["m"], name="up"),
              helper.make_node("Relu", ["m"], ["g"], name="act"),
              helper.make_node("MatMul", ["g", weights(held, "w5", 4 * WIDTH, WIDTH)], ["y"], name="down")]
    return save(folder / "transformer.onnx", nodes, held,
                [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "tokens"])],
                helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "tokens", WIDTH]))


def images(batch: int) -> Tensors:
    return {"x": RNG.standard_normal((batch, 3, 24, 24)).astype(np.float32)}


def texts(batch: int) -> Tensors:
    return {"ids": RNG.integers(0, 100, (batch, TOKENS))}


NETS = {"convnet": (convnet, images), "transformer": (transformer, texts)}


def context_for(source: OnnxModel, calibration: list[Tensors], folder: Path) -> BuildContext:
    return BuildContext(device=DeviceRequest(accelerator="gpu"), runtime=RuntimeRequest(python_runtimes=("tensorrt",)),
                        max_batch_size=8, calibration=calibration, workspace=folder / "work", source=source,
                        progress=lambda fraction, detail: None, buckets=(1, 8))


def exported(source: OnnxModel) -> ExportedModel:
    return ExportedModel(path=source.path, interface=source.interface, opset=18)


def run(path: Path, inputs: Tensors) -> Any:
    """Unoptimised: ONNX Runtime's own fusions make graphs of FP8 that its CPU cannot run."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(path), options).run(None, dict(inputs))[0]


def error(path: Path, source: OnnxModel, inputs: Tensors) -> float:
    expected, got = source.run(inputs)["y"], run(path, inputs)
    assert got.dtype == np.float32
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def types(path: Path) -> Counter[str]:
    return Counter(TensorProto.DataType.Name(tensor.data_type) for tensor in onnx.load(str(path)).graph.initializer)


def quantised_operators(path: Path) -> Counter[str]:
    """Operators all of whose large inputs come out of a DequantizeLinear."""
    graph = onnx.load(str(path)).graph
    made = {name: node.op_type for node in graph.node for name in node.output}
    return Counter(node.op_type for node in graph.node if node.op_type in ("MatMul", "Conv")
                   and all(made.get(name) == "DequantizeLinear" for name in node.input[:2]))


class Quantised:
    """Graphs that several tests look at, each written once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[str, str], tuple[OnnxModel, Path]] = {}

    def __call__(self, net: str, precision: str) -> tuple[OnnxModel, Path]:
        """The source and its graph."""
        if (net, precision) not in self._made:
            folder = self._folder / f"{net}-{precision}"
            folder.mkdir()
            make, data = NETS[net]
            source = make(folder)
            context = context_for(source, [data(8), data(16)], folder)
            self._made[net, precision] = source, typed_graph(precision, exported(source), context)
        return self._made[net, precision]


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Quantised:
    return Quantised(tmp_path_factory.mktemp("quantised"))


@modelopt
@pytest.mark.parametrize("net", NETS)
def test_fp16_of_an_onnx_source_is_written_by_autocast(net: str, tmp_path: Path) -> None:
    make, data = NETS[net]
    source = make(tmp_path)
    path = typed_graph("fp16", exported(source), context_for(source, [data(4)], tmp_path))
    assert types(path)["FLOAT16"] > 0
    assert types(path)["FLOAT"] == 0
    assert 0 < error(path, source, data(5)) < 0.01


@modelopt
@pytest.mark.parametrize(("precision", "most"), [("fp16", 0.01), ("int8", 0.1)])
def test_normalisation_in_front_of_a_graph_is_taken_along(precision: str, most: float, tmp_path: Path) -> None:
    sent = TensorSpec(name="x", dtype="uint8", shape=("batch", 3, 24, 24),
                      normalise=Normalise(scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)))
    source = Normalised(convnet(tmp_path), Interface(inputs=(sent,)))
    data = [example_inputs(source.interface, 8, seed) for seed in range(3)]
    model = export_model(source, tmp_path / "export", data[:1])
    context = replace(context_for(convnet(tmp_path), data[1:], tmp_path), source=source)
    path = typed_graph(precision, model, context)
    assert onnx.load(str(path)).graph.input[0].type.tensor_type.elem_type == TensorProto.UINT8
    expected, got = source.run(data[0])["y"], run(path, data[0])
    assert 0 < np.abs(got - expected).max() / np.abs(expected).max() < most


@modelopt
def test_bf16_is_written_with_an_operator_set_that_knows_it(tmp_path: Path) -> None:
    source = transformer(tmp_path)
    path = typed_graph("bf16", exported(source), context_for(source, [], tmp_path))
    model = onnx.load(str(path))
    onnx.checker.check_model(model, full_check=True)
    assert types(path)["BFLOAT16"] > 0
    assert model.opset_import[0].version >= 22
    assert model.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT


@modelopt
@pytest.mark.parametrize(("net", "operator"), [("convnet", "Conv"), ("transformer", "MatMul")])
@pytest.mark.parametrize(("precision", "held", "tolerance"), [("int8", "INT8", 0.06), ("fp8", "FLOAT8E4M3FN", 0.12)])
def test_quantised_graphs_hold_qdq_and_compute_the_rest_in_fp16(net: str, operator: str, precision: str, held: str,
                                                                tolerance: float, quantised: Quantised) -> None:
    source, path = quantised(net, precision)
    assert quantised_in(path) == precision
    assert types(path)[held] > 0
    assert types(path)["FLOAT16"] > 0
    assert types(path)["FLOAT"] == 0
    assert quantised_operators(path)[operator] >= 2
    assert 0 < error(path, source, NETS[net][1](5)) < tolerance


@modelopt
def test_a_graph_out_of_the_store_is_the_one_that_was_written(quantised: Quantised, tmp_path: Path) -> None:
    """As ModelOpt writes it, with all that the worker leaves beside it."""
    source, written = quantised("convnet", "int8")
    told: list[str] = []
    made = replace(context_for(source, [images(16)], tmp_path / "first"), timing_caches=tmp_path / "timing-caches",
                   progress=lambda fraction, detail: told.append(detail))
    first = typed_graph("int8", exported(source), made)
    again = typed_graph("int8", exported(source), replace(made, workspace=tmp_path / "second"))
    assert told[-1] == "the int8 graph comes from the store"
    assert again != first
    assert again.read_bytes() == first.read_bytes()
    assert quantised_operators(again) == quantised_operators(written)
    assert 0 < error(again, source, images(5)) < 0.06


@modelopt
def test_weights_are_scaled_per_channel(quantised: Quantised) -> None:
    _, path = quantised("convnet", "int8")
    graph = onnx.load(str(path)).graph
    sizes = {tensor.name: int(np.prod(tensor.dims)) for tensor in graph.initializer}
    made = {name: node for node in graph.node for name in node.output}
    scales = [sizes[made[node.input[1]].input[1]] for node in graph.node
              if node.op_type == "Conv" and node.input[1] in made]
    assert scales
    assert set(scales) <= {32, 64}


@modelopt
def test_nodes_to_keep_precise_are_left_out(quantised: Quantised, tmp_path: Path) -> None:
    source, plain = quantised("transformer", "int8")
    every = quantised_operators(plain)
    kept = replace(context_for(source, [texts(8), texts(16)], tmp_path), keep_precise=("up", "down"))
    path = typed_graph("int8", exported(source), kept)
    assert quantised_operators(path)["MatMul"] == every["MatMul"] - 2
    graph = onnx.load(str(path)).graph
    made = {name: node.op_type for node in graph.node for name in node.output}
    for node in graph.node:
        if node.name in kept.keep_precise:
            assert [made.get(name) for name in node.input].count("DequantizeLinear") == 0


@modelopt
def test_quantisation_that_the_model_brings_is_kept(tmp_path: Path) -> None:
    """A graph with Q/DQ over FP32, as quantisation-aware training leaves it: its scales stay, the rest is lowered."""
    held: dict[str, Any] = {"sx": np.float32(0.05), "zx": np.int8(0), "sw": np.full(48, 0.01, np.float32),
                            "zw": np.zeros(48, np.int8), "w": (RNG.standard_normal((64, 48)) * 0.1).astype(np.float32)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["xq"], name="qx"),
             helper.make_node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"], name="dx"),
             helper.make_node("QuantizeLinear", ["w", "sw", "zw"], ["wq"], name="qw", axis=1),
             helper.make_node("DequantizeLinear", ["wq", "sw", "zw"], ["wd"], name="dw", axis=1),
             helper.make_node("MatMul", ["xd", "wd"], ["m"], name="product"),
             helper.make_node("Relu", ["m"], ["y"], name="relu")]
    source = save(tmp_path / "qat.onnx", nodes, held,
                  [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
                  helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 48]))
    context = context_for(source, [], tmp_path)
    assert carries_quantisation(context)
    path = typed_graph("int8", exported(source), context)
    graph = onnx.load(str(path)).graph
    assert Counter(node.op_type for node in graph.node)["QuantizeLinear"] == 2
    scales = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    assert any(array.shape == (48,) and np.allclose(array, 0.01, rtol=1e-3) for array in scales.values())
    assert error(path, source, {"x": RNG.standard_normal((3, 64)).astype(np.float32)}) < 0.03
    for other in ("fp16", "bf16", "fp8"):
        with pytest.raises(UserError, match="brings its own int8"):
            typed_graph(other, exported(source), context)


@modelopt
def test_a_graph_in_which_nothing_is_worth_quantising_is_refused(tmp_path: Path) -> None:
    source = save(tmp_path / "sum.onnx", [helper.make_node("Relu", ["x"], ["y"], name="relu")], {},
                  [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
                  helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4]))
    context = context_for(source, [{"x": np.ones((4, 4), np.float32)}], tmp_path)
    with pytest.raises(UserError, match="nothing in the graph is worth quantising"):
        typed_graph("int8", exported(source), context)


@pytest.mark.torch
def test_a_graph_that_modelopt_cannot_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no graph")
    with pytest.raises(UserError) as caught:
        rewrite(Job(task="lower", source=str(tmp_path / "broken.onnx"), target=str(tmp_path / "out.onnx"),
                    precision="fp16"))
    assert caught.value.reason == "CandidateFailed"
    assert caught.value.field == "spec.engine.precision"


def test_full_precision_is_the_export_itself(tmp_path: Path) -> None:
    source = convnet(tmp_path)
    for precision in ("fp32", "tf32"):
        assert typed_graph(precision, exported(source), context_for(source, [], tmp_path)) == source.path


def test_batches_survive_the_way_to_the_worker(tmp_path: Path) -> None:
    batches: list[Tensors] = [{"a/b:0": np.arange(6).reshape(2, 3), "c": np.ones((2, 1), np.float32)},
                              {"a/b:0": np.zeros((1, 5))}]
    save_batches(tmp_path, batches)
    back = load_batches(tmp_path)
    assert [list(batch) for batch in back] == [["a/b:0", "c"], ["a/b:0"]]
    for before, after in zip(batches, back, strict=True):
        for name, array in before.items():
            np.testing.assert_array_equal(after[name], array)
            assert after[name].dtype == array.dtype
    save_batches(tmp_path, batches[:1])
    assert len(load_batches(tmp_path)) == 1


def test_a_plain_graph_carries_no_quantisation(tmp_path: Path) -> None:
    source = transformer(tmp_path)
    assert not has_qdq(source.path)
    assert not carries_quantisation(context_for(source, [], tmp_path))


def test_a_graph_whose_attention_cannot_be_rewritten_is_built_as_it_is(tmp_path: Path,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(source: Path, target: Path) -> bool:
        raise RuntimeError("no such rule")

    monkeypatch.setattr("enginewright_builder.engines.trt_attention.simplify_attention", broken)
    told: list[str] = []
    source = convnet(tmp_path)
    context = replace(context_for(source, [], tmp_path), progress=lambda _, text: told.append(text))
    assert trt_graphs._simplified(source.path, tmp_path / "simple.onnx", context) == source.path
    assert told == ["attention stays as it was exported: RuntimeError: no such rule"]

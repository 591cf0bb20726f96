"""Which layers drift: real quantised and half-precision graphs, and layers that are spoilt on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.accuracy.drift import DriftTables, drift, drift_of, first_not_finite, worst_layers
from enginewright_builder.accuracy.drift_report import DriftReport
from enginewright_builder.contract import DeviceRequest, Interface, RuntimeRequest, dumps, load, to_plain
from enginewright_builder.engines.base import Artifact, BuildContext, ExportedModel, Rung
from enginewright_builder.engines.onnxruntime import OnnxRuntimeEngine
from enginewright_builder.tensors import Tensors

WIDTH, LAYERS = 32, 4
RNG = np.random.default_rng(3)
BATCHES: Sequence[Tensors] = [{"x": RNG.normal(size=(8, WIDTH)).astype(np.float32)} for _ in range(3)]
Weights = dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]


def weights() -> Weights:
    rng = np.random.default_rng(0)
    return {f"w{index}": rng.normal(0, 0.3, (WIDTH, WIDTH)).astype(np.float32) for index in range(LAYERS)}


def chain(path: Path, tensors: Weights, *, element: int = TensorProto.FLOAT, named: bool = True) -> Path:
    """``MatMul`` and ``Tanh`` by turns; inner values in ``element``, input and output in float32."""
    nodes, value = [helper.make_node("Cast", ["x"], ["v0"], name="in", to=element)], "v0"
    for index in range(LAYERS):
        nodes.append(helper.make_node("MatMul", [value, f"w{index}"], [f"h{index}"],
                                      name=f"product{index}" if named else ""))
        nodes.append(helper.make_node("Tanh", [f"h{index}"], [f"v{index + 1}"], name=f"bend{index}" if named else ""))
        value = f"v{index + 1}"
    nodes.append(helper.make_node("Cast", [value], ["y"], name="out", to=TensorProto.FLOAT))
    constants = [onnx.helper.make_tensor(name, element, array.shape, array.ravel()) for name, array in tensors.items()]
    graph = helper.make_graph(nodes, "chain", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path


def artifact(graph: Path | None, **files: Path) -> Artifact:
    return Artifact(rung=Rung(backend="tensorrt", precision="fp8"), files=files, triton_backend="python",
                    interface=Interface(), runtime_version="", graph=graph)


def exported(path: Path) -> ExportedModel:
    return ExportedModel(path=path, interface=Interface(), opset=17)


@pytest.fixture
def original(tmp_path: Path) -> Path:
    return chain(tmp_path / "original.onnx", weights())


def test_the_same_graph_drifts_nowhere(original: Path) -> None:
    report = drift(original, original, BATCHES)
    assert [layer.error for layer in report.layers] == [0.0] * len(report.layers)
    assert len(report.layers) == 2 * LAYERS + 2
    assert report.worst() == ()
    assert report.samples == 12


@pytest.mark.parametrize("element", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
@pytest.mark.parametrize("spoilt", range(LAYERS))
def test_the_spoilt_layer_is_the_worst(element: int, spoilt: int, original: Path, tmp_path: Path) -> None:
    tensors = weights()
    tensors[f"w{spoilt}"] *= 1.2
    lowered = chain(tmp_path / "lowered.onnx", tensors, element=element)
    assert worst_layers(artifact(lowered), exported(original), BATCHES, count=1) == (f"product{spoilt}",)


def test_something_where_nothing_was_can_be_reported(tmp_path: Path) -> None:
    """Its error has no measure, and JSON no infinity."""
    nothing = chain(tmp_path / "nothing.onnx", {**weights(), "w1": np.zeros((WIDTH, WIDTH), np.float32)})
    large = {name: array * 1e20 for name, array in weights().items()}
    report = drift(nothing, chain(tmp_path / "large.onnx", large), BATCHES)
    assert max(layer.error for layer in report.layers) > 1e6
    assert load(DriftReport, dumps(report)) == report


def test_the_first_layer_that_answers_infinity_is_named(original: Path, tmp_path: Path) -> None:
    tensors = weights()
    tensors["w2"] *= 60_000
    lowered = chain(tmp_path / "half.onnx", tensors, element=TensorProto.FLOAT16)
    report = drift(original, lowered, BATCHES)
    assert report.first_not_finite == "product2"
    assert report.worst(1)[0].node == "product2"
    assert first_not_finite(artifact(lowered), exported(original), BATCHES[0]) == "product2"
    assert first_not_finite(artifact(original), exported(original), BATCHES[0]) == ""


def test_reports_are_kept_by_the_engines_name(original: Path, tmp_path: Path) -> None:
    tables = DriftTables()
    assert tables(artifact(original), exported(original), BATCHES) == ()
    assert list(tables.reports) == ["tensorrt fp8"]
    assert tables.reports["tensorrt fp8"].layers


def test_in_a_quantised_graph_only_what_is_quantised_can_be_kept_from_it(original: Path, tmp_path: Path) -> None:
    """As ModelOpt writes it: one product between Q/DQ, the rest in FP16. Errors that turn up behind it are its own."""
    model = onnx.load(str(chain(tmp_path / "mixed.onnx", weights(), element=TensorProto.FLOAT16)))
    model.opset_import[0].version = 21
    model.graph.initializer.extend([helper.make_tensor("step", TensorProto.FLOAT16, [], [0.05]),
                                    helper.make_tensor("zero", TensorProto.INT8, [], [0])])
    at = next(place for place, node in enumerate(model.graph.node) if node.name == "product1")
    for place, name in ((0, "v1"), (1, "w1")):
        model.graph.node[at].input[place] = f"{name}_rounded"
    for name in ("v1", "w1"):
        model.graph.node.insert(at, helper.make_node("DequantizeLinear", [f"{name}_q", "step", "zero"],
                                                     [f"{name}_rounded"]))
        model.graph.node.insert(at, helper.make_node("QuantizeLinear", [name, "step", "zero"], [f"{name}_q"]))
    mixed = tmp_path / "quantised.onnx"
    onnx.save(model, str(mixed))
    report = drift(original, mixed, BATCHES)
    assert [layer.node for layer in report.layers if layer.lowered] == ["product1"]
    assert max(report.layers, key=lambda layer: layer.added).node == "product1"


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("precision", ["int8-dynamic", "int8-static"])
def test_the_worst_layer_of_an_int8_engine_is_kept_precise(precision: str, named: bool, tmp_path: Path) -> None:
    """One column's outlier coarsens the steps of a whole activation: the layer behind it is what INT8 spoils."""
    tensors = weights()
    tensors["w1"][:, :] = np.abs(tensors["w1"]) * 0.02
    tensors["w1"][:, 5] = 90.0
    path = chain(tmp_path / "outlier.onnx", tensors, named=named)
    engine, rung = OnnxRuntimeEngine(), Rung(backend="onnxruntime", precision=precision)
    model = exported(path)

    def built(folder: str, keep: tuple[str, ...]) -> Artifact:
        context = BuildContext(device=DeviceRequest(), runtime=RuntimeRequest(), max_batch_size=8, calibration=BATCHES,
                               workspace=tmp_path / folder, progress=lambda fraction, detail: None, keep_precise=keep)
        return engine.build(rung, model, context)

    first = built("first", ())
    worst = worst_layers(first, model, BATCHES, count=2)
    assert worst
    again = built("again", worst)
    kept = {layer.node: layer for layer in drift_of(again, model, BATCHES).layers}
    assert [kept[name].lowered for name in worst] == [False] * len(worst)
    assert error_of_output(again, model) < error_of_output(first, model)


def error_of_output(one: Artifact, model: ExportedModel) -> float:
    return drift_of(one, model, BATCHES).layers[-1].error


def test_weights_beside_the_graph_are_found(original: Path, tmp_path: Path) -> None:
    path = tmp_path / "beside" / "model.onnx"
    path.parent.mkdir()
    onnx.save(onnx.load(str(original)), str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert drift(original, path, BATCHES).layers[-1].error == 0.0


@pytest.mark.parametrize("spoil", [lambda path: path.write_bytes(b"no graph"),
                                   lambda path: onnx.save(foreign(), str(path))], ids=["no ONNX", "unknown operator"])
def test_a_graph_that_does_not_run_here_is_said_not_raised(spoil: Callable[[Path], object], original: Path,
                                                           tmp_path: Path) -> None:
    spoil(tmp_path / "g.onnx")
    report = drift_of(artifact(tmp_path / "g.onnx"), exported(original), BATCHES)
    assert report.layers == ()
    assert report.unavailable
    assert worst_layers(artifact(tmp_path / "g.onnx"), exported(original), BATCHES) == ()


def foreign() -> onnx.ModelProto:
    graph = helper.make_graph([helper.make_node("TRT_FP8QuantizeLinear", ["x"], ["h0"], domain="trt"),
                               helper.make_node("Identity", ["h0"], ["y"])], "foreign",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])],
                              [numpy_helper.from_array(np.ones(1, np.float32), "unused")])
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17),
                                                                 helper.make_opsetid("trt", 1)])


def test_an_engine_without_a_graph_of_its_own_says_so(original: Path) -> None:
    report = drift_of(artifact(None), exported(original), BATCHES)
    assert "was not built from an ONNX" in report.unavailable


def test_the_report_is_plain_data(original: Path) -> None:
    report = drift(original, original, BATCHES)
    assert to_plain(report)["layers"][1]["node"] == "product0"
    assert load(DriftReport, dumps(report)) == report

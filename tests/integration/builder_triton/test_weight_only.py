"""Weights alone in few bits, from the source to what a real tritonserver answers; sources that bring such weights."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import (
    AccuracyRequest,
    BatchingRequest,
    BuildRequest,
    DataRequest,
    EngineRequest,
    Outcome,
    SourceRequest,
)
from enginewright_builder.engines import onnxruntime as engine
from enginewright_builder.engines.ort_quantize import quantize_weights
from enginewright_builder.models.onnx import OnnxModel
from enginewright_builder.onnx_weights import weights_of
from enginewright_builder.pipeline import run_build
from enginewright_builder.progress import JsonLines, Tracker
from support.inputs import graphs
from support.measuring import ten_times

pytestmark = [pytest.mark.triton]
WIDTH, INNER = 512, 4096
INT8, INT4 = "int8-weight-only", "int4-weight-only"


def mlp(path: Path) -> Path:
    """Two wide layers, the second a Gemm: its FP32 weights take longer to read than to multiply."""
    rng = np.random.default_rng(5)
    held = {"up": rng.normal(size=(WIDTH, INNER)) / WIDTH**0.5, "down": rng.normal(size=(WIDTH, INNER)) / INNER**0.5,
            "bias": rng.normal(size=WIDTH)}
    nodes = [helper.make_node("MatMul", ["x", "up"], ["h"], name="up"), helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("Gemm", ["r", "down", "bias"], ["y"], name="down", transB=1)]
    graph = helper.make_graph(nodes, "mlp", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", WIDTH])],
                              [numpy_helper.from_array(array.astype(np.float32), name)
                               for name, array in held.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def built(path: Path, folder: Path, precision: str, loss: float, width: int = WIDTH) -> Outcome:
    for seed, name in enumerate(("evaluation", "calibration")):
        np.savez(folder / name, x=np.random.default_rng(seed).normal(size=(400, width)).astype(np.float32))
    request = BuildRequest(
        model_name="model", source=SourceRequest(uri=str(path)), store_path=str(folder / "store"),
        engine=EngineRequest(precision=precision, max_batch_size=2, build_budget_seconds=900,
                             calibration=DataRequest(uri=str(folder / "calibration.npz"))),
        batching=BatchingRequest(preferred_batch_sizes=(2,), max_queue_delay_us=100),
        accuracy=AccuracyRequest(tolerance=loss, evaluation=DataRequest(uri=str(folder / "evaluation.npz"))))
    return run_build(request, folder / "scratch", Tracker(JsonLines(io.StringIO())))


def report(folder: Path, outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "store" / outcome.fingerprint / "build-report.json").read_text())
    return found


@pytest.fixture
def slow_source(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = OnnxModel.bind
    monkeypatch.setattr(OnnxModel, "bind", lambda model, inputs: ten_times(bind(model, inputs)))


@pytest.mark.usefixtures("slow_source")
@pytest.mark.parametrize(("precision", "least"), [(INT8, 0.999), (INT4, 0.97)])
def test_what_was_asked_for_is_gated_and_served(precision: str, least: float, tmp_path: Path) -> None:
    outcome = built(mlp(tmp_path / "model.onnx"), tmp_path, precision, 0.05)
    assert outcome.error is None
    assert outcome.engine is not None
    assert {one.precision: one.verdict for one in outcome.candidates}[precision] == "Shipped"
    served = tmp_path / "store" / outcome.fingerprint / "model_repository/model/1/model.onnx"
    assert weights_of(served).brought == {f"{precision[:4]} weights of MatMulNBits": 2}
    assert outcome.engine.accuracy >= least
    assert report(tmp_path, outcome)["notes"]


def test_scales_that_are_doubled_are_refused_by_the_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(bits: int, source: Path, target: Path, *rest: Any) -> None:
        quantize_weights(bits, source, target, *rest)
        model = onnx.load(target)
        scales = next(tensor for tensor in model.graph.initializer if tensor.name.endswith("_scales"))
        doubled = numpy_helper.to_array(scales).copy()
        doubled[..., ::2] *= 2  # cosine does not see what is scaled as a whole
        scales.CopyFrom(numpy_helper.from_array(doubled, scales.name))
        onnx.save(model, target)

    monkeypatch.setattr(engine, "quantize_weights", spoil)
    outcome = built(mlp(tmp_path / "model.onnx"), tmp_path, INT8, 0.01)
    assert outcome.error is not None
    assert outcome.error.reason == "AccuracyNotReached"
    assert {one.precision: one.verdict for one in outcome.candidates} == {INT8: "AccuracyRefused", "fp32": "Offered"}
    assert not (tmp_path / "store" / outcome.fingerprint).exists()


@pytest.mark.parametrize("native", [True, False], ids=["MatMulNBits", "DequantizeLinear"])
def test_weights_that_the_source_brings_are_served_as_they_are(native: bool, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(graphs.few_bits(native=native), path)
    brought = weights_of(path).brought
    assert sum(brought.values()) == 2
    outcome = built(path, tmp_path, "auto", 0.01, width=64)
    assert outcome.error is None
    served = tmp_path / "store" / outcome.fingerprint / "model_repository/model/1/model.onnx"
    assert weights_of(served).brought == brought
    skipped = {one.precision: one.reason for one in outcome.candidates if one.verdict == "Skipped"}
    assert set(skipped) >= {"int8-dynamic", "int8-static"}
    assert all("brings its own quantisation" in skipped[name] for name in ("int8-dynamic", "int8-static"))
    assert any("brings its own quantisation (2 × int4" in note for note in report(tmp_path, outcome)["notes"])


def test_what_cannot_be_made_of_such_a_source_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(graphs.few_bits(native=False), path)
    outcome = built(path, tmp_path, INT8, 0.01, width=64)
    assert outcome.error is not None
    assert (outcome.error.reason, outcome.error.field) == ("PrecisionUnsupported", "spec.engine.precision")
    assert outcome.error.value == INT8
    assert "brings its own quantisation" in outcome.error.message

"""The graph without ONNX's operator answers as with it; that TensorRT builds it: tests/gpu/test_detection.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from enginewright_builder.contract import Detection, DeviceRequest, Interface, PostprocessStep, RuntimeRequest
from enginewright_builder.engines import trt_suppression
from enginewright_builder.engines.base import BuildContext, ExportedModel
from enginewright_builder.engines.modelopt_graphs import missing
from enginewright_builder.engines.trt_graphs import typed_graph
from enginewright_builder.engines.trt_suppression import without_suppression
from enginewright_builder.export import export_model
from enginewright_builder.models import load_model
from enginewright_builder.sources.formats import locate
from enginewright_builder.tensors import Tensors
from support.detectors import PIXELS, SUPPRESSED, images, raw, yolo

BOXES, CLASSES = 60, 3
DETECTION = Detection(boxes="boxes", box_format="xyxy", threshold=0.2, nms_threshold=0.5)


def run(path: Path, inputs: Tensors) -> list[Any]:
    found: list[Any] = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, dict(inputs))
    return found


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(str(path)).graph.node]


def exported(folder: Path, interface: Interface, source: Path, example: Tensors) -> ExportedModel:
    return export_model(load_model(locate(source), interface, folder / "loaded", "cpu"), folder / "export", [example])


def crowd(batch: int, seed: int) -> Tensors:
    """Boxes in a few heaps, so that chains of them decide about each other."""
    rng = np.random.default_rng(seed)
    middle = rng.uniform(0, 30, (batch, 6, 2))[:, rng.integers(0, 6, BOXES)] + rng.normal(0, 2, (batch, BOXES, 2))
    half = rng.uniform(1, 8, (batch, BOXES, 2))
    return {"in_boxes": np.concatenate([middle - half, middle + half], axis=2).astype(np.float32),
            "in_scores": rng.uniform(0, 1, (batch, BOXES, CLASSES)).astype(np.float32)}


def suppressing(folder: Path) -> Path:
    """The graph that keeps boxes of a crowd by ONNX's operator."""
    step = PostprocessStep(output="scores", function="objectDetection", k=50, detection=DETECTION)
    source = raw(folder / "raw.onnx", {"boxes": (BOXES, 4), "scores": (BOXES, CLASSES)})
    return exported(folder, Interface(postprocess=(step,)), source, crowd(2, 0)).path


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    path = suppressing(tmp_path_factory.mktemp("crowd"))
    return path, without_suppression(path)


def test_the_operator_is_gone(both: tuple[Path, Path]) -> None:
    assert "NonMaxSuppression" in operators(both[0])
    assert not {"NonMaxSuppression", "GatherND", "ScatterND"} & set(operators(both[1]))
    onnx.checker.check_model(str(both[1]), full_check=True)


@given(batch=st.integers(1, 4), seed=st.integers(0, 10_000))
def test_it_keeps_the_same_boxes(both: tuple[Path, Path], batch: int, seed: int) -> None:
    sent = crowd(batch, seed)
    for expected, got in zip(run(both[0], sent), run(both[1], sent), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-6)


def test_places_behind_the_best_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trt_suppression, "CANDIDATES", 30)
    whole, sent = suppressing(tmp_path), crowd(2, 5)
    (every, *_), (some, *_) = (run(path, sent) for path in (whole, without_suppression(whole)))
    kept = (some > 0).sum(axis=1)
    assert ((kept > 0) & (kept < (every > 0).sum(axis=1))).all()
    for row, count in enumerate(kept):
        np.testing.assert_array_equal(some[row, :count], every[row, :count])


@pytest.mark.skipif(bool(missing()), reason="needs nvidia-modelopt")
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_graphs_of_lower_precision_lose_it_too(precision: str, tmp_path: Path) -> None:
    def planes(batch: int, seed: int) -> Tensors:
        return {"images": images(batch, PIXELS, PIXELS, seed=seed).transpose(0, 3, 1, 2).astype(np.float32) / 255}

    made = exported(tmp_path, SUPPRESSED, yolo(tmp_path / "yolo.onnx"), planes(4, 0))
    source = load_model(locate(tmp_path / "yolo.onnx"), SUPPRESSED, tmp_path / "again", "cpu")
    context = BuildContext(
        device=DeviceRequest(accelerator="gpu"), runtime=RuntimeRequest(python_runtimes=("tensorrt",)), buckets=(1, 8),
        max_batch_size=8, calibration=[planes(8, seed) for seed in range(1, 4)], workspace=tmp_path / "work",
        source=source, progress=lambda fraction, detail: None, example=planes(4, 0))
    typed = typed_graph(precision, made, context)
    plain = without_suppression(typed)
    assert "NonMaxSuppression" not in operators(plain)
    for expected, got in zip(run(typed, planes(3, 9)), run(plain, planes(3, 9)), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-3)


@pytest.mark.parametrize("change", ["answered", "computed", "left out"])
def test_another_graphs_operator_stays(change: str, tmp_path: Path) -> None:
    """Its rows are an answer, and its threshold comes with the request, or there is none."""
    rows = helper.make_tensor_value_info("rows", TensorProto.INT64, None)
    sent = [helper.make_tensor_value_info("boxes", TensorProto.FLOAT, ["batch", BOXES, 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", CLASSES, BOXES]),
            helper.make_tensor_value_info("overlap", TensorProto.FLOAT, [1])]
    numbers = {"k": np.array([5]), "least": np.array([0.2], np.float32), "fixed": np.array([0.5], np.float32)}
    inputs = {"answered": ["k", "fixed", "least"], "computed": ["k", "overlap", "least"], "left out": []}
    nodes = [helper.make_node("NonMaxSuppression", ["boxes", "scores", *inputs[change]], ["rows"])]
    graph = helper.make_graph(nodes, "other", sent, [rows],
                              [onnx.numpy_helper.from_array(value, name) for name, value in numbers.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    assert without_suppression(tmp_path / "m.onnx") == tmp_path / "m.onnx"

"""Where top1 would compare positions of a picture instead of classes."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from enginewright_builder.accuracy.gate import compare
from enginewright_builder.accuracy.metric_fit import check_classes_last
from enginewright_builder.contract import AccuracyRequest, BuildRequest, Interface, PostprocessStep, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.models import load_model
from enginewright_builder.preparing import prepare
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.resolve import resolve
from enginewright_builder.sources.formats import locate
from enginewright_builder.steps import Steps

Make = Callable[..., BuildRequest]
Shape = tuple[int | str, ...]
TOP1 = AccuracyRequest(metric="top1", tolerance=0.1)
STEP = PostprocessStep(output="y", function="argMax", axis=1)


def spec(*shape: int | str, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name="y", dtype=dtype, shape=shape)


@pytest.mark.parametrize("shape", [
    ("batch", 1000), ("batch", "tokens"), ("batch",), ("batch", 1), ("batch", "tokens", 30522), ("batch", "tokens", 1),
    ("batch", "height", "width", 1)])
def test_classes_that_stand_last_are_compared(shape: Shape) -> None:
    check_classes_last("top1", [spec(*shape)], batched=True)


@pytest.mark.parametrize(("shape", "batched", "remedy"), [
    (("batch", 21, "height", "width"), True, "argMax, axis: 1"), (("batch", 64, 64, 21), True, "argMax, axis: 1"),
    (("batch", 21, "time"), True, "argMax, axis: 1"), (("batch", 21, "1..64"), True, "argMax, axis: 1"),
    (("batch", 1, 64, 64), True, "metric relative-error"), ((21, 64, 64), False, "metric relative-error")])
def test_others_are_refused_with_what_to_declare(shape: Shape, batched: bool, remedy: str) -> None:
    with pytest.raises(UserError, match="compares the largest entry along the last dimension") as caught:
        check_classes_last("top1", [spec("batch", 3), spec(*shape)], batched=batched)
    assert (caught.value.reason, caught.value.field, caught.value.value) == (
        "MetricInvalid", "spec.accuracy.metric", "top1")
    assert remedy in caught.value.remedy
    assert ("argMax" in caught.value.remedy) is ("argMax" in remedy)
    check_classes_last("cosine", [spec(*shape)], batched=batched)


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool", "string"])
def test_what_is_compared_by_equality_fits(dtype: str) -> None:
    check_classes_last("top1", [spec("batch", 21, "height", "width", dtype=dtype)], batched=True)


@pytest.fixture
def segmentation(tmp_path: Path) -> Path:
    """Scores of four classes for each pixel: a convolution of one by one."""
    weight = np.random.default_rng(3).normal(size=(4, 3, 1, 1)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])], "segmentation",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4, 8, 8])],
        [onnx.numpy_helper.from_array(weight, "w")])
    path = tmp_path / "segmentation" / "model.onnx"
    path.parent.mkdir()
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path


def test_a_segmentation_is_refused_before_a_device_is_used(segmentation: Path, request_for: Make,
                                                           tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        resolve(request_for(segmentation, accuracy=TOP1), tmp_path / "scratch")
    assert (caught.value.reason, caught.value.field) == ("MetricInvalid", "spec.accuracy.metric")
    assert "{output: y, function: argMax, axis: 1}" in caught.value.remedy


def test_where_the_source_says_it_only_once_it_is_open_the_build_refuses(
        segmentation: Path, request_for: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginewright_builder.resolve._check_top1", lambda located, request: None)
    resolved = resolve(request_for(segmentation, accuracy=TOP1), tmp_path / "scratch")
    (tmp_path / "build").mkdir()
    with pytest.raises(UserError, match="compares the largest entry along the last dimension"):
        prepare(resolved, tmp_path / "build", Steps(Tracker(JsonLines(io.StringIO()))))


def test_with_the_declared_step_classes_are_compared_pixel_by_pixel(segmentation: Path, request_for: Make,
                                                                    tmp_path: Path) -> None:
    """An engine that confuses two classes, which the positions along the width do not show."""
    stated = Interface(postprocess=(STEP,))
    resolve(request_for(segmentation, accuracy=TOP1, interface=stated), tmp_path / "scratch")
    plain, stepped = (load_model(locate(segmentation), one, tmp_path) for one in (None, stated))
    x = {"x": np.random.default_rng(5).normal(size=(64, 3, 8, 8)).astype(np.float32)}
    scores, classes = plain.run(x)["y"], stepped.run(x)["y"]
    confused = scores.copy()
    confused[:, [0, 1]] = scores[:, [1, 0]]
    wrong = float(np.mean(np.isin(classes, (0, 1))))
    assert 0.2 < wrong < 0.8
    assert compare("top1", [{"y": classes}], [{"y": confused.argmax(axis=1).astype(np.int32)}]).value == pytest.approx(
        1 - wrong)
    assert compare("top1", [{"y": classes}], [{"y": classes}]).refusal(0.1) == ""

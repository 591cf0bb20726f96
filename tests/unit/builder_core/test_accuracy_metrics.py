"""Metrics of the user's own: a real graph on ONNX Runtime, a real entry point, and those that would admit anything."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from enginewright_builder.accuracy.gate import compare
from enginewright_builder.accuracy.metric_graph import find_metric
from enginewright_builder.accuracy.metrics import Checked, OnnxMetric, PythonMetric, open_metric, try_metric
from enginewright_builder.contract import AccuracyRequest, BuildRequest, DataRequest
from enginewright_builder.errors import UserError
from enginewright_builder.resolve import resolve
from enginewright_builder.tensors import Array, Tensors

ANSWERS = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
# 1 − the mean absolute difference, none below 0.
NODES = [("Sub", ["y.candidate", "y.reference"], "d"), ("Abs", ["d"], "a"), ("ReduceMean", ["a"], "m"),
         ("Sub", ["one", "m"], "s"), ("Relu", ["s"], "score")]


def graph(path: Path, inputs: Sequence[str] = ("y.reference", "y.candidate"), outputs: Sequence[str] = ("score",),
          nodes: Sequence[tuple[str, list[str], str]] = NODES, element: int = TensorProto.FLOAT) -> Path:
    options: dict[str, Any] = {"ReduceMean": {"axes": [1], "keepdims": 0}}
    made = [helper.make_node(kind, names, [output], **options.get(kind, {})) for kind, names, output in nodes]
    model = helper.make_model(helper.make_graph(
        made, "metric", [helper.make_tensor_value_info(name, element, ["n", 6]) for name in inputs],
        [helper.make_tensor_value_info(name, element, ["n"]) for name in outputs],
        [helper.make_tensor("one", element, [], [1.0])]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))
    return path


def judged(metric: object, candidate: Array) -> float:
    return compare(metric, [{"y": ANSWERS}], [{"y": candidate}]).value  # type: ignore[arg-type]


@pytest.mark.parametrize("element", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_a_graph_scores_each_sample(element: int, tmp_path: Path) -> None:
    metric = open_metric("onnx", graph(tmp_path / "metric.onnx", element=element))
    assert judged(metric, ANSWERS) == pytest.approx(1.0)
    assert judged(metric, ANSWERS + 0.25) == pytest.approx(0.75, abs=1e-3)


def test_its_lower_bound_is_what_passes(tmp_path: Path) -> None:
    metric = open_metric("onnx", graph(tmp_path / "metric.onnx"))
    got = compare(metric, [{"y": ANSWERS}], [{"y": ANSWERS + 0.01}])
    assert got.passes(0.05)
    assert not got.passes(0.02)
    assert "mean onnx 0.99" in got.refusal(0.02)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_never_reaches_the_metric(bad: float, tmp_path: Path) -> None:
    wrong = ANSWERS.copy()
    wrong[0, 0] = bad
    assert not compare(lambda_metric(lambda here, there: np.ones(200)), [{"y": ANSWERS}], [{"y": wrong}]).passes(0.2)


class lambda_metric:  # noqa: N801
    name = "python:test"

    def __init__(self, score: Callable[[Array, Array], object]) -> None:
        self._score = score

    def __call__(self, reference: Tensors, candidate: Tensors) -> Array:
        return self._score(reference["y"], candidate["y"])  # type: ignore[return-value]


@pytest.mark.parametrize(("score", "told"), [
    (lambda here, there: np.ones(len(here)), "gives 1 to answers that are zero, inverted, or another sample's"),
    (lambda here, there: np.isfinite(there).all(axis=1), "gives 1 to answers that are zero"),
    (lambda here, there: np.abs(here - there).mean(axis=1), "gives 0 to equal answers"),
    (lambda here, there: np.float64(1), r"answers \[\] float64 for 200 samples"),
    (lambda here, there: np.ones((len(here), 6)), r"answers \[200, 6\]"),
    (lambda here, there: np.full(len(here), 100.0), "gives 100"),
    (lambda here, there: np.full(len(here), np.nan), "gives nan"),
    (lambda here, there: np.array(["good"] * len(here)), "answers"),
])
def test_a_metric_that_would_admit_anything_is_refused(score: Callable[[Array, Array], object], told: str) -> None:
    with pytest.raises(UserError, match=told) as caught:
        try_metric(Checked(lambda_metric(score)), [{"y": ANSWERS}])
    assert (caught.value.reason, caught.value.field) == ("MetricInvalid", "spec.accuracy.metric")
    assert caught.value.remedy


@pytest.mark.parametrize("batches", [
    [{"y": ANSWERS[place:place + 1]} for place in range(20)],
    [{"y": ANSWERS[place:place + 1, :1 + place % 6]} for place in range(20)],
], ids=["of one", "of one, in many shapes"])
def test_samples_that_come_one_by_one_are_enough_to_try_a_metric(batches: list[Tensors]) -> None:
    with pytest.raises(UserError, match="gives 1 to answers that are zero, inverted, or another sample's"):
        try_metric(Checked(lambda_metric(lambda here, there: np.ones(len(here)))), batches)
    try_metric(Checked(lambda_metric(lambda here, there: np.isclose(here, there).mean(axis=1))), batches)


def test_a_metric_is_not_blind_where_the_first_answers_are_all_zero() -> None:
    """As the classes are that a classifier answers to samples in the order of their classes."""
    classes = np.repeat(np.arange(4), 32)
    metric = Checked(lambda_metric(lambda here, there: here == there))
    try_metric(metric, [{"y": classes[start:start + 16]} for start in range(0, 128, 16)])
    with pytest.raises(UserError, match="gives 1 to answers"):
        try_metric(metric, [{"y": classes[:32]}])


def test_a_metric_that_serves_is_not_tried_by_requests_that_are_all_alike() -> None:
    alike = np.zeros(4, np.int64)
    assert Checked(lambda_metric(lambda here, there: here == there))({"y": alike}, {"y": alike}).tolist() == [1.0] * 4


def test_a_graph_that_asks_for_what_the_model_does_not_answer(tmp_path: Path) -> None:
    metric = open_metric("onnx", graph(tmp_path / "metric.onnx"))
    with pytest.raises(UserError, match=r"takes y\.reference, but the model answers z"):
        compare(metric, [{"z": ANSWERS}], [{"z": ANSWERS}])


@pytest.mark.parametrize(("change", "told"), [
    ({"inputs": ("y.reference",), "nodes": [("ReduceMean", ["y.reference"], "score")]}, r"takes y\.reference"),
    ({"inputs": ("a", "b"), "nodes": [("Sub", ["a", "b"], "d"), ("ReduceMean", ["d"], "score")]}, "takes a, b"),
    ({"outputs": ("score", "m")}, "2 outputs"),
])
def test_a_graph_of_another_form_is_refused_before_a_device_is_used(change: Mapping[str, object], told: str,
                                                                    tmp_path: Path) -> None:
    graph(tmp_path / "metric.onnx", **change)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=told) as caught:
        find_metric("onnx", tmp_path)
    assert caught.value.reason == "MetricInvalid"
    assert "<output>.reference" in caught.value.remedy


def test_a_source_with_its_own_metric_resolves(perceptron: Path, request_for: Callable[..., BuildRequest],
                                               write_rows: Callable[..., Path], tmp_path: Path) -> None:
    """And the metric is part of what the engine's fingerprint stands for."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(perceptron.read_bytes())
    graph(folder / "metric.onnx")
    accuracy = AccuracyRequest(metric="onnx", tolerance=0.1, evaluation=DataRequest(uri=str(write_rows("e.npz", 64))))
    first = resolve(request_for(folder, accuracy=accuracy), tmp_path / "s")
    assert first.metric_graph == folder / "metric.onnx"
    graph(folder / "metric.onnx", nodes=[*NODES[:-1], ("Sigmoid", ["s"], "score")])
    second = resolve(request_for(folder, accuracy=accuracy), tmp_path / "s")
    assert second.request.fingerprint() != first.request.fingerprint()


@pytest.mark.parametrize("metric", ["onnx", "python:nobody-has-this"])
def test_a_metric_that_is_not_there(metric: str, perceptron: Path, request_for: Callable[..., BuildRequest],
                                    tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        resolve(request_for(perceptron, accuracy=AccuracyRequest(metric=metric)), tmp_path / "s")
    assert caught.value.reason == ("MetricInvalid" if metric == "onnx" else "MetricUnknown")
    assert caught.value.field == "spec.accuracy.metric"
    assert caught.value.remedy


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with two entry points, as pip would lay it out."""
    (tmp_path / "house_metrics.py").write_text(
        "import numpy as np\n"
        "def close(reference, candidate):\n"
        "    return 1 - np.abs(reference['y'] - candidate['y']).mean(axis=1).clip(0, 1)\n"
        "def broken(reference, candidate):\n    return reference['nothing']\n")
    info = tmp_path / "house_metrics-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: house-metrics\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[enginewright.metrics]\nclose = house_metrics:close\nbroken = house_metrics:broken\n"
        "absent = house_metrics:no\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "house_metrics", raising=False)


@pytest.mark.usefixtures("installed")
class TestEntryPoints:
    def test_an_installed_metric_is_found_and_scores(self, tmp_path: Path) -> None:
        assert find_metric("python:close", tmp_path) is None
        metric = open_metric("python:close")
        assert judged(metric, ANSWERS + 0.25) == pytest.approx(0.75)

    def test_others_are_named(self, tmp_path: Path) -> None:
        with pytest.raises(UserError) as caught:
            find_metric("python:far", tmp_path)
        assert "python:close" in caught.value.remedy

    @pytest.mark.parametrize(("name", "told"), [("broken", "KeyError"), ("absent", "cannot be imported")])
    def test_one_that_fails_is_told(self, name: str, told: str) -> None:
        with pytest.raises(UserError, match=told):
            judged(open_metric(f"python:{name}"), ANSWERS)


def test_a_file_that_is_no_graph(tmp_path: Path) -> None:
    (tmp_path / "metric.onnx").write_bytes(b"nothing")
    with pytest.raises(UserError, match="cannot be loaded"):
        OnnxMetric(tmp_path / "metric.onnx")
    with pytest.raises(UserError, match="no metric"):
        PythonMetric("nobody-has-this")

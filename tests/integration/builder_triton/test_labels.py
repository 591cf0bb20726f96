"""Builds by hand on labelled data with groups: the real program, ONNX Runtime's INT8 and Triton.

The model has two halves. One reads requests from ``de`` and ``fr`` by large weights, the other those from ``lu`` by
weights that INT8 rounds to nothing. So INT8 answers 95 of 100 requests as the source does, and guesses for ``lu``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import CandidateSummary, Outcome
from enginewright_builder.report import read_report

pytestmark = pytest.mark.triton
CLASSES, HALF = 4, 32
SHARES = {"de": 900, "fr": 500, "lu": 75, "li": 10}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("countries")
    rng = np.random.default_rng(11)
    prototypes = rng.standard_normal((2, CLASSES, HALF)).astype(np.float32)
    weights = np.concatenate([prototypes[0].T, 1e-3 * prototypes[1].T])
    _model(weights, made / "model.onnx")
    countries = np.repeat(list(SHARES), list(SHARES.values()))
    rng.shuffle(countries)
    labels = rng.integers(0, CLASSES, len(countries))
    inputs = np.zeros((len(countries), 2 * HALF), np.float32)
    for row, (country, label) in enumerate(zip(countries, labels, strict=True)):
        half = 1 if country == "lu" else 0
        inputs[row, half * HALF:(half + 1) * HALF] = prototypes[half, label] + 0.3 * rng.standard_normal(HALF)
    np.savez(made / "labelled.npz", x=inputs, label=labels, country=countries)
    np.savez(made / "short.npz", x=inputs, label=labels[:-3])
    return made


def _model(weights: np.ndarray[Any, Any], path: Path) -> None:
    wide = np.eye(2 * HALF, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "first"], ["h"]), helper.make_node("MatMul", ["h", "second"], ["logits"])],
        "countries", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2 * HALF])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(wide, "first"), numpy_helper.from_array(weights, "second")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)


def build(folder: Path, output: Path, *options: str) -> tuple[Outcome, list[str]]:
    words: Sequence[str] = (
        sys.executable, "-m", "enginewright_builder", "--model", str(folder / "model.onnx"), "--evaluation",
        str(folder / "labelled.npz"), "--tolerance", "0.1", "--max-batch-size", "4", "--budget-seconds", "60",
        "--accelerator", "cpu", "--output", str(output), "--json", *options)
    ended = subprocess.run(words, text=True, timeout=300, capture_output=True, check=False)
    *lines, last = ended.stdout.splitlines()
    return Outcome.from_json(last), [json.loads(line)["detail"] for line in lines]


def named(outcome: Outcome, precision: str) -> CandidateSummary:
    return next(one for one in outcome.candidates if one.name == f"onnxruntime {precision}")


LABELS = ("--task-metric", "accuracy", "--task-tolerance", "0.1")


def test_without_labels_and_groups_int8_passes(folder: Path, tmp_path: Path) -> None:
    outcome, _ = build(folder, tmp_path, "--precision", "int8")
    assert not outcome.ok, "the file has arrays that are no inputs"
    assert outcome.error is not None
    assert "country holds <U2" in outcome.error.message
    assert "spec.accuracy.groupBy" in outcome.error.remedy
    with np.load(folder / "labelled.npz") as data:
        np.savez(tmp_path / "inputs.npz", x=data["x"])
    outcome, _ = build(folder, tmp_path, "--precision", "int8", "--evaluation", str(tmp_path / "inputs.npz"))
    refused = [one for one in outcome.candidates if one.verdict == "AccuracyRefused"]
    assert not refused


def test_int8_that_loses_on_one_group_is_refused_with_its_name_and_fp32_ships(folder: Path, tmp_path: Path) -> None:
    outcome, notes = build(folder, tmp_path, *LABELS, "--group-by", "country")
    assert outcome.ok, outcome.error
    int8 = named(outcome, "int8-dynamic")
    assert int8.verdict == "AccuracyRefused"
    assert int8.accuracy_low is not None
    assert int8.accuracy_low > 0.9, "over all samples it agrees as asked"
    assert int8.reason.startswith("in the group country=lu (75 samples) mean cosine ")
    assert named(outcome, "fp32").verdict in ("Shipped", "Passed")
    assert any("1 of 4 groups by country are too small" in note and "li (10)" in note for note in notes)

    engine = outcome.engine
    assert engine is not None
    assert engine.task is not None
    assert engine.groups is not None
    assert (engine.task.metric, engine.task.source) == ("accuracy", 1.0)
    assert engine.task.loss_high < 0.01
    assert (engine.groups.by, engine.groups.judged, engine.groups.too_small) == ("country", 3, ("li",))
    report = read_report(tmp_path / outcome.fingerprint)
    lu = next(one for one in report.accuracy.groups[int8.name] if one.group == "lu")
    assert lu.task is not None
    assert lu.task.value < 0.6 < lu.task.source
    page = (tmp_path / outcome.fingerprint / "report.html").read_text(encoding="utf-8")
    assert "The gate held in each of 3 groups by country" in page
    assert "On the labels accuracy is 1.0000" in page
    assert "--task-metric accuracy --labels label --task-tolerance 0.1 --group-by country" in page


def test_where_int8_alone_is_asked_for_the_error_names_the_group(folder: Path, tmp_path: Path) -> None:
    outcome, _ = build(folder, tmp_path, *LABELS, "--group-by", "country", "--precision", "int8", "--metric", "top1")
    assert not outcome.ok
    assert outcome.error is not None
    assert outcome.error.reason == "AccuracyNotReached"
    assert "in the group country=lu (75 samples)" in outcome.error.message
    assert named(outcome, "int8-dynamic").verdict in ("AccuracyRefused", "Offered")


def test_labels_of_another_length_are_told_before_anything_is_built(folder: Path, tmp_path: Path) -> None:
    outcome, notes = build(folder, tmp_path, *LABELS, "--evaluation", str(folder / "short.npz"))
    assert outcome.error is not None
    assert (outcome.error.reason, outcome.error.field) == ("EvaluationDataInvalid", "spec.accuracy.evaluation.uri")
    assert "label: (1482,)" in outcome.error.message
    assert len(notes) == 1

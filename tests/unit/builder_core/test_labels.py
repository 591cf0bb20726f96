"""Labels, queries and groups: read from files of evaluation data, and refused with field, value and remedy before a
device is used."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from enginewright_builder.accuracy.gate import Beside, compare
from enginewright_builder.accuracy.groups import Groups, check_groups, reported, summary
from enginewright_builder.accuracy.task import Exam, Labels
from enginewright_builder.accuracy.task_rules import check_task
from enginewright_builder.contract import (
    AccuracyRequest,
    BuildRequest,
    DataRequest,
    GroupFigure,
    Interface,
    SourceRequest,
    TaskRequest,
    TensorSpec,
)
from enginewright_builder.data.files import read_samples
from enginewright_builder.data.labels import check_columns, groups_of, labels_of, queries_of, vocabulary
from enginewright_builder.data.sets import sample_set
from enginewright_builder.errors import UserError
from enginewright_builder.resolve import resolve

COUNT = 80
CLASSES = np.arange(COUNT) % 3


def identity(folder: Path, size: int | str = 3, *more: int | str) -> Path:
    """A model that answers what it is given."""
    shape = ["batch", size, *more]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["scores"])], "identity",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("scores", TensorProto.FLOAT, shape)])
    folder.mkdir(exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10),
              folder / "model.onnx")
    return folder


def asked(tmp_path: Path, task: TaskRequest | None = None, group_by: str = "", size: int | str = 3,
          more: tuple[int | str, ...] = (), **columns: Any) -> BuildRequest:
    """Of a model with outputs ``[size, *more]``, and data with ``columns``."""
    rng = np.random.default_rng(1)
    numbers = [one if isinstance(one, int) else 4 for one in (size, *more)]
    np.savez(tmp_path / "data.npz", x=rng.standard_normal((COUNT, *numbers)).astype(np.float32), **columns)
    return BuildRequest(
        model_name="m", source=SourceRequest(uri=str(identity(tmp_path / "model", size, *more))),
        accuracy=AccuracyRequest(tolerance=0.1, evaluation=DataRequest(uri=str(tmp_path / "data.npz")), task=task,
                                 group_by=group_by))


def task(metric: str = "accuracy", **more: Any) -> TaskRequest:
    return TaskRequest(metric=metric, tolerance=0.1, **more)


BAD: Mapping[str, tuple[dict[str, Any], str, str, str]] = {
    "no such array": ({"task": task(), "other": CLASSES}, "LabelsInvalid", "labels", "no 'label'; they have"),
    "of another length": ({"task": task(), "label": CLASSES[:70]}, "EvaluationDataInvalid", "evaluation.uri",
                          "label: (70,)"),
    "an unknown class": ({"task": task(), "label": CLASSES + 1}, "LabelsInvalid", "labels",
                         "sample 2: class 3 is unknown to scores, which answers [3]"),
    "a class below none": ({"task": task(), "label": CLASSES - 1}, "LabelsInvalid", "labels", "class -1 is unknown"),
    "halves of classes": ({"task": task(), "label": CLASSES / 2}, "LabelsInvalid", "labels", "the label is 0.5"),
    "names without meaning": ({"task": task(), "label": np.array(["cat", "dog"] * 40)}, "LabelsInvalid", "labels",
                              "'cat' is not one of the source's"),
    "numbers where several may be": ({"task": task("f1-macro"), "label": np.full((COUNT, 3), 2)}, "LabelsInvalid",
                                     "labels", "the label is [2, 2, 2]"),
    "a label for each position of none": ({"task": task(), "label": np.zeros((COUNT, 2), int)}, "LabelsInvalid",
                                          "labels", "shape [2]"),
    "too many numbers": ({"task": task("mae"), "label": np.zeros((COUNT, 2))}, "LabelsInvalid", "labels",
                         "holds 2 numbers"),
    "not a number": ({"task": task("mae"), "size": 1, "label": np.full(COUNT, np.nan)}, "LabelsInvalid", "labels",
                     "NaN or infinity"),
    "words where numbers are": ({"task": task("rmse"), "size": 1, "label": np.array(["one", "two"] * 40)},
                                "LabelsInvalid", "labels", "expected numbers"),
    "a relevance below none": ({"task": task("ndcg"), "label": -np.ones((COUNT, 3))}, "LabelsInvalid", "labels",
                               "a relevance of -1"),
    "no queries": ({"task": task("ndcg"), "size": 1, "label": CLASSES}, "TaskInvalid", "task.queries",
                   "ranks the samples of one query"),
    "rankings of more than one number": (
        {"task": task("ndcg", queries="q"), "label": CLASSES, "q": np.arange(COUNT)}, "TaskInvalid", "task.metric",
        "takes one number for each sample"),
    "queries too few": ({"task": task("ndcg", queries="q"), "size": 1, "label": CLASSES, "q": np.arange(COUNT) // 10},
                        "EvaluationTooSmall", "evaluation.uri", "8 queries cannot prove"),
    "queries in two groups": ({"task": task("ndcg", queries="q"), "size": 1, "label": CLASSES, "group_by": "g",
                               "q": np.arange(COUNT) // 2, "g": CLASSES}, "GroupByInvalid", "groupBy",
                              "query 0 are in the groups 0 and 1"),
    "the first five of three": ({"task": task("top5"), "label": CLASSES}, "TaskInvalid", "task.metric",
                                "is always 1 of 3 classes"),
    "words of no speech": ({"task": task("wer"), "label": np.array(["a b"] * COUNT)}, "TaskInvalid", "task.metric",
                           "has no vocab.json"),
    "no such output": ({"task": task(output="other"), "label": CLASSES}, "TaskInvalid", "task.output",
                       "does not answer 'other'"),
    "no such metric": ({"task": task("auc"), "label": CLASSES}, "TaskInvalid", "task.metric", "'auc' is not a metric"),
    "no such groups": ({"group_by": "country"}, "GroupByInvalid", "groupBy", "no 'country'"),
    "groups of a measure": ({"group_by": "age", "age": np.arange(COUNT) + 0.5}, "GroupByInvalid", "groupBy",
                            "sample 0: age is 0.5"),
    "groups all too small": ({"group_by": "g", "g": np.arange(COUNT) // 20}, "GroupsTooSmall", "groupBy",
                             "the largest of 4 groups by g, '0', has 20 samples, and 29"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused_before_a_device_is_used(name: str, tmp_path: Path) -> None:
    given, reason, field, message = BAD[name]
    with pytest.raises(UserError) as caught:
        resolve(asked(tmp_path, **given), tmp_path / "scratch")
    error = caught.value
    assert error.reason == reason, error.message
    assert error.field.endswith(field)
    assert message in error.message
    assert error.remedy


@pytest.mark.parametrize("accuracy", [AccuracyRequest(task=task()), AccuracyRequest(group_by="label")])
def test_labels_and_groups_need_evaluation_data(accuracy: AccuracyRequest) -> None:
    with pytest.raises(UserError, match="no evaluation data to have 'label' in it") as caught:
        check_task(accuracy)
    assert caught.value.reason == "EvaluationMissing"


@pytest.mark.parametrize(("metric", "columns", "size"), [
    ("accuracy", {"label": CLASSES}, 3), ("accuracy", {"label": CLASSES.astype(np.float32)}, "classes"),
    ("accuracy", {"label": CLASSES == 1}, 1), ("top5", {"label": CLASSES}, 9),
    ("f1-micro", {"label": np.eye(3, dtype=bool)[CLASSES]}, 3), ("rmse", {"label": CLASSES}, 1),
    ("ndcg", {"label": np.eye(3)[CLASSES]}, 3),
])
def test_what_fits_is_resolved_and_labels_are_no_inputs(metric: str, columns: dict[str, Any], size: int | str,
                                                        tmp_path: Path) -> None:
    resolved = resolve(asked(tmp_path, task(metric), size=size, **columns), tmp_path / "scratch")
    assert resolved.evaluation is not None
    assert set(resolved.evaluation.rows[0]) == {"x"}
    assert len(labels_of(resolved.evaluation.columns)) == COUNT


@pytest.mark.parametrize(("shape", "refused"), [((), False), (("batch", 3), False), (("batch", 2), True)])
def test_answers_are_those_that_the_spec_states_where_it_does(shape: tuple[int | str, ...], refused: bool,
                                                              tmp_path: Path) -> None:
    request = asked(tmp_path, task(), label=CLASSES)
    torch.jit.script(torch.nn.Linear(3, 3)).save(str(tmp_path / "model.pt"))  # type: ignore[no-untyped-call]
    interface = Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 3)),),
                          outputs=(TensorSpec(name="y", dtype="float32", shape=shape),))
    request = dataclasses.replace(request, source=SourceRequest(uri=str(tmp_path / "model.pt")), interface=interface)
    if refused:
        with pytest.raises(UserError, match="class 2 is unknown to y"):
            resolve(request, tmp_path / "scratch")
    else:
        assert resolve(request, tmp_path / "scratch").source.format == "torchscript"


def test_some_groups_too_small_are_named_in_a_note(tmp_path: Path) -> None:
    groups = np.array(["de"] * 70 + ["lu"] * 10)
    resolved = resolve(asked(tmp_path, group_by="country", country=groups), tmp_path / "scratch")
    assert resolved.notes[-1] == ("1 of 2 groups by country are too small to be judged in full, which takes 29 "
                                  "samples: lu (10)")


def test_a_group_may_be_large_enough_for_agreement_and_not_for_the_labels() -> None:
    accuracy = AccuracyRequest(tolerance=0.1, group_by="g", task=TaskRequest(metric="ndcg", tolerance=0.1, queries="q"))
    of_sample, queries = ("a",) * 60 + ("b",) * 60, (*map(str, range(60)), *["60"] * 30, *["61"] * 30)
    assert check_groups(accuracy, of_sample, queries) == (
        "1 of 2 groups by g are too small to be judged in full, which takes 29 samples for agreement and 29 queries "
        "for the labels: b (60)")
    said = summary("g", [GroupFigure(group="a", samples=60, accuracy=1.0, accuracy_low=0.99),
                         GroupFigure(group="b", samples=60, accuracy=0.9, accuracy_low=0.9, too_small=True)])
    assert said is not None
    assert (said.judged, said.too_small, said.worst) == (1, ("b",), "b")


def test_a_sample_with_two_labels_counts_once_and_is_told(tmp_path: Path) -> None:
    request = asked(tmp_path, task(), label=CLASSES)
    with np.load(tmp_path / "data.npz") as data:
        x = data["x"]
    x[[70, 71]], labels = x[[0, 1]], CLASSES.copy()
    labels[70], labels[71] = labels[0], labels[1] + 1
    np.savez(tmp_path / "data.npz", x=x, label=labels)
    resolved = resolve(request, tmp_path / "scratch")
    assert resolved.evaluation is not None
    assert len(resolved.evaluation) == COUNT - 2
    assert resolved.notes == ("2 of 80 evaluation samples are there more than once: they count once",
                              "1 of these has another label than in its first place, which is the one that counts")


def test_calibration_data_may_have_the_same_columns(tmp_path: Path) -> None:
    request = asked(tmp_path, task(), label=CLASSES)
    other = np.random.default_rng(9).standard_normal((40, 3)).astype(np.float32)
    np.savez(tmp_path / "calibration.npz", x=other, label=CLASSES[:40])
    calibration = DataRequest(uri=str(tmp_path / "calibration.npz"))
    resolved = resolve(_calibrated(request, calibration), tmp_path / "scratch")
    assert resolved.calibration is not None
    assert set(resolved.calibration.rows[0]) == {"x"}


def _calibrated(request: BuildRequest, data: DataRequest) -> BuildRequest:
    return dataclasses.replace(request, engine=dataclasses.replace(request.engine, calibration=data))


def lines(path: Path, *entries: Mapping[str, Any]) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def test_a_line_without_the_label_is_named(tmp_path: Path) -> None:
    path = lines(tmp_path / "d.jsonl", {"text": "a", "label": 1}, {"text": "b"})
    with pytest.raises(UserError, match="jsonl:2: there is no 'label', which other lines have"):
        read_samples(path, columns=("label",))


def test_names_of_classes_are_those_of_the_sources_settings(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {"0": "bad", "1": "good"}}))
    samples = read_samples(lines(tmp_path / "d.jsonl", {"text": "a", "label": "good"}, {"text": "b", "label": "bad"},
                                 {"text": "c", "label": 1}), columns=("label",))
    found = check_columns(samples, AccuracyRequest(task=task()), tmp_path)
    assert [int(label) for label in labels_of(found.columns)] == [1, 0, 1]
    samples = read_samples(lines(tmp_path / "f.jsonl", {"text": "a", "label": 2}), columns=("label",))
    with pytest.raises(UserError, match="class 2 is unknown to the source, whose config"):
        check_columns(samples, AccuracyRequest(task=task()), tmp_path)
    mixed = read_samples(lines(tmp_path / "e.jsonl", {"text": "a", "label": "good"}, {"text": "b", "label": ["bad"]}),
                         columns=("label",))
    with pytest.raises(UserError, match=r"sample 1: the label is \[bad\], that of sample 0 good"):
        check_columns(mixed, AccuracyRequest(task=task()), tmp_path)


def test_several_names_are_a_yes_or_no_for_each_class(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"label2id": {"sport": 0, "news": 1, "art": 2}}))
    several = read_samples(lines(tmp_path / "e.jsonl", {"text": "a", "label": ["art", "sport"]},
                                 {"text": "b", "label": ["news"]}, {"text": "c", "label": []}), columns=("label",))
    found = check_columns(several, AccuracyRequest(task=task("f1-macro")), tmp_path)
    assert [label.tolist() for label in labels_of(found.columns)] == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]


def test_the_vocabulary_of_speech_is_the_tokenizers(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps({"[PAD]": 0, "|": 1, "<unk>": 2, "a": 3, "b": 4}))
    found = vocabulary(task("wer"), tmp_path)
    assert found is not None
    assert found.text(np.array([3, 3, 0, 3, 1, 2, 4, 0])) == "aa b"


def test_columns_follow_their_samples_into_batches(tmp_path: Path) -> None:
    """Sorted by shape, and each sample once."""
    entries = [{"x": [0.5] * len(text), "label": len(text), "lang": text[0]}
               for text in ("bbb", "a", "cc", "a", "dddd")]
    samples = read_samples(lines(tmp_path / "d.jsonl", *entries), columns=("label", "lang"))
    accuracy = AccuracyRequest(task=task("mae"), group_by="lang")
    model: Any = SimpleNamespace(tokenize=None, interface=Interface(inputs=(
        TensorSpec(name="x", dtype="float32", shape=("batch", "1..9")),)))
    found = sample_set(check_columns(samples, accuracy, tmp_path), model, batch=2)
    assert found.count == 4
    assert [float(label) for label in labels_of(found.columns)] == [1, 2, 3, 4]
    groups = groups_of(found.columns, "lang")
    assert groups is not None
    assert groups.of_sample == ("a", "c", "b", "d")
    assert queries_of(found.columns) == ()


ANSWERS = np.random.default_rng(2).standard_normal((400, 3))
GROUPS = Groups(by="country", of_sample=("de",) * 300 + ("lu",) * 90 + ("li",) * 10)


def grouped(candidate: np.ndarray[Any, Any], metric: str = "cosine", exam: Exam | None = None) -> Any:
    halves = slice(0, 250), slice(250, None)
    return compare(metric, [{"y": ANSWERS[half]} for half in halves], [{"y": candidate[half]} for half in halves],
                   Beside(groups=GROUPS, tolerance=0.1, exam=exam))


def test_a_group_that_loses_refuses_the_candidate_though_the_mean_is_good() -> None:
    worse = ANSWERS.copy()
    worse[300:390] = 0.7 * worse[300:390] + 0.55 * np.roll(ANSWERS[300:390], 1, axis=0)
    found = grouped(worse)
    assert found.low > 0.9
    assert found.refusal(0.1).startswith("in the group country=lu (90 samples) mean cosine ")
    assert grouped(ANSWERS * 1.001).refusal(0.1) == ""


def test_a_group_too_small_is_told_and_not_judged() -> None:
    worse = ANSWERS.copy()
    worse[390:] *= -1
    found = grouped(worse)
    assert found.refusal(0.1) == ""
    li = next(one for one in found.groups if one.group == "li")
    assert (li.samples, li.too_small, li.accuracy_low) == (10, True, None)
    said = summary("country", found.groups)
    assert said is not None
    assert (said.judged, said.too_small, said.too_small_count) == (2, ("li",), 1)


def test_spearman_of_one_number_is_of_the_groups_own_samples() -> None:
    narrow = ANSWERS[:, :1]
    worse = narrow.copy()
    worse[300:390] *= -1
    parts = [{"y": narrow[:250]}, {"y": narrow[250:]}], [{"y": worse[:250]}, {"y": worse[250:]}]
    found = compare("spearman", *parts, Beside(groups=GROUPS, tolerance=0.25))
    figures = {one.group: one.accuracy for one in found.groups}
    assert figures["de"] == pytest.approx(1)
    assert figures["lu"] == 0


def test_labels_are_held_in_each_group() -> None:
    labels = ANSWERS.argmax(axis=1)
    worse = ANSWERS.copy()
    wrong = np.arange(300, 390, 3)
    worse[wrong] = np.roll(worse[wrong], 1, axis=1)
    exam = Exam(Labels(request=task(), values=tuple(labels)), [{"y": ANSWERS[:250]}, {"y": ANSWERS[250:]}])
    found = grouped(worse, "top1", exam)
    assert found.task.loss == pytest.approx(30 / 400)
    lu = next(one for one in found.groups if one.group == "lu")
    assert lu.task.loss == pytest.approx(30 / 90)
    assert "accuracy" in found.refusal(0.2), "over all samples"


def test_all_names_of_many_small_groups_are_not_listed() -> None:
    of_sample = ["de"] * 30 + [f"g{number:02}" for number in range(20)]
    note = check_groups(AccuracyRequest(tolerance=0.1, group_by="g"), of_sample)
    assert note.endswith("g07 (1) and 12 more")


def test_a_report_has_a_few_of_many_small_groups() -> None:
    large = GroupFigure(group="z", samples=900, accuracy=1.0, accuracy_low=0.99)
    small = [GroupFigure(group=f"g{number:03}", samples=1, too_small=True) for number in range(200)]
    assert reported([*small, large]) == (*small[:50], large)


def test_a_summary_without_any_group_judged() -> None:
    said = summary("g", [GroupFigure(group="a", samples=1, too_small=True)])
    assert said is not None
    assert (said.judged, said.worst) == (0, "")
    assert summary("", []) is None

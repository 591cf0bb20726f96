"""mAP as COCO defines it, by hand and against the definition without short cuts; its bound; labels that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enginewright_builder.accuracy.average_precision import AveragePrecision, _Ranked
from enginewright_builder.accuracy.task import Exam, Labels
from enginewright_builder.contract import AccuracyRequest, TaskRequest
from enginewright_builder.data.files import SampleFile
from enginewright_builder.data.labels import check_columns, labels_of
from enginewright_builder.errors import UserError
from enginewright_builder.same_boxes import overlaps
from enginewright_builder.tensors import Array, Tensors

LEVELS = tuple(0.5 + 0.05 * step for step in range(10))
MAP, AT_HALF = AveragePrecision(overlaps=LEVELS), AveragePrecision(overlaps=(0.5,))
RNG = np.random.default_rng(0)


def answers(rows: Sequence[Sequence[tuple[float, int, list[float]]]], k: int = 5) -> Tensors:
    """Of each image detections (score, class, box)."""
    made = {"scores": np.zeros((len(rows), k), np.float32), "labels": np.full((len(rows), k), -1, np.int32),
            "boxes": np.zeros((len(rows), k, 4), np.float32)}
    for image, found in enumerate(rows):
        for place, (score, number, box) in enumerate(found):
            made["scores"][image, place], made["labels"][image, place] = score, number
            made["boxes"][image, place] = box
    return made


def objects(*rows: list[float]) -> Array:
    return np.array(rows, np.float64).reshape(-1, 5)


def test_a_score_of_nothing_comes_last_among_unsigned_ones() -> None:
    """The better one takes the object that both find."""
    made = answers([[(0, 1, SQUARE), (200, 1, LOW)]])
    found = {**made, "scores": made["scores"].astype(np.uint8)}
    assert AT_HALF.value(AT_HALF.marks(found, [objects([1, *SQUARE])])) == 1.0


SQUARE, FAR = [0.0, 0.0, 10.0, 10.0], [50.0, 50.0, 60.0, 60.0]
# It overlaps with SQUARE by 0.8: found up to 0.8, which are seven of ten.
LOW = [0.0, 0.0, 10.0, 8.0]


@pytest.mark.parametrize(("found", "wanted", "at_half", "mean"), [
    ([[(0.9, 1, SQUARE)]], [objects([1, *SQUARE])], 1.0, 1.0),
    ([[(0.9, 1, LOW)]], [objects([1, *SQUARE])], 1.0, 0.7),
    ([[(0.9, 2, SQUARE)]], [objects([1, *SQUARE])], 0.0, 0.0),
    ([[]], [objects([1, *SQUARE])], 0.0, 0.0),
    # One of two objects: recalls up to 0.5, 51 of 101.
    ([[(0.9, 1, SQUARE)]], [objects([1, *SQUARE], [1, *FAR])], 51 / 101, 51 / 101),
    # A false one of a better score: precision is a half throughout.
    ([[(0.9, 1, FAR), (0.8, 1, SQUARE)]], [objects([1, *SQUARE])], 0.5, 0.5),
    # The same object twice: the second one is false, behind all recalls.
    ([[(0.9, 1, SQUARE), (0.8, 1, SQUARE)]], [objects([1, *SQUARE])], 1.0, 1.0),
    # Ranked over both images: the false one of the second comes between.
    ([[(0.9, 1, SQUARE), (0.3, 1, FAR)], [(0.5, 1, SQUARE)]], [objects([1, *SQUARE], [1, *FAR]), objects()],
     (51 + 50 * 2 / 3) / 101, (51 + 50 * 2 / 3) / 101),
    # The mean over classes that the labels have: 2 is not one of them.
    ([[(0.9, 1, SQUARE), (0.8, 2, FAR)]], [objects([1, *SQUARE], [3, *FAR])], 0.5, 0.5)])
def test_figures_by_hand(found: Any, wanted: list[Array], at_half: float, mean: float) -> None:
    assert AT_HALF.value(AT_HALF.marks(answers(found), wanted)) == pytest.approx(at_half)
    assert MAP.value(MAP.marks(answers(found), wanted)) == pytest.approx(mean)


def scene(images: int, spread: float = 2.0) -> tuple[Tensors, list[Array]]:
    """Objects of three classes, detections near most of them, some false ones."""
    found, wanted = [], []
    for _ in range(images):
        low = RNG.uniform(0, 80, (RNG.integers(0, 5), 2))
        boxes = np.concatenate([low, low + RNG.uniform(8, 20, low.shape)], axis=1)
        classes = RNG.integers(0, 3, len(boxes))
        wanted.append(np.column_stack([classes, boxes]))
        seen = [(float(RNG.uniform(0.1, 1)), int(number if RNG.random() < 0.8 else RNG.integers(0, 3)),
                 list(box + RNG.normal(0, spread, 4))) for number, box in zip(classes, boxes, strict=True)]
        false = RNG.uniform(0, 80, 2)
        found.append([*seen, (float(RNG.uniform(0.1, 1)), int(RNG.integers(0, 3)), [*false, *(false + 12)])])
    return answers(found, k=6), wanted


def by_definition(found: Tensors, wanted: list[Array], least: float) -> float:
    """COCOeval's steps one by one: ranked, matched, interpolated at 101 recalls."""
    areas = []
    for number in np.unique(np.concatenate([one[:, 0] for one in wanted])):
        rows = [(float(found["scores"][image, place]), image, found["boxes"][image, place].astype(np.float64))
                for image in range(len(wanted)) for place in np.argsort(-found["scores"][image], kind="stable")
                if found["labels"][image, place] == number]
        left = {image: [row[1:] for row in one if row[0] == number] for image, one in enumerate(wanted)}
        total, right = sum(map(len, left.values())), []
        for _, image, box in sorted(rows, key=lambda row: -row[0]):
            each = [overlaps(box, other[None])[0] for other in left[image]]
            hit = bool(each) and max(each) >= least
            if hit:
                left[image].pop(int(np.argmax(each)))
            right.append(hit)
        recalls, precisions = [], []
        for count in range(1, len(right) + 1):
            recalls.append(sum(right[:count]) / total)
            precisions.append(sum(right[:count]) / count)
        pairs = list(zip(precisions, recalls, strict=True))
        areas.append(np.mean([max((precision for precision, recall in pairs if recall >= level - 1e-9), default=0.0)
                              for level in np.linspace(0, 1, 101)]))
    return float(np.mean(areas))


@pytest.mark.parametrize("seed", range(5))
def test_the_definition_without_short_cuts(seed: int) -> None:
    del seed
    found, wanted = scene(12)
    value = MAP.value(MAP.marks(found, wanted))
    assert value == pytest.approx(np.mean([by_definition(found, wanted, least) for least in LEVELS]))
    assert 0.05 < value < 0.95


def test_an_image_without_weight_is_an_image_that_is_not_there() -> None:
    found, wanted = scene(20)
    marks = MAP.marks(found, wanted)
    weights = np.ones((3, 20))
    weights[1, :5], weights[2] = 1e-12, 7
    drawn = MAP._weighed(_Ranked(marks, 10), weights)
    assert drawn[0] == pytest.approx(MAP.value(marks)) == pytest.approx(drawn[2])
    assert drawn[1] == pytest.approx(MAP.value(marks[5:]))
    assert drawn[1] != pytest.approx(drawn[0])


def exam(found: Tensors, wanted: Sequence[Array], metric: str = "map", output: str = "") -> Exam:
    request = TaskRequest(metric=metric, labels="objects", tolerance=0.05, output=output)
    return Exam(Labels(request=request, values=tuple(wanted)), [found])


def test_the_gate_sees_what_is_lost() -> None:
    found, wanted = scene(200, 0.3)
    one = exam(found, wanted)
    worse = {**found, "labels": np.where(np.arange(200)[:, None] % 4 == 0, -1, found["labels"]).astype(np.int32)}
    figures = []
    for candidate in (found, worse):
        figure = one.figure(one.units([one.marks(0, candidate)]))
        assert figure is not None
        assert figure.source == pytest.approx(MAP.value(MAP.marks(found, wanted)))
        figures.append(figure)
    same, lost = figures
    assert same.loss == 0
    assert 0 < same.loss_high <= 0.05
    assert lost.loss > 0.05
    assert lost.loss_high > lost.loss
    some = one.figure(one.units([one.marks(0, worse)]), np.arange(0, 200, 2))
    assert some is not None
    assert some.loss > lost.loss


def test_a_group_without_objects_loses_nothing() -> None:
    found, wanted = scene(200)
    one = exam(found, [*wanted[:100], *[objects()] * 100])
    figure = one.figure(one.units([one.marks(0, found)]), np.arange(100, 200))
    assert figure is not None
    assert (figure.source, figure.loss) == (0.0, 0.0)


@pytest.mark.parametrize(("metric", "output", "named", "told"), [
    ("accuracy", "", "scores", "is not of detections"),
    ("map", "", "logits", "takes detections, and the model answers"),
    ("map50", "other", "scores", "needs scores, labels and boxes together")])
def test_metrics_that_do_not_fit_are_refused(metric: str, output: str, named: str, told: str) -> None:
    found, wanted = scene(4)
    given = {**found, "other": found["scores"]} if named == "scores" else {"logits": found["scores"]}
    with pytest.raises(UserError, match=told) as caught:
        exam(given, wanted, metric, output)
    assert caught.value.reason == "TaskInvalid"
    assert caught.value.remedy


def column(values: Sequence[Any], folder: Path, names: str = "") -> tuple[Any, ...]:
    (folder / "config.json").write_text(names or "{}")
    rows = tuple({"image": np.zeros(1)} for _ in values)
    file = SampleFile(rows=rows, columns={"objects": tuple(values)})
    task = TaskRequest(metric="map", labels="objects")
    return labels_of(check_columns(file, AccuracyRequest(task=task), folder).columns)


def test_objects_are_lists_or_rows_of_an_array(tmp_path: Path) -> None:
    names = '{"label2id": {"cat": 0, "dog": 3}}'
    listed = column([[["dog", 1, 2, 3, 4], [0, 5, 5, 6, 7.5]], []], tmp_path, names)
    np.testing.assert_array_equal(listed[0], objects([3, 1, 2, 3, 4], [0, 5, 5, 6, 7.5]))
    assert listed[1].shape == (0, 5)
    filled = np.array([[[3, 1, 2, 3, 4], [-100, 0, 0, 0, 0]]], np.float32)
    np.testing.assert_array_equal(column(list(filled), tmp_path)[0], objects([3, 1, 2, 3, 4]))


@pytest.mark.parametrize(("value", "told"), [
    ([[1, 2, 3, 4]], "an object is"), (7, "an object is 7"), ([["cow", 1, 2, 3, 4]], "class 'cow' is not one"),
    ([[9, 1, 2, 3, 4]], "class 9 is unknown"), ([[0, 5, 2, 3, 4]], "an object is"),
    ([[0.5, 1, 2, 3, 4]], "an object is"), ([[0, 1, 2, float("nan"), 4]], "an object is"),
    ([], "no sample has an object")])
def test_objects_that_are_none_are_refused(value: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told) as caught:
        column([value], tmp_path, '{"label2id": {"cat": 0, "dog": 3}}')
    assert (caught.value.reason, caught.value.field) == ("LabelsInvalid", "spec.accuracy.task.labels")
    assert caught.value.remedy

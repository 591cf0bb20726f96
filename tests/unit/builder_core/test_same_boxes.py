"""Detections are compared as sets: order and ties refuse no sound engine, and what is wrong shows whatever the
metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.accuracy.gate import compare
from enginewright_builder.accuracy.scores import SCORES
from enginewright_builder.errors import UserError
from enginewright_builder.export import _compare
from enginewright_builder.quality.window import Window
from enginewright_builder.same_boxes import agreements, are_detections, overlaps
from enginewright_builder.tensors import Array, Tensors
from enginewright_builder.triton.prove import difference_of, similarity_of

RNG = np.random.default_rng(0)
SAMPLES, K = 400, 12


def detections(samples: int = SAMPLES, k: int = K) -> Tensors:
    """Up to ``k`` of each image of 640 × 480, some of them none."""
    scores = -np.sort(-RNG.uniform(0.05, 1, (samples, k)), axis=1)
    there = np.arange(k) < RNG.integers(0, k + 1, samples)[:, None]
    low = RNG.uniform(0, 400, (samples, k, 2))
    boxes = np.concatenate([low, low + RNG.uniform(8, 200, (samples, k, 2))], axis=-1)
    return {"scores": np.where(there, scores, 0).astype(np.float32),
            "labels": np.where(there, RNG.integers(0, 9, (samples, k)), -1).astype(np.int32),
            "boxes": np.where(there[:, :, None], boxes, 0).astype(np.float32)}


RIGHT = detections()


def changed(**by: Callable[[Array], Array]) -> Tensors:
    return {**RIGHT, **{name: change(RIGHT[name]).astype(RIGHT[name].dtype) for name, change in by.items()}}


def turned(boxes: Array) -> Array:
    return boxes[..., [1, 0, 3, 2]]


def about_their_centres(boxes: Array) -> Array:
    centre, half = (boxes[..., :2] + boxes[..., 2:]) / 2, (boxes[..., 2:] - boxes[..., :2]) / 2
    return np.concatenate([centre - 1.02 * half, centre + 1.02 * half], axis=-1)


SABOTAGED = {
    "boxes 2 % larger": changed(boxes=lambda one: one * 1.02),
    "boxes 2 % larger about their centres": changed(boxes=about_their_centres),
    "labels swapped": changed(labels=lambda one: np.where(one == 0, 1, np.where(one == 1, 0, one))),
    "x for y": changed(boxes=turned),
    "another sample's boxes": changed(boxes=lambda one: np.roll(one, 1, axis=0)),
    "the best of each sample missing": changed(labels=lambda one: np.where(np.arange(K) == 0, -1, one)),
    "scores of other boxes": changed(boxes=lambda one: one[:, ::-1], labels=lambda one: one[:, ::-1]),
}


@pytest.mark.parametrize("metric", sorted(SCORES))
@pytest.mark.parametrize("candidate", SABOTAGED.values(), ids=SABOTAGED)
def test_wrong_detections_are_refused(metric: str, candidate: Tensors) -> None:
    assert not compare(metric, [RIGHT], [candidate]).passes(0.02)
    assert compare(metric, [RIGHT], [RIGHT]).passes(0.02)


def test_order_does_not_count() -> None:
    """Two detections whose scores are all but equal change places in another precision."""
    close = {**RIGHT, "scores": RIGHT["scores"].copy()}
    both = RIGHT["labels"][:, 1] >= 0
    close["scores"][both, 1] = close["scores"][both, 0]
    order = np.r_[1, 0, 2:K]
    swapped = {name: np.where(both.reshape(-1, *[1] * (array.ndim - 1)), array[:, order], array)
               for name, array in close.items()}
    np.testing.assert_array_equal(agreements(close, swapped), 1.0)
    assert compare("cosine", [close], [swapped]).passes(0.02)
    assert not np.array_equal(close["labels"], swapped["labels"])


def test_the_rounding_of_half_precision_passes() -> None:
    """As of boxes that are shares of the image, in FP16, before they become pixels."""
    rounded = changed(scores=lambda one: one.astype(np.float16),
                      boxes=lambda one: (one / 640).astype(np.float16).astype(np.float32) * 640)
    assert compare("cosine", [RIGHT], [rounded]).passes(0.01)


def pair(scores: list[float], labels: list[int], boxes: Sequence[Sequence[float]]) -> Tensors:
    return {"scores": np.array([scores], np.float32), "labels": np.array([labels], np.int32),
            "boxes": np.array([boxes], np.float32)}


SQUARE, OTHER, BLANK = [0, 0, 10, 10], [50, 50, 60, 60], [0, 0, 0, 0]


@pytest.mark.parametrize(("candidate", "expected"), [
    (pair([0.8, 0.2], [1, 2], [SQUARE, OTHER]), 1.0),
    (pair([0.8, 0.2], [1, 2], [OTHER, SQUARE]), 0.0),
    (pair([0.8, 0.0], [1, -1], [SQUARE, BLANK]), 2 * 0.8 / 1.8),
    (pair([0.8, 0.2], [1, 3], [SQUARE, OTHER]), 0.8),
    (pair([0.4, 0.2], [1, 2], [SQUARE, OTHER]), 2 * 0.6 / 1.6),
    (pair([0.8, 0.2], [1, 2], [[0, 0, 10, 8], OTHER]), 0.8 * 0.8 + 0.2),
    (pair([0.8, 0.2], [1, 2], [[0, 0, 10, 4], OTHER]), 0.2),
    (pair([0.0, 0.0], [-1, -1], [BLANK, BLANK]), 0.0)])
def test_the_formula_by_hand(candidate: Tensors, expected: float) -> None:
    wanted = pair([0.8, 0.2], [1, 2], [SQUARE, OTHER])
    assert agreements(wanted, candidate)[0] == pytest.approx(expected, abs=1e-6)
    assert agreements(candidate, wanted)[0] == pytest.approx(expected, abs=1e-6)


def test_two_that_see_nothing_agree() -> None:
    nothing = pair([0.0], [-1], [BLANK])
    assert agreements(nothing, nothing)[0] == 1.0
    assert agreements(nothing, pair([0.3], [2], [SQUARE]))[0] == 0.0


@given(st.lists(st.integers(0, 30), min_size=8, max_size=8))
def test_an_overlap_is_symmetric_and_a_share(corners: list[int]) -> None:
    one, other = np.array(corners[:4], np.float64), np.array(corners[4:], np.float64)
    for box in (one, other):
        box[2:] += box[:2]
    there, back = overlaps(one, other[None])[0], overlaps(other, one[None])[0]
    assert there == pytest.approx(back)
    assert 0 <= there <= 1


@pytest.mark.parametrize(("by", "told"), [
    ({}, True), ({"labels": np.zeros((2, 3), np.int64)}, False), ({"boxes": np.zeros((2, 3, 5), np.float32)}, False),
    ({"scores": np.zeros((2, 4), np.float32)}, False)])
def test_they_are_known_by_name_type_and_shape(by: Tensors, told: bool) -> None:
    assert are_detections({"scores": np.zeros((2, 3), np.float32), "labels": np.zeros((2, 3), np.int32),
                           "boxes": np.zeros((2, 3, 4), np.float32), **by}) is told


def test_export_proof_and_monitor_compare_them_so_too() -> None:
    wrong = SABOTAGED["labels swapped"]
    missed = 1 - agreements(RIGHT, wrong).mean()
    for name in ("labels", "boxes"):
        assert difference_of(name, RIGHT, RIGHT) == pytest.approx(0.0)
        assert difference_of(name, wrong, RIGHT) == pytest.approx(missed)
        assert similarity_of(name, wrong, RIGHT) == pytest.approx(1 - missed)
    assert difference_of("boxes", {}, RIGHT) == np.inf
    _compare("boxes", SAMPLES, RIGHT, RIGHT)
    with pytest.raises(UserError, match="labels"):
        _compare("labels", SAMPLES, RIGHT, wrong)
    window = Window("cosine", 10)
    assert window.add(RIGHT, RIGHT)
    assert window.add(RIGHT, wrong)
    assert list(window.scores) == [pytest.approx(1.0), pytest.approx(1 - missed, abs=0.02)]


def test_an_answer_that_is_no_number_agrees_with_nothing() -> None:
    broken = {**RIGHT, "boxes": np.full_like(RIGHT["boxes"], np.nan)}
    assert agreements(RIGHT, broken)[RIGHT["labels"][:, 0] >= 0].max() == 0.0

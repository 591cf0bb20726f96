"""The best few classes beside their scores: the gate and all that compares answers let near ties change places, and
see wrong classes that come with right scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from enginewright_builder.accuracy.gate import compare
from enginewright_builder.accuracy.scores import SCORES
from enginewright_builder.accuracy.task import Exam, Labels
from enginewright_builder.best_few import NEAR_TIE, are_best, found_share
from enginewright_builder.contract import PostprocessStep, TaskRequest
from enginewright_builder.errors import UserError
from enginewright_builder.export import _compare
from enginewright_builder.ids import equal_share
from enginewright_builder.names import missed_share
from enginewright_builder.postprocess import applied
from enginewright_builder.quality.window import Window
from enginewright_builder.tensors import Array, Tensors
from enginewright_builder.triton.prove import difference_of, similarity_of

RNG = np.random.default_rng(0)
# Of a classifier that is sure: a few classes stand out.
LOGITS = (RNG.standard_normal((400, 100)) + 6 * (RNG.random((400, 100)) < 0.08)).astype(np.float32)
K = 5


def best(logits: Array, k: int = K) -> Tensors:
    step = PostprocessStep(output="logits", function="topK", k=k)
    return applied((step,), {}, {"logits": logits})


RIGHT = best(LOGITS)


def with_classes(change: Callable[[Array], Array]) -> Tensors:
    """Other classes with the right scores."""
    return {**RIGHT, "logits_indices": change(RIGHT["logits_indices"]).astype(np.int32)}


def last_changed(classes: Array) -> Array:
    return np.concatenate([classes[:, :-1], classes[:, -1:] + 100], axis=1)


def in_every_tenth(classes: Array) -> Array:
    return np.where(np.arange(len(classes))[:, None] % 10 == 0, classes[:, ::-1], classes)


SABOTAGED = {"the next class": lambda classes: (classes + 1) % 100, "backwards": lambda classes: classes[:, ::-1],
             "another sample's": lambda classes: np.roll(classes, 1, axis=0),
             "the best one throughout": lambda classes: np.repeat(classes[:, :1], K, axis=1),
             "first and second swapped": lambda classes: classes[:, [1, 0, 2, 3, 4]],
             "the last one wrong": last_changed, "a tenth of them backwards": in_every_tenth}


@pytest.mark.parametrize("metric", sorted(SCORES))
@pytest.mark.parametrize("change", SABOTAGED.values(), ids=SABOTAGED)
def test_right_scores_of_wrong_classes_are_refused(metric: str, change: Callable[[Array], Array]) -> None:
    found = compare(metric, [RIGHT], [with_classes(change)])
    assert not found.passes(0.02)
    assert f"mean {metric}" in found.refusal(0.02)
    assert compare(metric, [RIGHT], [RIGHT]).passes(0.02)


def test_right_classes_with_wrong_scores_are_refused() -> None:
    assert not compare("cosine", [RIGHT], [{**RIGHT, "logits": 2 * RIGHT["logits"]}]).passes(0.02)
    assert not compare("relative-error", [RIGHT], [{**RIGHT, "logits": RIGHT["logits"] - 1}]).passes(0.02)


def test_near_ties_change_places() -> None:
    """In half precision they do, where a comparison place by place refuses the engine."""
    close = LOGITS.copy()
    close[:, 1] = close.max(axis=1) + 0.01
    close[:, 0] = close[:, 1] + 1e-4
    nudged = close.copy()
    nudged[:, 0] -= 2e-4
    reference, candidate = best(close), best(nudged)
    by_place = equal_share(reference["logits_indices"], candidate["logits_indices"])
    assert by_place.max() == 1 - 2 / K
    assert compare("cosine", [reference], [candidate]).passes(0.02)
    assert missed_share("logits_indices", reference, candidate) == 0.0


def rounded(values: Array, axis: int) -> Array:
    """To eight bits."""
    steps = np.abs(values).max(axis=axis, keepdims=True) / 127
    near: Array = np.round(values / steps) * steps
    return near


def test_low_precision_loses_about_as_much_as_with_the_best_class() -> None:
    """And several times as much place by place."""
    values, weights = RNG.standard_normal((1000, 512)), RNG.standard_normal((512, 1000)) / 16
    exact, low = values @ weights, rounded(values, 1) @ rounded(weights, 0)
    reference, candidate = best(exact)["logits_indices"], best(low)["logits_indices"]
    flipped = 1 - equal_share(reference[:, :1], candidate[:, :1]).mean()
    by_place = 1 - equal_share(reference, candidate).mean()
    missed = missed_share("logits_indices", best(exact), best(low))
    assert missed is not None
    assert 0 < missed < 2 * flipped
    assert by_place > 3 * missed


def test_what_falls_out_at_the_end_counts_as_one_class() -> None:
    """Also by a near tie: of the class in its place the source gives no score."""
    wrong = with_classes(last_changed)
    np.testing.assert_allclose(found_share("logits_indices", RIGHT, wrong["logits_indices"]), 1 - 1 / K)


@pytest.mark.parametrize(("gap", "found"), [(0.5 * NEAR_TIE, 1.0), (2 * NEAR_TIE, 0.0)])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_a_near_tie_is_a_share_of_the_largest_score(gap: float, found: float, size: float) -> None:
    reference = {"a": np.array([[size, size * (1 - gap)]]), "a_indices": np.array([[3, 7]], np.int32)}
    assert found_share("a_indices", reference, np.array([[7, 3]], np.int32)) == [found]


def test_what_is_infinite_is_no_near_tie() -> None:
    reference = {"a": np.array([[np.inf, 1.0, -np.inf, -np.inf]]), "a_indices": np.array([[0, 1, 2, 3]], np.int32)}
    for got, share in (([0, 1, 2, 3], 1.0), ([0, 1, 3, 2], 1.0), ([1, 0, 2, 3], 0.5), ([0, 2, 1, 3], 0.5)):
        assert found_share("a_indices", reference, np.array([got], np.int32)) == [share]


@given(arrays.arrays(np.int32, st.tuples(st.integers(1, 6), st.just(1)), elements=st.integers(0, 2)))
def test_of_one_class_it_is_how_many_are_equal(got: Array) -> None:
    """As of ``argMax``."""
    classes = np.ones_like(got)
    reference = {"a": np.ones((len(got), 1)), "a_indices": classes}
    np.testing.assert_array_equal(found_share("a_indices", reference, got), equal_share(classes, got))


@given(arrays.arrays(np.float64, (3, 8), elements=st.integers(-4, 4)), st.permutations(range(5)))
def test_a_share_is_between_nothing_and_all(logits: Array, order: list[int]) -> None:
    reference = best(logits)
    shares = found_share("logits_indices", reference, reference["logits_indices"][:, order])
    assert ((shares >= 0) & (shares <= 1)).all()
    np.testing.assert_array_equal(found_share("logits_indices", reference, reference["logits_indices"]), 1.0)


@pytest.mark.parametrize(("changed", "told"), [
    ({}, True), ({"a": np.zeros((2, 4), np.float32)}, False), ({"a": np.zeros((2, 3), np.int32)}, False),
    ({"a_indices": np.zeros((2, 3), np.int64)}, False), ({"a_indices": np.zeros((2, 3), np.float32)}, False)])
def test_they_are_known_by_name_and_type(changed: Tensors, told: bool) -> None:
    answers = {"a": np.zeros((2, 3), np.float32), "a_indices": np.zeros((2, 3), np.int32), **changed}
    assert are_best("a_indices", answers) is told
    assert not are_best("a", answers)
    assert not are_best("b_indices", answers)


def test_export_proof_and_monitor_compare_them_so_too() -> None:
    name, swapped, wrong = "logits_indices", best(LOGITS + np.float32(1e-6)), with_classes(lambda one: one + 1)
    share = missed_share(name, RIGHT, wrong)
    assert share is not None
    for got, missed in ((swapped, 0.0), (wrong, share)):
        assert difference_of(name, {name: got[name].ravel()}, RIGHT) == missed
        assert similarity_of(name, got, RIGHT) == 1 - missed
    assert difference_of(name, {}, RIGHT) == np.inf
    _compare(name, 400, RIGHT, swapped)
    with pytest.raises(UserError, match="logits_indices"):
        _compare(name, 400, RIGHT, wrong)
    window = Window("cosine", 10)
    assert window.add(RIGHT, RIGHT)
    assert window.add(RIGHT, wrong)
    assert window.scores[0] == pytest.approx(1.0)
    assert window.scores[1] == pytest.approx(1 - share)


# Labels, 60 % of which are the best class; some samples have none.
WANTED = np.where(RNG.random(400) < 0.6, LOGITS.argmax(axis=1), RNG.integers(0, 100, 400))
WANTED[::50] = -100


def exam(metric: str, answers: Tensors, output: str = "", labels: Sequence[Any] = tuple(WANTED)) -> Exam:
    request = TaskRequest(metric=metric, labels="label", tolerance=0.1, output=output)
    halves = [{name: array[part] for name, array in answers.items()} for part in (slice(150), slice(150, None))]
    return Exam(Labels(request=request, values=tuple(map(np.asarray, labels))), halves)


@pytest.mark.parametrize("output", ["logits", "logits_indices", ""])
@pytest.mark.parametrize("metric", ["accuracy", "top5", "f1-macro", "f1-micro"])
def test_labels_say_the_same_of_the_best_few_as_of_all_scores(metric: str, output: str) -> None:
    """Of a sound candidate and of one that is wrong in a tenth of the samples."""
    of_all, of_best = exam(metric, {"logits": LOGITS}), exam(metric, RIGHT, output)
    assert of_best.output == "logits_indices"
    shifted = LOGITS.copy()
    shifted[::10] = np.roll(shifted[::10], 7, axis=1)
    for logits in (LOGITS, shifted):
        figures = []
        for one, answers in ((of_all, {"logits": logits}), (of_best, best(logits))):
            parts = [{name: array[part] for name, array in answers.items()}
                     for part in (slice(150), slice(150, None))]
            figures.append(one.figure(one.units([one.marks(index, part) for index, part in enumerate(parts)])))
        scored, picked = figures
        assert scored is not None
        assert picked is not None
        assert 0 < picked.source < 1
        assert picked.source == pytest.approx(scored.source)
        assert picked.value == pytest.approx(scored.value)
        assert (picked.loss > 0) == (logits is shifted)


def test_a_class_that_nobody_knows_is_a_wrong_one() -> None:
    """F1 over all counts is the share of right ones, whatever the wrong ones are called."""
    classes = np.array([[number % 4, 9] for number in range(400)], np.int32)
    few = {"a": np.array([[2.0, 1.0]] * 400), "a_indices": classes}
    one = exam("f1-micro", few, labels=[number % 4 for number in range(400)])
    odd = {**few, "a_indices": np.where(np.arange(400)[:, None] % 10 == 0, 77, classes).astype(np.int32)}
    parts = [{name: array[part] for name, array in odd.items()} for part in (slice(150), slice(150, None))]
    found = one.figure(one.units([one.marks(index, part) for index, part in enumerate(parts)]))
    assert found is not None
    assert found.source == 1.0
    assert found.value == pytest.approx(0.9)


@pytest.mark.parametrize(("metric", "k", "labels", "field", "told"), [
    ("ndcg", 5, WANTED, "metric", "takes the scores of all classes, and logits_indices has the best 5 classes"),
    ("mae", 5, WANTED, "metric", "takes the scores of all classes"),
    ("top5", 3, WANTED, "metric", "looks among the best 5 classes, and logits_indices has 3"),
    ("f1-macro", 5, np.eye(100)[WANTED].astype(int), "labels", "the label has shape [100]"),
    ("accuracy", 5, np.where(WANTED > 0, WANTED, -1), "labels", "class -1 is unknown to logits_indices")])
def test_labels_that_the_best_few_do_not_answer_are_refused(metric: str, k: int, labels: Array, field: str,
                                                            told: str) -> None:
    with pytest.raises(UserError) as caught:
        exam(metric, best(LOGITS, k), labels=tuple(labels))
    assert caught.value.field == f"spec.accuracy.task.{field}"
    assert told in caught.value.message
    assert caught.value.remedy

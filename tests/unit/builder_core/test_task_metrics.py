"""Metrics on labels against examples by hand and against scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sklearn  # type: ignore[import-untyped]

from enginewright_builder.accuracy.scores import usual_threshold
from enginewright_builder.accuracy.task_metrics import (
    F1,
    Among,
    Deviation,
    Ndcg,
    TaskMetric,
    TopK,
    Wer,
    ndcg,
    word_errors,
)
from enginewright_builder.accuracy.vocabulary import Vocabulary

RNG = np.random.default_rng(5)


def of(metric: TaskMetric, output: Any, labels: Sequence[Any]) -> float:
    marks = metric.marks(np.asarray(output), labels)
    return float(metric.value(np.asarray(marks.sum(axis=0), float).ravel()))


def test_accuracy_by_hand() -> None:
    assert of(TopK(), [[1, 2], [3, 0], [0, 1], [0, 1]], [1, 0, 0, 1]) == 0.75


def test_accuracy_of_one_number_is_by_its_threshold() -> None:
    assert of(TopK(threshold=0.5), [[0.6], [0.4], [0.9]], [1, 0, 0]) == pytest.approx(2 / 3)
    assert of(TopK(), [0.6, -0.4], [1, 0]) == 1


def test_positions_without_a_label_do_not_count() -> None:
    output = np.eye(3)[[[0, 1, 2], [2, 2, 2]]]
    assert of(TopK(), output, [[0, 1, -100], [2, 0, -100]]) == 0.75


@pytest.mark.parametrize("k", [1, 5])
def test_top_k_is_scikit_learns(k: int) -> None:
    output, labels = RNG.standard_normal((300, 12)), RNG.integers(0, 12, 300)
    wanted = sklearn.top_k_accuracy_score(labels, output, k=k, labels=range(12))
    assert of(TopK(k=k), output, list(labels)) == pytest.approx(wanted)


def test_a_label_among_the_best_few_by_hand() -> None:
    """The third sample has no label; of the last one the label is third."""
    best, labels = [[4, 2, 0], [1, 0, 3], [0, 1, 2], [5, 6, 7]], [2, 2, -100, 7]
    assert of(Among(k=2), best, labels) == pytest.approx(1 / 3)
    assert of(Among(k=3), best, labels) == pytest.approx(2 / 3)


@pytest.mark.parametrize("average", ["macro", "micro"])
def test_f1_of_one_class_each_is_scikit_learns(average: str) -> None:
    """Class 6 is answered, and no label has it: macro is of the classes that the labels have."""
    output, labels = RNG.standard_normal((300, 7)), RNG.integers(0, 6, 300)
    present = tuple(range(6))
    asked = present if average == "macro" else None
    wanted = sklearn.f1_score(labels, output.argmax(axis=1), average=average, labels=asked)
    metric = F1(classes=7, present=present, macro=average == "macro")
    assert of(metric, output, list(labels)) == pytest.approx(wanted)


@pytest.mark.parametrize("average", ["macro", "micro"])
def test_f1_of_several_classes_is_scikit_learns(average: str) -> None:
    output, labels = RNG.standard_normal((200, 5)), RNG.integers(0, 2, (200, 5))
    wanted = sklearn.f1_score(labels, output > 0, average=average)
    metric = F1(classes=5, present=tuple(range(5)), macro=average == "macro", several=True)
    assert of(metric, output, list(labels)) == pytest.approx(wanted)


def test_f1_of_tokens_leaves_out_what_has_no_label() -> None:
    output, labels = RNG.standard_normal((20, 9, 4)), RNG.integers(0, 4, (20, 9))
    labels[:, 6:] = -100
    wanted = sklearn.f1_score(labels[:, :6].ravel(), output[:, :6].argmax(axis=-1).ravel(), average="macro")
    assert of(F1(classes=4, present=(0, 1, 2, 3), macro=True), output, list(labels)) == pytest.approx(wanted)


def test_f1_of_yes_or_no() -> None:
    labels, output = [1, 1, 0, 0], [[0.9], [0.2], [0.8], [0.1]]
    assert of(F1(classes=2, present=(0, 1), macro=True, threshold=0.5), output, labels) == pytest.approx(0.5)


def test_ndcg_is_scikit_learns_with_gains_as_powers_of_two() -> None:
    scores, gains = RNG.standard_normal((40, 25)), RNG.integers(0, 4, (40, 25)).astype(float)
    wanted = sklearn.ndcg_score(2 ** gains - 1, scores, k=10)
    assert of(Ndcg(), scores, list(gains)) == pytest.approx(wanted)


def test_ndcg_by_hand() -> None:
    """The relevant one of three stands second: 1 / log2(3)."""
    value, counts = ndcg(np.array([3.0, 2.0, 1.0]), np.array([0.0, 1.0, 0.0]))
    assert value == pytest.approx(0.63092975)
    assert counts == 1
    assert ndcg(np.array([3.0, 2.0]), np.zeros(2)) == (0, 0), "nothing to find"


@pytest.mark.parametrize(("wanted", "heard", "errors"), [
    ("the cat sat", "the cat sat", 0), ("the cat sat", "the bat sat down", 2), ("the cat", "", 2), ("a", "b a c", 2),
    ("kitten sitting on", "sitting on kitten", 2),
])
def test_word_errors_by_hand(wanted: str, heard: str, errors: int) -> None:
    assert word_errors(wanted.split(), heard.split()) == errors


def test_word_error_rate_is_over_all_words() -> None:
    vocabulary = Vocabulary(tokens=("", "|", "A", "B"), blank=0)
    # A A blank A | B  is "AA B"; B is "B"
    output = np.eye(4)[[[2, 2, 0, 2, 1, 3], [3, 3, 3, 0, 0, 0]]]
    assert of(Wer(vocabulary=vocabulary), output, ["AA B", "A"]) == pytest.approx(1 / 3)


@pytest.mark.parametrize(("squared", "wanted"), [(False, sklearn.mean_absolute_error),
                                                 (True, sklearn.root_mean_squared_error)])
def test_errors_of_numbers_are_scikit_learns(squared: bool, wanted: Any) -> None:
    output, labels = RNG.standard_normal((100, 1)), RNG.standard_normal(100)
    assert of(Deviation(squared=squared), output, list(labels)) == pytest.approx(wanted(labels, output[:, 0]))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int8", "float16", "float32"])
def test_the_best_of_scores_of_any_type_come_first(dtype: str) -> None:
    """The lowest number of a type comes last, which is its own negative where there is no other."""
    low = np.iinfo(dtype).min if dtype == "int8" else 0
    output = np.array([[low, 9, 8, 7, 6, 5, 4], [9, low, 5, 6, 7, 8, 1]]).astype(dtype)
    labels = [np.int64(0), np.int64(1)]
    assert of(TopK(k=5), output, labels) == 0.0
    assert of(TopK(k=5), output, [np.int64(5), np.int64(2)]) == 1.0


def test_the_usual_threshold_is_of_probabilities_or_of_logits() -> None:
    assert usual_threshold([np.array([0.0, 1.0]), np.array([0.3])]) == 0.5
    assert usual_threshold([np.array([0.0, 1.0]), np.array([1.3])]) == 0.0

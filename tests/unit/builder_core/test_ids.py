"""Numbers of classes have no more or less: the gate, the quality monitor and all that compares answers count how many
are equal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from enginewright_builder.accuracy.gate import compare
from enginewright_builder.accuracy.scores import SCORES
from enginewright_builder.accuracy.task import Exam, Labels
from enginewright_builder.contract import TaskRequest
from enginewright_builder.errors import UserError
from enginewright_builder.export import largest_difference
from enginewright_builder.ids import are_ids, equal_share
from enginewright_builder.quality.window import Window
from enginewright_builder.tensors import Array
from enginewright_builder.triton.prove import difference

CLASSES = np.random.default_rng(0).integers(1, 1000, (400, 1)).astype(np.int32)


def other(array: Array, share: float) -> Array:
    """The next class for so many of the samples."""
    changed = array.copy()
    changed[:round(share * len(array))] += 1
    return changed


@pytest.mark.parametrize(("dtype", "ids"), [
    ("int32", True), ("int64", True), ("uint32", True), ("bool", True), ("uint8", False), ("int8", False),
    ("int16", False), ("float32", False), ("float16", False), ("object", True)])
def test_by_type_it_is_a_name_or_an_amount(dtype: str, ids: bool) -> None:
    assert are_ids(np.zeros(1, dtype)) is ids


@pytest.mark.parametrize("metric", sorted(SCORES))
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_gate_counts_those_that_are_equal(metric: str, share: float) -> None:
    """To a cosine each of these engines is perfect."""
    found = compare(metric, [{"class": CLASSES}], [{"class": other(CLASSES, share)}])
    assert found.value == pytest.approx(1 - share)
    assert found.passes(0.02) is (share == 0)
    assert (found.magnitude_low, found.drowned) == (1.0, 0.0)


def test_the_worst_output_counts() -> None:
    vectors = np.random.default_rng(1).standard_normal((400, 8)).astype(np.float32)
    for candidate, value in (({"class": other(CLASSES, 0.5), "vector": vectors}, 0.5),
                             ({"class": CLASSES, "vector": -vectors}, 0.0)):
        found = compare("cosine", [{"class": CLASSES, "vector": vectors}], [candidate])
        assert found.value == pytest.approx(value)


@given(arrays.arrays(np.int64, st.tuples(st.integers(1, 5), st.integers(0, 4), st.integers(0, 4)),
                     elements=st.integers(0, 2)))
def test_a_share_is_of_each_samples_own_entries(array: Array) -> None:
    changed = array.copy()
    changed[0] = changed[0] + 1
    shares = equal_share(array, changed)
    assert shares[0] == (0.0 if array[0].size else 1.0)
    assert (shares[1:] == 1.0).all()


def test_differences_are_shares_too() -> None:
    assert largest_difference(CLASSES, other(CLASSES, 0.25)) == 0.25
    assert difference(other(CLASSES, 0.25).ravel(), CLASSES) == 0.25
    assert difference(CLASSES, CLASSES) == 0.0


def test_the_quality_monitor_counts_them_as_well() -> None:
    window = Window("cosine", 10)
    assert window.add({"class": CLASSES[:4]}, {"class": other(CLASSES[:4], 0.5)})
    assert list(window.scores) == [0.5]


def exam(metric: str, labels: Array, answers: Array) -> Exam:
    request = TaskRequest(metric=metric, labels="label", tolerance=0.1)
    return Exam(Labels(request=request, values=tuple(labels)), [{"class": answers}])


@pytest.mark.parametrize("metric", ["accuracy", "f1-macro", "f1-micro"])
@pytest.mark.parametrize("shape", [(400, 1), (100, 2, 2)], ids=["a class each", "a map"])
def test_labels_are_held_against_the_class_itself(metric: str, shape: tuple[int, ...]) -> None:
    """Of 1,000 classes; a threshold would call each of them a yes."""
    answers = (CLASSES % 7).reshape(shape)
    labels = answers.reshape(-1) if shape[1:] == (1,) else answers
    found = exam(metric, labels, answers)
    same, half = ([found.marks(0, {"class": other(answers, share)})] for share in (0.0, 0.5))
    assert found.figure(found.units(same)).value == 1.0  # type: ignore[union-attr]
    assert found.figure(found.units(half)).value < 0.7  # type: ignore[union-attr]


@pytest.mark.parametrize(("metric", "labels", "reason", "told"), [
    ("top5", CLASSES.ravel(), "TaskInvalid", "leave argMax out"),
    ("accuracy", np.full(400, -5), "LabelsInvalid", "from 0 on"),
    ("accuracy", np.zeros((400, 3), np.int64), "LabelsInvalid", "one class for each position"),
], ids=["scores", "negative", "several"])
def test_what_does_not_fit_is_refused(metric: str, labels: Array, reason: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        exam(metric, labels, CLASSES)
    assert caught.value.reason == reason
    assert told in caught.value.remedy

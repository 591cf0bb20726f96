"""Scores of live requests: the gate's own, what scores nothing, and what must not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.accuracy.gate import compare
from enginewright_builder.accuracy.scores import Usual, norms, typical_norm
from enginewright_builder.quality.kept import usual_answers
from enginewright_builder.quality.window import Window
from enginewright_builder.tensors import Array, Tensors

DICE = np.random.default_rng(5)
ROWS = 16
ANSWERS = DICE.standard_normal((ROWS, 6)).astype(np.float32)
NOISE = (0.02 * DICE.standard_normal(ANSWERS.shape)).astype(np.float32)
TYPICAL = {"y": Usual(size=float(np.median(norms(ANSWERS))))}
FOUR = ["cosine", "relative-error", "top1", "spearman"]


def scores(reference: Array, answer: Array, metric: str = "cosine", *, together: bool = False) -> list[float]:
    """One request for each row, or for all of them together."""
    found = Window(metric, 1000, TYPICAL)
    size = len(reference) if together else 1
    for row in range(0, len(reference), size):
        found.add({"y": reference[row:row + size]}, {"y": answer[row:row + size]})
    return list(found.scores)


@pytest.mark.parametrize("metric", FOUR)
def test_scores_are_those_of_the_gate(metric: str) -> None:
    gate = compare(metric, [{"y": ANSWERS}], [{"y": ANSWERS + NOISE}])
    assert scores(ANSWERS, ANSWERS + NOISE, metric) == pytest.approx(gate.scores)


def test_a_single_number_is_held_against_the_level_that_the_gate_took() -> None:
    """Most are next to nothing, and none of them is of another size for being off by as little."""
    answers = np.array([[0.001], [0.9], [0.003], [0.002]])
    gate = compare("cosine", [{"y": answers}], [{"y": answers + 0.01}])
    found = Window("cosine", 10, usual_answers([{"y": answers}]))
    for row in range(len(answers)):
        found.add({"y": answers[row:row + 1]}, {"y": answers[row:row + 1] + 0.01})
    assert list(found.scores) == pytest.approx(gate.scores)
    assert min(found.scores) > 0.97


@pytest.mark.parametrize(("threshold", "wanted"), [(0.5, 0.0), (0.0, 1.0)])
def test_a_yes_or_no_is_divided_where_the_gate_divides_it(threshold: float, wanted: float) -> None:
    found = Window("top1", 10, {"y": Usual(size=0.5, level=0.5, threshold=threshold)})
    found.add({"y": np.array([[0.48]])}, {"y": np.array([[0.53]])})
    assert list(found.scores) == [wanted]


@pytest.mark.parametrize("metric", FOUR)
def test_a_request_is_one_sample_however_many_rows_it_has(metric: str) -> None:
    [found] = scores(ANSWERS, ANSWERS + NOISE, metric, together=True)
    assert found == pytest.approx(np.mean(scores(ANSWERS, ANSWERS + NOISE, metric)))
    alike, other = (np.repeat(one, 64, axis=0) for one in (ANSWERS[:1], ANSWERS[:1] + 10 * NOISE[:1]))
    assert len(scores(alike, other, metric, together=True)) == 1


def test_of_several_outputs_the_worst_counts_and_others_are_not_looked_at() -> None:
    found = Window("cosine", 10)
    found.add({"a": ANSWERS, "b": ANSWERS}, {"a": ANSWERS, "b": -ANSWERS, "debug": ANSWERS})
    assert list(found.scores) == [0.0]


@pytest.mark.parametrize("typical", [TYPICAL, {}], ids=["as evaluated", "not known"])
@pytest.mark.parametrize("wrong", [
    {"y": np.full_like(ANSWERS, np.nan)}, {"y": np.full_like(ANSWERS, np.inf)}, {"y": ANSWERS[:, :3]},
    {"y": 3 * ANSWERS}, {"y": ANSWERS / 10}, {"z": ANSWERS},
], ids=["NaN", "infinity", "another shape", "three times as large", "a tenth as large", "another name"])
def test_what_scores_nothing(wrong: Tensors, typical: dict[str, Usual]) -> None:
    found = Window("top1", 10, typical)
    assert found.add({"y": ANSWERS}, wrong)
    assert list(found.scores) == [0.0]


@pytest.mark.parametrize("metric", FOUR)
@pytest.mark.parametrize("spoil", [lambda row: 6 * row, lambda row: row * np.nan], ids=["six times as large", "NaN"])
def test_one_bad_row_costs_itself_alone(metric: str, spoil: object) -> None:
    wrong = ANSWERS.copy()
    wrong[3] = spoil(wrong[3])  # type: ignore[operator]
    assert scores(ANSWERS, wrong, metric) == pytest.approx([float(row != 3) for row in range(ROWS)])
    assert scores(ANSWERS, wrong, metric, together=True) == pytest.approx([(ROWS - 1) / ROWS])


@pytest.mark.parametrize("metric", FOUR)
def test_noise_where_the_source_answers_nothing_is_no_fault(metric: str) -> None:
    """As a ReLU does: exactly 0, of which nothing has a direction, a class or ranks."""
    nothing = np.zeros_like(ANSWERS)
    assert min(scores(nothing, nothing + np.float32(1e-7), metric)) > 0.99999
    assert min(scores(nothing, nothing + NOISE / 1000, metric)) > 0.999
    assert max(scores(nothing, 3 * ANSWERS, metric)) == 0.0, "but an answer is"


def test_nothing_is_held_against_nothing_where_no_size_is_known() -> None:
    found = Window("cosine", 10)
    assert not found.add({"y": np.zeros((2, 3), np.float32)}, {"y": np.full((2, 3), 1e-7, np.float32)})
    assert not found.scores


def test_where_the_source_itself_answers_nan_nothing_is_held_against_it() -> None:
    reference = ANSWERS.copy()
    reference[0, 0] = np.nan
    assert scores(reference, ANSWERS) == pytest.approx([1.0] * (ROWS - 1))
    assert scores(reference, ANSWERS, together=True) == pytest.approx([1.0])


def test_requests_that_are_all_alike_are_no_fault() -> None:
    """The gate's guard of contrast would call noise of a hundredth larger than what sets these apart."""
    alike = np.repeat(ANSWERS[:1], ROWS, axis=0) + 1e-3 * NOISE
    assert min(scores(alike, alike + NOISE / 2)) > 0.99


def test_spearman_leaves_out_what_has_no_ranks_of_its_own() -> None:
    """Ranks over requests that are all alike would be those of FP16's rounding."""
    narrow = (0.9 + 2e-4 * DICE.standard_normal((ROWS, 2))).astype(np.float32)
    rounded = narrow.astype(np.float16).astype(np.float32)
    assert scores(narrow, rounded, "spearman") == []
    assert scores(narrow, rounded, "spearman", together=True) == []
    found = Window("spearman", 10)
    found.add({"a": narrow, "b": ANSWERS}, {"a": rounded, "b": ANSWERS})
    assert list(found.scores) == pytest.approx([1.0])


def test_a_metric_of_the_users_judges_alone() -> None:
    class First:
        name = "first"

        def __call__(self, reference: Tensors, candidate: Tensors) -> Array:
            return np.asarray(reference["y"][:, 0] == candidate["y"][:, 0], np.float64)

    found = Window(First(), 10)
    found.add({"y": ANSWERS}, {"y": ANSWERS * np.array([1, 9, 9, 9, 9, 9], np.float32)})
    assert list(found.scores) == [1.0]


def test_a_typical_norm_is_that_of_answers_that_are_some() -> None:
    assert typical_norm(np.array([0.0, 0.0, 0.0, 2.0, 3.0, 9.0])) == 3.0
    assert typical_norm(np.zeros(3)) == 0.0


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(2, 4), st.booleans()), max_size=40), st.integers(1, 60))
def test_no_request_counts_twice_or_is_forgotten_early(requests: list[tuple[int, int, bool]], length: int) -> None:
    found = Window("cosine", length)
    for count, width, sound in requests:
        answer = np.arange(1, count * width + 1, dtype=np.float32).reshape(count, width)
        found.add({"y": answer}, {"y": answer if sound else -answer})
    assert list(found.scores) == pytest.approx([float(sound) for _, _, sound in requests][-length:])

"""Scores of live answers: the gate's own, and what scores nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.accuracy.gate import compare
from enginewright_builder.engines.base import Array
from enginewright_builder.quality.window import BLOCK, Window

DICE = np.random.default_rng(5)
ANSWERS = DICE.standard_normal((BLOCK, 6)).astype(np.float32)
NOISE = (0.02 * DICE.standard_normal(ANSWERS.shape)).astype(np.float32)


def window(metric: str = "cosine", length: int = 1000) -> Window:
    return Window(metric, 0.01, length)


@pytest.mark.parametrize("metric", ["cosine", "relative-error", "top1", "spearman"])
def test_scores_are_those_of_the_gate(metric: str) -> None:
    found = window(metric)
    for row in range(BLOCK):  # as live requests come: one by one
        found.add({"y": ANSWERS[row:row + 1]}, {"y": (ANSWERS + NOISE)[row:row + 1]})
    assert tuple(found.scores) == pytest.approx(compare(metric, [{"y": ANSWERS}], [{"y": ANSWERS + NOISE}]).scores)


def test_of_several_outputs_the_worst_counts_and_others_are_not_looked_at() -> None:
    found = window()
    found.add({"a": ANSWERS, "b": ANSWERS}, {"a": ANSWERS, "b": -ANSWERS, "debug": ANSWERS})
    assert list(found.scores) == [0.0] * BLOCK


@pytest.mark.parametrize("wrong", [
    np.full_like(ANSWERS, np.nan), np.full_like(ANSWERS, np.inf), ANSWERS[:, :3], 2 * ANSWERS, 0.5 * ANSWERS,
], ids=["NaN", "infinity", "another shape", "twice as large", "half as large"])
def test_what_scores_nothing(wrong: Array) -> None:
    found = window()
    found.add({"y": ANSWERS}, {"y": wrong})
    assert list(found.scores) == [0.0] * BLOCK


def test_a_missing_output_scores_nothing() -> None:
    found = window()
    found.add({"y": ANSWERS}, {"z": ANSWERS})
    assert list(found.scores) == [0.0] * BLOCK


def test_one_nan_of_a_block_costs_its_row_alone() -> None:
    wrong = ANSWERS.copy()
    wrong[3, 2] = np.nan
    found = window()
    found.add({"y": ANSWERS}, {"y": wrong})
    assert sorted(found.scores) == pytest.approx([0.0] + [1.0] * (BLOCK - 1))


def test_where_the_source_itself_answers_nan_nothing_is_held_against_it() -> None:
    reference = ANSWERS.copy()
    reference[0, 0] = np.nan
    found = window()
    found.add({"y": reference}, {"y": ANSWERS})
    assert len(found.scores) == BLOCK - 1
    assert min(found.scores) == pytest.approx(1.0)


def test_requests_that_are_all_alike_are_no_fault() -> None:
    """The gate's guard of contrast would call noise of a hundredth larger than what sets these apart."""
    alike = np.repeat(ANSWERS[:1], BLOCK, axis=0) + 1e-3 * NOISE
    found = window()
    found.add({"y": alike}, {"y": alike + NOISE / 2})
    assert min(found.scores) > 0.99


def test_spearman_of_single_numbers_is_taken_over_a_block() -> None:
    found = window("spearman")
    found.add({"y": ANSWERS[:, :1]}, {"y": ANSWERS[:, :1] + NOISE[:, :1] / 100})
    assert len(found.scores) == BLOCK
    assert min(found.scores) > 0.95


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4), st.booleans()), max_size=40), st.integers(1, 60))
def test_no_answer_counts_twice_or_is_forgotten_early(requests: list[tuple[int, int, bool]], length: int) -> None:
    """Whatever shapes come in which order: all rows but those that wait for their block are scored, wrong ones with
    nought, and the newest ``length`` are kept."""
    every, kept = window(length=10_000), window(length=length)
    for rows, width, sound in requests:
        answer = np.arange(1, rows * width + 1, dtype=np.float32).reshape(rows, width)
        for one in (every, kept):
            one.add({"y": answer}, {"y": answer if sound else -answer})
    waiting = 0
    for shape in {width for _, width, _ in requests}:
        group = 0
        for rows, width, _ in requests:
            group = (group + rows if width == shape else group)
            group = 0 if group >= BLOCK else group
        waiting += group
    assert len(every.scores) + waiting == sum(rows for rows, _, _ in requests)
    assert list(kept.scores) == list(every.scores)[-length:]

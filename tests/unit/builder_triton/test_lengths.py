"""Requests of different length: which run together, how they are filled up and cut back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.engines.base import Joined
from enginewright_builder.pod.python_model.lengths import Lengths, planned, stepped

Sizes = list[tuple[int, int]]
SIZES = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 4)), min_size=1, max_size=40)
FEW = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), min_size=1, max_size=6)
COST = st.floats(0, 500)
STEPS: st.SearchStrategy[list[int]] = st.sampled_from([[], [8, 16, 32, 64]])


def cost(sizes: Sizes, runs: Sequence[tuple[list[int], int]], run_positions: float) -> float:
    return sum(run_positions + length * sum(sizes[place][1] for place in places) for places, length in runs)


@given(sizes=SIZES, run_positions=COST, steps=STEPS)
def test_each_request_runs_once_in_a_length_that_holds_it(sizes: Sizes, run_positions: float, steps: list[int]) -> None:
    runs = planned(sizes, run_positions, steps)
    assert sorted(place for places, _ in runs for place in places) == list(range(len(sizes)))
    for places, length in runs:
        assert length == stepped(max(sizes[place][0] for place in places), steps)
        assert [sizes[place][0] for place in places] == sorted(sizes[place][0] for place in places) or steps


@given(sizes=SIZES, run_positions=COST)
def test_what_padding_costs_is_less_than_what_it_saves(sizes: Sizes, run_positions: float) -> None:
    """Never dearer than one run for each length, nor than everything in one run."""
    mine = cost(sizes, planned(sizes, run_positions), run_positions)
    own = sum(length * rows for length, rows in sizes)
    alone = own + run_positions * len({length for length, _ in sizes})
    together = run_positions + max(length for length, _ in sizes) * sum(rows for _, rows in sizes)
    assert mine <= min(alone, together) + 1e-6


@given(sizes=SIZES)
def test_where_a_run_costs_nothing_nothing_is_padded(sizes: Sizes) -> None:
    for places, length in planned(sizes, 0.0):
        assert {sizes[place][0] for place in places} == {length}


def partitions(places: list[int]) -> Iterator[list[list[int]]]:
    if not places:
        yield []
        return
    first, *rest = places
    for size in range(len(rest) + 1):
        for others in itertools.combinations(rest, size):
            for more in partitions([place for place in rest if place not in others]):
                yield [[first, *others], *more]


@given(sizes=FEW, run_positions=st.floats(0, 40))
def test_no_other_grouping_costs_less(sizes: Sizes, run_positions: float) -> None:
    least = min(cost(sizes, [(places, max(sizes[place][0] for place in places)) for places in groups], run_positions)
                for groups in partitions(list(range(len(sizes)))))
    assert cost(sizes, planned(sizes, run_positions), run_positions) == pytest.approx(least)


@pytest.mark.parametrize(("sizes", "run_positions", "expected"), [
    ([(5, 1)], 40, [([0], 5)]),
    ([(5, 1), (7, 1)], 40, [([0, 1], 7)]),
    ([(5, 1), (7, 1)], 1, [([0], 5), ([1], 7)]),
    ([(100, 1), (5, 1), (6, 1)], 40, [([1, 2], 6), ([0], 100)]),
    ([(100, 1), (5, 1), (6, 1)], 1000, [([1, 2, 0], 100)]),
    ([(7, 1), (7, 2), (7, 3)], 0, [([0, 1, 2], 7)]),
])
def test_examples(sizes: Sizes, run_positions: float, expected: Any) -> None:
    assert planned(sizes, run_positions) == expected


def test_a_length_above_the_last_step_stays_as_it_is() -> None:
    assert planned([(5, 1), (70, 1)], 0, [8, 64]) == [([0], 8), ([1], 70)]


DESCRIBED: dict[str, Any] = {"mask": "mask", "fill": {"ids": 9, "mask": 0}, "left": False,
                             "cut": {"tokens": [1], "pairs": [1, 2]}, "run_positions": 100, "steps": []}
LENGTHS, LEFT = Lengths(DESCRIBED), Lengths({**DESCRIBED, "left": True})


def request(length: int, rows: int = 1) -> dict[str, Any]:
    return {"ids": np.arange(rows * length).reshape(rows, length), "mask": np.ones((rows, length), np.int64),
            "other": np.zeros((rows, 3), np.float32)}


def test_only_what_is_as_long_as_the_request_is_filled_up() -> None:
    filled = LENGTHS.filled(request(2, rows=2), 4)
    assert filled["ids"].tolist() == [[0, 1, 9, 9], [2, 3, 9, 9]]
    assert filled["mask"].tolist() == [[1, 1, 0, 0]] * 2
    assert filled["other"].shape == (2, 3)


def test_a_request_that_is_long_enough_is_not_copied() -> None:
    one = request(4)
    assert all(LENGTHS.filled(one, 4)[name] is one[name] for name in one)


def test_answers_lose_what_belongs_to_padding() -> None:
    cut = LENGTHS.cut_back({"tokens": np.zeros((2, 8, 3)), "pairs": np.zeros((2, 8, 8)), "whole": np.zeros((2, 8))}, 5)
    assert [cut[name].shape for name in ("tokens", "pairs", "whole")] == [(2, 5, 3), (2, 5, 5), (2, 8)]


def test_frames_of_a_sound_are_cut_by_their_rule() -> None:
    """Described as before where there are none."""
    sound = Lengths({**DESCRIBED, "frames": {"logits": [[1, 320, -80]]}})
    cut = sound.cut_back({"logits": np.zeros((2, 9, 32)), "tokens": np.zeros((2, 3000, 3))}, 1039)
    assert [cut[name].shape for name in ("logits", "tokens")] == [(2, 2, 32), (2, 1039, 3)]
    assert Joined(mask="mask", fill={"mask": 0.0}).described.keys() == DESCRIBED.keys()
    framed = Joined(mask="mask", fill={"mask": 0.0}, frames={"logits": ((1, 320, -80),)}).described
    assert framed["frames"] == {"logits": [[1, 320, -80]]}


def test_a_sound_too_short_for_a_frame_is_an_error_for_itself() -> None:
    sound = Lengths({**DESCRIBED, "frames": {"logits": [[1, 320, -80]]}})
    assert sound.of(request(400)) == 400
    with pytest.raises(ValueError, match="have 399 positions, and the model takes at least 400"):
        sound.of(request(399))


def test_requests_may_be_filled_up_in_front() -> None:
    filled = LEFT.filled(request(2, rows=2), 4)
    assert filled["ids"].tolist() == [[9, 9, 0, 1], [9, 9, 2, 3]]
    assert filled["mask"].tolist() == [[0, 0, 1, 1]] * 2
    tokens = np.arange(8).reshape(1, 4, 2)
    cut = LEFT.cut_back({"tokens": tokens, "pairs": np.zeros((1, 4, 4)), "whole": np.zeros((2, 8))}, 3)
    assert cut["tokens"].tolist() == tokens[:, 1:].tolist()
    assert [cut[name].shape for name in ("pairs", "whole")] == [(1, 3, 3), (2, 8)]


def test_positions_are_rows_times_length() -> None:
    assert LENGTHS.positions([request(3), request(5, rows=2)], 6) == (13, 18)


@pytest.mark.parametrize("change", [{"ids": np.zeros((1, 5))}, {"mask": np.ones((1, 2))}, {"mask": np.ones(3)}])
def test_inputs_of_different_length_are_an_error(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="same length"):
        LENGTHS.of({**request(3), **change})


def test_requests_run_together_where_all_but_the_length_is_equal() -> None:
    one = request(3)
    assert LENGTHS.key("ids", one["ids"]) == LENGTHS.key("ids", request(9)["ids"]) == ()
    assert LENGTHS.key("other", one["other"]) == (3,)
    assert LENGTHS.key("ids", np.zeros((1, 7, 80))) == (80,)

"""How many frames a model makes of a sound is found by asking it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.evidence.frames import staircase

LAYER = st.tuples(st.integers(1, 12), st.integers(1, 6))
WAV2VEC2 = [(10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2)]


def through(layers: Sequence[tuple[int, int]]) -> Callable[[int], int]:
    """Frames of convolutions of ``(kernel, stride)`` without padding, one behind another."""
    def count(length: int) -> int:
        for kernel, stride in layers:
            length = (length - kernel) // stride + 1
        return length

    return count


def test_that_of_wav2vec2_is_a_frame_each_320_samples() -> None:
    assert staircase(through(WAV2VEC2), 400, 480_000) == (320, -80)


@given(layers=st.lists(LAYER, min_size=1, max_size=5), more=st.integers(0, 500))
def test_a_chain_of_convolutions_is_one_staircase(layers: list[tuple[int, int]], more: int) -> None:
    count, low = through(layers), 1
    while count(low) < 1:
        low += 1
    stride = 1
    for _, one in layers:
        stride *= one
    high = low + 2 * stride + more
    found = staircase(count, low, high)
    assert found is not None
    assert found[0] == stride
    assert all((length + found[1]) // found[0] == count(length) for length in range(low, high + 1))


@pytest.mark.parametrize("count", [lambda length: 2 * length, lambda length: length * length, lambda length: 7,
                                   lambda length: length // 4 if length < 40 else length // 5],
                         ids=["more frames than positions", "no line", "of one size", "another rule for long ones"])
def test_what_follows_no_such_rule_is_none(count: Callable[[int], int]) -> None:
    assert staircase(count, 8, 100) is None


def test_too_few_steps_tell_no_rule() -> None:
    assert staircase(through(WAV2VEC2), 400, 1039) is None
    assert staircase(through(WAV2VEC2), 400, 1040) == (320, -80)


def test_few_lengths_are_asked() -> None:
    asked: list[int] = []
    count = through(WAV2VEC2)

    def counted(length: int) -> int:
        asked.append(length)
        return count(length)

    staircase(counted, 400, 480_000)
    assert len(set(asked)) < 50

"""Evidence that a mean score is too low: right at every look, and quick where it is plain."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.comparison.mirrored import ALPHA, Mirrored, against, required

ODDS = -math.log(ALPHA)


@pytest.mark.parametrize(("score", "samples"), [(0.0, 3), (0.4, 8), (0.8, 56), (0.9, 300)])
def test_so_many_answers_tell_that_they_are_wrong(score: float, samples: int) -> None:
    assert against(samples, samples * score, 0.96) >= ODDS
    assert against(samples // 2, samples // 2 * score, 0.96) < ODDS


@pytest.mark.parametrize("least", [0.5, 0.96, 0.996, 0.9996])
@pytest.mark.parametrize("spread", ["coin", "beta", "turns"])
def test_at_the_limit_itself_hardly_anyone_is_refused_at_any_of_many_looks(least: float, spread: str) -> None:
    """Means that are right at the limit, of coins, of scores in between, and of both in turns."""
    dice = np.random.default_rng(1)
    runs, looks = 300, 1000
    coins = (dice.random((runs, looks)) < least).astype(float)
    scores = dice.beta(8 * least, 8 * (1 - least), (runs, looks))
    chosen = {"coin": coins, "beta": scores, "turns": np.where(np.arange(looks) % 2, coins, scores)}[spread]
    sums = np.cumsum(chosen, axis=1)
    wrong = sum(any(against(n, float(row[n - 1]), least) >= ODDS for n in range(1, looks + 1, 7)) for row in sums)
    assert wrong <= 2


@given(st.integers(0, 10_000), st.floats(0, 1), st.floats(0.01, 0.999))
def test_bounds_hold_the_mean_and_agree_with_the_verdict(samples: int, mean: float, least: float) -> None:
    found = Mirrored(required=least, samples=samples, agreed=samples * mean)
    assert 0 <= found.low <= found.mean + 1e-9 or not samples
    assert found.mean - 1e-9 <= found.high <= 1
    if found.disagrees:
        assert found.high <= least + 1e-6
        assert mean < least


@given(st.floats(0, 0.2), st.floats(0, 0.2), st.integers(0, 2**32 - 1))
def test_two_that_pass_the_gate_agree_as_much_as_is_required(one: float, other: float, seed: int) -> None:
    """Whatever the angles to the source, of single answers and so of means."""
    dice = np.random.default_rng(seed)
    source = dice.standard_normal(4)
    source /= np.linalg.norm(source)

    def at(distance: float) -> npt.NDArray[np.float64]:
        away = dice.standard_normal(4)
        away -= away @ source * source
        angle = math.acos(1 - distance)
        found: npt.NDArray[np.float64] = math.cos(angle) * source + math.sin(angle) * away / np.linalg.norm(away)
        return found

    assert at(one) @ at(other) >= required(one, other) - 1e-9


def test_nothing_is_said_of_nothing() -> None:
    assert not Mirrored(required=0.96).disagrees
    assert Mirrored(required=0.96, problem="no monitor reports").figures == (
        "no live request was mirrored (no monitor reports)")
    assert not Mirrored(required=0.0, samples=100, agreed=0.0).disagrees, "a tolerance of all tolerates all"

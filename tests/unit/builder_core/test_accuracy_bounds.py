"""The lower bound: known values, and how often it holds. The study is seeded: it says the same every time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import special, stats

from enginewright_builder.accuracy import bounds
from enginewright_builder.accuracy.bounds import mean_lower_bound, rank_correlation_lower_bound
from enginewright_builder.accuracy.rules import samples_advised, samples_needed
from enginewright_builder.accuracy.scores import Usual, spearman
from enginewright_builder.tensors import Array

Draw = Callable[[np.random.Generator, tuple[int, int]], Array]
SETS = 1_000
# One-sided 95 %, less three standard errors of what a thousand sets can tell: √(0.05 · 0.95 / 1000) · 3.
HOLDS = 0.95 - 0.021


def covers(scores: Array, mean: float) -> Array:
    """Whether the bound of each row of ``scores`` (``[sets, n]``) is at most ``mean``, without searching for it."""
    clipped = np.clip(np.asarray(scores, np.float64), 0.0, 1.0)
    if bounds._right_or_wrong(clipped):
        right = clipped.sum(axis=1)
        exact = special.betainc(right, clipped.shape[1] - right + 1, mean) >= bounds._ALPHA
        return np.asarray(exact | (right == 0), np.bool_)
    return np.asarray(bounds._chance(bounds._shared_out(clipped), mean, clipped.shape[1]) >= bounds._ALPHA, np.bool_)


def clopper_pearson(successes: int, trials: int) -> float:
    return float(stats.beta.ppf(0.05, successes, trials - successes + 1)) if successes else 0.0


@pytest.mark.parametrize(("right", "count"), [(10, 10), (95, 100), (299, 299), (290, 299), (1, 16), (0, 16)])
def test_for_agreement_it_is_clopper_and_pearsons(right: int, count: int) -> None:
    scores = np.array([1.0] * right + [0.0] * (count - right))
    assert mean_lower_bound(scores) == pytest.approx(clopper_pearson(right, count), abs=1e-9)
    nearly = scores - 1e-6 * (np.arange(count) == 0)
    assert mean_lower_bound(np.clip(nearly, 0, 1)) == pytest.approx(clopper_pearson(right, count), abs=2e-3)


@pytest.mark.parametrize("score", [1.0, 0.99, 0.5])
@pytest.mark.parametrize("count", [1, 16, 299, 5_000])
def test_equal_scores_prove_no_more_than_their_number(score: float, count: int) -> None:
    assert mean_lower_bound(np.full(count, score)) == pytest.approx(score * 0.05 ** (1 / count))


@pytest.mark.parametrize(("tolerance", "count"), [(0.01, 299), (0.02, 149), (0.05, 59), (0.1, 29), (0.5, 16)])
def test_as_many_samples_as_a_perfect_candidate_needs(tolerance: float, count: int) -> None:
    assert samples_needed(tolerance) == count
    assert mean_lower_bound(np.ones(count)) >= 1 - tolerance
    if count > 16:
        assert mean_lower_bound(np.ones(count - 1)) < 1 - tolerance
    assert mean_lower_bound(np.full(samples_advised(tolerance), 1 - tolerance / 3)) > 1 - tolerance


@pytest.mark.parametrize(("tolerance", "count"), [(0.01, 628), (0.02, 313), (0.05, 124), (0.1, 61), (0.5, 32)])
def test_as_many_as_are_advised_forgive_two_wrong_answers(tolerance: float, count: int) -> None:
    assert samples_advised(tolerance) == count
    assert mean_lower_bound(np.array([0.0, 0.0] + [1.0] * (count - 2))) >= 1 - tolerance
    if count > 32:
        assert mean_lower_bound(np.array([0.0, 0.0] + [1.0] * (count - 3))) < 1 - tolerance


@settings(max_examples=50, deadline=None)
@given(hnp.arrays(np.float64, st.integers(0, 60), elements=st.floats(0, 1)))
def test_it_is_below_the_mean_and_never_rises_when_a_score_falls(scores: Array) -> None:
    bound = mean_lower_bound(scores)
    assert 0 <= bound <= (scores.mean() if len(scores) else 0) + 1e-12
    if len(scores):
        worse = scores.copy()
        worse[0] /= 2
        assert mean_lower_bound(worse) <= bound + 1e-12


def test_many_samples_cost_no_memory_and_come_close_to_the_mean() -> None:
    scores = np.random.default_rng(0).beta(50, 1, 20_000)
    assert 0 < scores.mean() - mean_lower_bound(scores) < 6e-4


# What engines' scores look like: piled up near 1 with a tail, right or wrong, mostly right with a few that fail.
KINDS: dict[str, tuple[Draw, float]] = {
    "beta(50, 1)": (lambda rng, size: rng.beta(50, 1, size), 50 / 51),
    "beta(5, 0.1)": (lambda rng, size: rng.beta(5, 0.1, size), 5 / 5.1),
    "1 − exponential": (lambda rng, size: 1 - rng.exponential(0.01, size), 0.99),
    "heavy tail": (lambda rng, size: 1 - np.minimum(1, np.exp(rng.normal(np.log(0.005), 1.5, size))), 0.98475),
    "right in 99 %": (lambda rng, size: (rng.random(size) < 0.99).astype(float), 0.99),
    "right in 95 %": (lambda rng, size: (rng.random(size) < 0.95).astype(float), 0.95),
    "right in half": (lambda rng, size: (rng.random(size) < 0.5).astype(float), 0.5),
    "2 % broken": (lambda rng, size: np.where(rng.random(size) < 0.02, rng.uniform(0, 0.5, size), 0.999), 0.98402),
    "anything": (lambda rng, size: rng.random(size), 0.5),
}


@pytest.mark.parametrize("count", [16, 64, *(pytest.param(many, marks=pytest.mark.study) for many in (256, 1000))])
@pytest.mark.parametrize("kind", KINDS)
def test_it_holds_as_often_as_it_says(kind: str, count: int) -> None:
    draw, mean = KINDS[kind]
    scores = draw(np.random.default_rng(count), (SETS, count))
    assert covers(scores, mean).mean() >= HOLDS


@pytest.mark.parametrize("kind", KINDS)
def test_the_study_knows_the_true_means(kind: str) -> None:
    draw, mean = KINDS[kind]
    scores = np.clip(draw(np.random.default_rng(5), (1000, 1000)), 0, 1)
    assert scores.mean() == pytest.approx(mean, abs=4 * scores.std() / 1000 + 1e-5)


def test_covers_says_what_the_bound_says() -> None:
    scores = np.random.default_rng(2).beta(20, 1, (30, 40))
    found = np.array([mean_lower_bound(row) for row in scores])
    assert (covers(scores, 0.885) == (found <= 0.885)).all()
    assert 0 < (found <= 0.885).mean() < 1


@pytest.mark.parametrize("correlation", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("count", [16, 64, 256])
def test_the_bound_of_a_rank_correlation_holds(correlation: float, count: int) -> None:
    """Normal pairs, for which Spearman's coefficient is ``6/π · asin(ρ/2)``."""
    rng = np.random.default_rng(count)
    one = rng.normal(size=(SETS, count))
    other = correlation * one + np.sqrt(1 - correlation ** 2) * rng.normal(size=(SETS, count))
    bounds = [rank_correlation_lower_bound(value, count) for value in spearman(one, other, Usual())]
    assert np.mean(np.array(bounds) <= 6 / np.pi * np.arcsin(correlation / 2)) >= HOLDS


@pytest.mark.parametrize(("coefficient", "count", "bound"), [(1.0, 16, 0.05 ** (1 / 16)), (0.9, 3, 0.0), (0.5, 0, 0.0),
                                                             (-1.0, 50, -1.0)])
def test_the_bound_of_a_rank_correlation_at_the_edges(coefficient: float, count: int, bound: float) -> None:
    assert rank_correlation_lower_bound(coefficient, count) == pytest.approx(bound)

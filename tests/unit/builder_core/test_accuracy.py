"""Metrics and their bounds: known values, and what must hold for all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from enginewright_builder.accuracy import Accuracy, clopper_pearson, compare, mean_lower_bound
from enginewright_builder.accuracy_rules import METRICS, samples_needed
from enginewright_builder.engines.base import Array
from enginewright_builder.errors import UserError

RNG = np.random.default_rng(0)
OUTPUTS = RNG.normal(size=(40, 10))


def score(metric: str, reference: Array, candidate: Array) -> Accuracy:
    return compare(metric, [{"y": reference}], [{"y": candidate}])


@pytest.mark.parametrize("metric", METRICS)
def test_equal_answers_score_one(metric: str) -> None:
    got = score(metric, OUTPUTS, OUTPUTS.copy())
    assert got.value == pytest.approx(1.0)
    assert got.samples == 40
    assert got.passes(0.1)


@pytest.mark.parametrize(("metric", "candidate", "value"), [
    ("cosine", -OUTPUTS, -1.0), ("cosine", OUTPUTS * 3, 1.0), ("cosine", np.zeros_like(OUTPUTS), 0.0),
    ("relative-error", OUTPUTS * 1.1, 0.9), ("relative-error", -OUTPUTS, 0.0),
    ("spearman", -OUTPUTS, -1.0), ("spearman", np.exp(OUTPUTS), 1.0),
    ("top1", -OUTPUTS, 0.0), ("top1", OUTPUTS * 2, 1.0),
])
def test_known_values(metric: str, candidate: Array, value: float) -> None:
    assert score(metric, OUTPUTS, candidate).value == pytest.approx(value)


def test_zero_vectors_agree_with_each_other_only() -> None:
    zeros, ones = np.zeros((8, 3)), np.ones((8, 3))
    assert score("cosine", zeros, zeros).value == 1.0
    assert score("cosine", zeros, ones).value == 0.0


def test_of_several_outputs_the_worst_counts() -> None:
    reference = [{"a": OUTPUTS, "b": OUTPUTS}]
    assert compare("cosine", reference, [{"a": OUTPUTS, "b": -OUTPUTS}]).value == pytest.approx(-1.0)


def test_batches_are_of_all_samples() -> None:
    halves = [{"y": OUTPUTS[:16]}, {"y": OUTPUTS[16:]}]
    mirrored = [{"y": OUTPUTS[:16]}, {"y": -OUTPUTS[16:]}]
    assert compare("cosine", halves, mirrored).value == pytest.approx((16 - 24) / 40)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_candidate_that_is_not_finite_never_passes(bad: float) -> None:
    candidate = OUTPUTS.copy()
    candidate[3, 3] = bad
    got = score("cosine", OUTPUTS, candidate)
    assert not got.finite
    assert not got.passes(0.999)


def test_a_reference_that_is_not_finite_is_the_users_to_mend() -> None:
    reference = OUTPUTS.copy()
    reference[0, 0] = math.nan
    with pytest.raises(UserError) as caught:
        score("cosine", reference, OUTPUTS)
    assert caught.value.reason == "ReferenceNotFinite"


def test_spearman_of_single_numbers_is_taken_over_the_samples() -> None:
    reference = np.arange(50.0)[:, None]
    swapped = reference.copy()
    swapped[[10, 11]] = swapped[[11, 10]]
    got = score("spearman", reference, swapped)
    assert 0.999 < got.value < 1
    assert got.low < got.value


class TestBounds:
    @pytest.mark.parametrize(("successes", "trials", "low"), [
        (0, 10, 0.0), (10, 10, 0.05 ** 0.1), (299, 299, 0.05 ** (1 / 299)),
        # R: binom.test(95, 100, alternative = "greater")$conf.int[1]
        (95, 100, 0.89775),
    ])
    def test_clopper_pearson(self, successes: int, trials: int, low: float) -> None:
        assert clopper_pearson(successes, trials) == pytest.approx(low, abs=1e-5)

    @pytest.mark.parametrize(("tolerance", "samples"), [(0.01, 299), (0.05, 59), (0.1, 29), (0.5, 8)])
    def test_as_many_samples_as_a_perfect_candidate_needs(self, tolerance: float, samples: int) -> None:
        assert samples_needed("top1", tolerance) == samples
        assert clopper_pearson(samples, samples) >= 1 - tolerance
        assert samples_needed("cosine", tolerance) == 8

    @settings(max_examples=50, deadline=None)
    @given(hnp.arrays(np.float64, st.integers(2, 60), elements=st.floats(0, 1)))
    def test_the_bound_is_below_the_mean(self, scores: Array) -> None:
        assert mean_lower_bound(scores) <= scores.mean() + 1e-12

    def test_more_samples_prove_more(self) -> None:
        few, many = RNG.beta(50, 1, 20), RNG.beta(50, 1, 2000)
        assert few.mean() - mean_lower_bound(few) > many.mean() - mean_lower_bound(many)

    def test_it_holds_for_skewed_scores_about_as_often_as_it_says(self) -> None:
        """Scores with a tail to the left, as quantisation makes them: the true mean is below the bound in 5 % or so."""
        rng = np.random.default_rng(7)
        truth = 50 / 51
        wrong = sum(mean_lower_bound(rng.beta(50, 1, 100)) > truth for _ in range(150))
        assert wrong / 150 < 0.12

    def test_one_sample_proves_nothing(self) -> None:
        assert mean_lower_bound(np.array([1.0])) == 0.0


def test_agreement_by_position_of_sequences() -> None:
    reference = RNG.normal(size=(10, 4, 3))
    candidate = reference.copy()
    candidate[:, 0] = -candidate[:, 0]
    assert score("top1", reference, candidate).value == pytest.approx(0.75)


def test_sign_is_the_class_of_a_single_number() -> None:
    assert score("top1", np.array([[1.0]] * 8), np.array([[-1.0]] * 4 + [[2.0]] * 4)).value == 0.5

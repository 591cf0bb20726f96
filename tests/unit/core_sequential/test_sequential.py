"""The statistics alone: right at every look, not only at the last."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.failures import MOST_PROOF_A_ROUND, Trials
from enginewright.core.sequential import FEWEST_VALUES, Series
from support.added import confidence_sequence, more_failures

ALPHA = 0.05


def ever_outside(seed: int, correlation: float = 0.0, length: int = 150) -> bool:
    """Whether the true mean, nought, is ever outside the sequence."""
    chance, value, series = random.Random(seed), 0.0, Series()
    for _ in range(length):
        value = correlation * value + math.sqrt(1 - correlation**2) * chance.gauss(0, 1)
        series.add(value)
        found = series.interval(ALPHA)
        if found and not found.low <= 0 <= found.high:
            return True
    return False


def test_looked_at_after_every_value_it_is_wrong_no_more_often_than_alpha() -> None:
    wrong = sum(ever_outside(seed) for seed in range(100))
    assert wrong <= 100 * ALPHA


def test_neighbours_that_resemble_each_other_widen_it() -> None:
    """Not to the letter of alpha: what ten values show of their correlation is little (docs/adr/0009)."""
    wrong = sum(ever_outside(seed, correlation=0.6) for seed in range(100))
    assert wrong <= 100 * 0.1


def test_it_closes_in_on_the_mean() -> None:
    chance = random.Random(1)
    values = [chance.gauss(0.7, 0.2) for _ in range(400)]
    widths = []
    for length in (20, 100, 400):
        found = confidence_sequence(values[:length], [1.0] * length, ALPHA)
        assert found is not None
        assert found.low < 0.7 < found.high
        widths.append(found.high - found.low)
    assert widths[0] > 1.8 * widths[1] > 1.8 * 1.6 * widths[2]


def test_it_is_the_formula_of_the_paper() -> None:
    """Long, neighbours that rather differ, equal weights: what is left is the equation and a little for what 20,000
    values may hide of their correlation."""
    values = [1.0, -1.0] * 10_000
    times, alpha = len(values), 0.01
    rho = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / 20
    half = math.sqrt(2 * (times * rho + 1) / (times**2 * rho) * math.log(math.sqrt(times * rho + 1) / alpha))
    found = confidence_sequence(values, [1.0] * times, alpha)
    assert found is not None
    assert found.high - found.mean == pytest.approx(half, rel=0.012)


def test_few_values_say_nothing() -> None:
    for length in range(FEWEST_VALUES):
        assert confidence_sequence([1.0] * length, [1.0] * length, ALPHA) is None
    # One value that outweighs all others is as good as one value.
    assert confidence_sequence([1.0] * 20, [1e6, *[1e-6] * 19], ALPHA) is None


def test_values_of_no_weight_change_nothing() -> None:
    values = [random.Random(3).gauss(0, 1) for _ in range(30)]
    plain = confidence_sequence(values, [1.0] * 30, ALPHA)
    scaled = confidence_sequence(values, [7.0] * 30, ALPHA)
    assert plain
    assert scaled
    assert plain.low == pytest.approx(scaled.low)


@given(
    failed=st.integers(0, 6), requests=st.integers(0, 12), other_failed=st.integers(0, 6), others=st.integers(0, 12)
)
def test_evidence_is_worth_one_on_average_when_both_fail_alike(
    failed: int, requests: int, other_failed: int, others: int
) -> None:
    """Given the failures of both together, over all ways in which they may fall on the two sides."""
    mine, theirs, both = failed + requests, other_failed + others, failed + other_failed
    whole = math.comb(mine + theirs, both)
    mean = 0.0
    for case in range(max(0, both - theirs), min(both, mine) + 1):
        ways = math.comb(mine, case) * math.comb(theirs, both - case)
        mean += ways / whole * math.exp(more_failures([Trials(case, mine, both - case, theirs)]))
    assert mean <= 1 + 1e-9


def test_as_many_failures_on_both_sides_are_no_evidence() -> None:
    assert more_failures([Trials(3, 30, 3, 30)] * 100) < 0
    assert more_failures([Trials(3, 30, 9, 90)] * 100) < 0
    assert more_failures([Trials(0, 30, 3, 30)] * 100) < 0
    assert more_failures([Trials(0, 0, 0, 0)]) == 0


def test_a_burst_in_one_round_proves_no_more_than_its_share() -> None:
    burst = more_failures([Trials(5000, 5000, 0, 5000)])
    assert burst <= MOST_PROOF_A_ROUND
    assert more_failures([Trials(5000, 5000, 0, 5000)] * 3) > 2.5 * MOST_PROOF_A_ROUND - math.log(4)


def test_few_failures_add_up() -> None:
    grown = [more_failures([Trials(1, 5, 0, 5)] * rounds) for rounds in range(1, 20)]
    assert all(before < after for before, after in itertools.pairwise(grown))
    assert grown[-1] > math.log(1000)

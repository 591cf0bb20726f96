"""How far live answers agree, and how sure that is."""

from __future__ import annotations

import functools
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.quality import ALPHA, LEAST_SAMPLES, agreement, find, samples_needed, silent_seconds
from enginewright_builder.contract import QualityReport


def report(samples: int, mean: float, tolerance: float = 0.01, problem: str = "") -> QualityReport:
    return QualityReport(metric="cosine", tolerance=tolerance, samples=samples, total=samples * mean, problem=problem)


@pytest.mark.parametrize(("samples", "total", "low", "high"), [
    (0, 0.0, 0.0, 1.0), (690, 690.0, 0.990039, 1.0), (100, 0.0, 0.0, 0.066746),
    # Where all agree or none does the bound is exact, α^(1/n).
    (1, 1.0, 0.001, 1.0), (1, 0.0, 0.0, 0.999),
    # Of a half kl(½, μ) = -½ log 4μ(1 - μ), so μ = ½ ± ½ √(1 - α^(2/n)).
    (100, 50.0, 0.320391, 0.679609),
])
def test_known_intervals(samples: int, total: float, low: float, high: float) -> None:
    found = agreement(samples, total)
    assert found.low == pytest.approx(low, abs=1e-5)
    assert found.high == pytest.approx(high, abs=1e-5)


@given(st.integers(1, 10_000), st.floats(0, 1), st.floats(1e-6, 0.5))
def test_an_interval_holds_its_mean_within_bounds_and_shrinks_with_more(samples: int, mean: float,
                                                                        alpha: float) -> None:
    found, more = agreement(samples, samples * mean, alpha), agreement(2 * samples, 2 * samples * mean, alpha)
    assert 0 <= found.low <= found.mean <= found.high <= 1
    assert found.low <= more.low + 1e-9
    assert more.high <= found.high + 1e-9
    mirrored = agreement(samples, samples * (1 - found.mean), alpha)
    assert mirrored.low == pytest.approx(1 - found.high, abs=1e-9)


@given(st.floats(0.0005, 0.4))
def test_as_many_samples_as_are_needed_and_not_one_fewer(tolerance: float) -> None:
    needed = samples_needed(tolerance)
    assert agreement(needed, needed).low >= 1 - tolerance - 1e-9
    assert agreement(needed - 1, needed - 1).low < 1 - tolerance + 1e-9


@pytest.mark.parametrize("loss", [0.005, 0.01])
def test_an_engine_within_its_tolerance_is_hardly_ever_called_drifted(loss: float) -> None:
    """Answers that are right or wrong, the widest spread there is, in a window of 2000 that is looked at every ten of
    them: 200 windows one after the other. At the tolerance itself a window errs in one of a thousand at most; looked at
    all along, some more often."""
    dice = random.Random(3)
    tens = [sum(dice.random() >= loss for _ in range(10)) for _ in range(200)]
    right, drifted = sum(tens), 0
    judged = functools.cache(lambda total: agreement(2000, float(total)).high < 0.99)
    for place in range(40_000):
        ten = sum(dice.random() >= loss for _ in range(10))
        right += ten - tens[place % 200]
        tens[place % 200] = ten
        drifted += judged(right)
    assert drifted <= (0 if loss < 0.01 else 80)


@pytest.mark.parametrize(("loss", "samples"), [(0.05, 400), (0.5, 30), (1.0, 2)])
def test_a_wrong_engine_is_found_out_soon(loss: float, samples: int) -> None:
    assert agreement(samples, samples * (1 - loss)).high < 0.99


def test_replicas_are_taken_together() -> None:
    found = find({"a": report(400, 1.0), "b": report(400, 1.0)})
    assert found is not None
    assert (found.agreement.samples, found.replicas, found.held, found.drifted, found.few) == (
        800, 2, True, False, False)
    assert found.required == pytest.approx(0.99)


def test_one_replica_that_is_wrong_is_found_among_many_that_are_right() -> None:
    good = {f"good-{number}": report(2000, 1.0) for number in range(9)}
    found = find({**good, "bad": report(40, 0.5)})
    assert found is not None
    assert found.worst == "bad"
    assert found.worst_agreement == agreement(40, 20.0, ALPHA / 10)
    assert not found.drifted, "it is named; the revision is not given up for it"


def test_each_replica_alone_is_held_to_a_share_of_the_error() -> None:
    """What is just enough for one replica is not for the worst of a hundred."""
    samples = next(n for n in range(LEAST_SAMPLES, 1000) if agreement(n, 0.9 * n).high < 0.99)
    assert find({"a": report(samples, 0.9)}).drifted  # type: ignore[union-attr]
    many = {f"r{number}": report(0, 0.0) for number in range(99)}
    found = find({**many, "a": report(samples, 0.9)})
    assert found is not None
    assert found.worst == ""
    assert agreement(samples, 0.9 * samples, ALPHA / 100).high >= 0.99


@pytest.mark.parametrize(("samples", "drifted"), [(1, False), (LEAST_SAMPLES - 1, False), (LEAST_SAMPLES, True)])
def test_nothing_is_said_of_a_handful_however_wrong(samples: int, drifted: bool) -> None:
    found = find({"a": report(samples, 0.0)})
    assert found is not None
    assert (found.drifted, found.held) == (drifted, False)
    beside = find({"a": report(samples, 0.0), "b": report(100 * samples, 1.0)})
    assert beside is not None
    assert beside.worst == ("a" if drifted else "")


def test_nor_of_a_handful_that_would_do_for_a_wide_tolerance() -> None:
    few, enough = (find({"a": report(samples, 1.0, tolerance=0.5)}) for samples in (LEAST_SAMPLES - 1, LEAST_SAMPLES))
    assert few is not None
    assert enough is not None
    assert (few.held, few.few, enough.held, enough.few) == (False, True, True, False)


def test_one_block_of_noughts_beside_two_good_replicas() -> None:
    found = find({"a": report(2000, 0.9995), "b": report(2000, 0.9995), "c": report(16, 0.0)})
    assert found is not None
    assert (found.drifted, found.held, found.worst) == (False, True, "")


def test_a_window_ages() -> None:
    old, new = (replace(report(2000, mean), age_seconds=age) for mean, age in ((0.0, 601.0), (1.0, 600.0)))
    assert find({"a": old}) is None
    found = find({"a": old, "b": new})
    assert found is not None
    assert (found.replicas, found.agreement.mean, found.worst) == (1, 1.0, "")
    assert (silent_seconds([old]), silent_seconds([old, new]), silent_seconds([])) == (601.0, 0.0, 0.0)


def test_nobody_measures() -> None:
    assert find({}) is None
    assert find({"a": report(0, 0.0, tolerance=0.0, problem="no reference")}) is None
    assert find({"a": report(0, 0.0, problem="tensors of FP16")}) is None
    assert find({"a": report(0, 0.0)}) is not None, "nothing came yet"
    assert find({"a": report(1, 1.0, problem="the server does not trace")}) is not None, "what came before counts"


@given(st.dictionaries(st.sampled_from("abcde"), st.tuples(st.integers(0, 5000), st.floats(0, 1),
                                                             st.sampled_from([0.0, 0.01, 0.05])), max_size=5))
def test_it_is_never_held_and_drifted_at_once(said: dict[str, tuple[int, float, float]]) -> None:
    found = find({name: report(*one) for name, one in said.items()})
    if found is None:
        return
    assert not (found.held and found.drifted)
    assert not (found.held and found.few)
    assert bool(found.worst) == (found.worst_agreement is not None)
    if found.worst_agreement is not None:
        assert found.replicas > 1
        assert found.worst_agreement.high < found.required

"""The race on made-up timings: the right arm wins, the hopeless leave early, the budget holds."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from enginewright_builder.competition.race import CALL_OVERHEAD, LOOKS, MIN_ROUNDS, ZONE, Heat, compete, ratio


@dataclass
class Track:
    """Milliseconds by batch and arm, with the noise of a machine: each arm's own, and slow patches that all share."""

    true: Mapping[int, Mapping[str, float]]
    noise: float = 0.0
    seed: int = 0
    left: float = 1e9
    asked: list[tuple[tuple[str, ...], int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def ask(self, names: Sequence[str], batch: int, rounds: int) -> dict[str, list[float]]:
        self.asked.append((tuple(names), batch, rounds))
        patches = np.where(self.rng.random(rounds) < 0.1, 3.0, 1.0)
        # By name, so that the order in which arms are listed changes nothing.
        times = {name: self.true[batch][name] * patches * self.rng.lognormal(0.0, self.noise, rounds)
                 for name in sorted(names)}
        self.left -= sum(float(values.sum()) / 1e3 + CALL_OVERHEAD * rounds for values in times.values())
        return {name: list(values) for name, values in times.items()}

    def run(self, budget: float = 1e9, **options: object) -> dict[int, Heat]:
        self.left = budget
        return compete({batch: list(arms) for batch, arms in self.true.items()}, self.ask, lambda: self.left,
                       **options)  # type: ignore[arg-type]

    def timed(self, name: str, batch: int) -> int:
        return sum(rounds for names, size, rounds in self.asked if name in names and size == batch)


class TestRatio:
    def test_is_the_median_of_pairwise_means_with_the_signed_rank_interval(self) -> None:
        """Against a brute-force count over all signs, for eight rounds."""
        rng = np.random.default_rng(1)
        one, other = rng.lognormal(0.1, 0.03, 8), rng.lognormal(0.0, 0.03, 8)
        logs = np.log(one / other)
        means = sorted((logs[i] + logs[j]) / 2 for i in range(8) for j in range(i, 8))
        ranks = sorted(sum(rank for rank, sign in zip(range(1, 9), signs, strict=True) if sign)
                       for signs in itertools.product((0, 1), repeat=8))
        cut = max(k for k in range(36) if sum(rank <= k for rank in ranks) / 256 <= 1 / 128)
        held = ratio(list(one), list(other))
        assert held.value == pytest.approx(np.exp(np.median(means)))
        assert [held.low, held.high] == pytest.approx([np.exp(means[cut]), np.exp(means[-1 - cut])])

    def test_covers_the_truth_as_often_as_it_says(self) -> None:
        rng = np.random.default_rng(2)
        for rounds in (7, 14, 28, 112):
            held = [ratio(list(1.2 * rng.lognormal(0, 0.05, rounds)), list(rng.lognormal(0, 0.05, rounds)))
                    for _ in range(600)]
            # Three standard errors below 1 − 2/2⁷.
            assert np.mean([one.low <= 1.2 <= one.high for one in held]) >= 1 - 2 / 2**7 - 3 * 0.005

    def test_few_rounds_give_what_was_seen(self) -> None:
        held = ratio([2.0, 3.0, 2.2], [1.0, 1.0, 1.0, 9.0])
        assert [held.low, held.high, held.rounds] == pytest.approx([2.0, 3.0, 3])

    def test_a_patch_that_slows_one_more_than_the_other_is_left_out(self) -> None:
        rng = np.random.default_rng(4)
        patch = np.arange(100) % 20 < 6
        one = np.where(patch, 3.0, 1.0) * rng.lognormal(0, 0.03, 100)
        other = np.where(patch, 2.2, 1.0) * rng.lognormal(0, 0.03, 100)
        held = ratio(list(one), list(other))
        assert held.low < 1.0 < held.high
        assert held.rounds == 70

    def test_an_outlier_moves_it_little(self) -> None:
        times = [10.0] * 13
        assert ratio([*times, 500.0], [*times, 10.0]).value == pytest.approx(1.0)

    def test_the_same_factor_is_a_tie_at_every_batch(self) -> None:
        """Logarithms of times that differ by a common factor differ in their last bits, and not alike on every CPU."""
        fast, slow = 9.0 / 1.6**4, 9.0
        held = {ratio([slow * batch] * 3, [fast * batch] * 3) for batch in range(1, 65)}
        assert len(held) == 1

    def test_agrees_with_the_exact_distribution_where_it_is_approximated(self) -> None:
        """scipy's exact signed-rank p-value of the excluded end must lie at the tail that was asked for."""
        rng = np.random.default_rng(3)
        logs = rng.normal(0.0, 0.05, 100)
        low = np.log(ratio(list(np.exp(logs)), [1.0] * 100).low)
        tail = stats.wilcoxon(logs - low, alternative="greater", method="exact").pvalue
        assert tail == pytest.approx(1 / 128, rel=0.05)


def test_of_arms_that_differ_by_rounding_the_first_by_name_leads() -> None:
    assert Heat(batch=1, times={"b": [1.0] * 3, "a": [1.0 + 1e-12] * 3}, live=["b", "a"]).leader() == "a"


def test_the_hopeless_leave_after_the_first_look() -> None:
    track = Track({8: {"fast": 1.0, "slow": 10.0, "slower": 30.0, "close": 1.2}}, noise=0.05)
    heat = track.run()[8]
    assert heat.live == ["fast"]
    assert track.timed("slow", 8) == track.timed("slower", 8) == LOOKS[0]
    assert LOOKS[0] < track.timed("close", 8) < LOOKS[-1]


def test_equals_stay_and_end_the_race_when_that_is_sure() -> None:
    track = Track({8: {"one": 1.0, "other": 1.0}}, noise=0.01)
    heat = track.run()[8]
    assert sorted(heat.live) == ["one", "other"]
    assert heat.decided
    assert MIN_ROUNDS <= heat.rounds < LOOKS[-1]


def test_a_slow_patch_of_the_machine_does_not_confuse() -> None:
    track = Track({8: {"fast": 1.0, "slow": 1.1}}, noise=0.0)
    assert track.run()[8].live == ["fast"]
    assert track.timed("slow", 8) == MIN_ROUNDS


def test_each_bucket_has_a_race_of_its_own() -> None:
    track = Track({1: {"a": 1.0, "b": 2.0}, 32: {"a": 9.0, "b": 6.0}}, noise=0.02)
    heats = track.run()
    assert [heats[1].leader(), heats[32].leader()] == ["a", "b"]


def test_batches_beyond_the_latency_limit_are_not_raced() -> None:
    track = Track({1: {"a": 1.0, "b": 1.1}, 8: {"a": 7.0, "b": 8.0}, 32: {"a": 30.0, "b": 31.0},
                   64: {"a": 60.0, "b": 61.0}})
    heats = track.run(limit_ms=20.0)
    assert [heat.used for heat in heats.values()] == [True, True, False, False]
    assert track.timed("a", 32) == LOOKS[0]
    assert track.timed("a", 64) == 0
    # The smallest is used whatever it takes: something has to be served.
    assert Track({1: {"a": 50.0}, 8: {"a": 400.0}}).run(limit_ms=20.0)[1].used


def test_guests_are_timed_once_and_beat_nobody() -> None:
    track = Track({8: {"guest": 0.1, "a": 1.0, "b": 1.1}})
    heat = track.run(guests={"guest"})[8]
    assert heat.leader() == "a"
    assert len(heat.times["guest"]) == LOOKS[0]


def test_patient_arms_stay_until_there_is_an_interval() -> None:
    track = Track({8: {"source": 20.0, "a": 1.0, "b": 1.3}})
    heat = track.run(patient={"source"})[8]
    assert len(heat.times["source"]) == MIN_ROUNDS
    assert heat.live == ["a"]


def test_heats_get_the_rounds_that_an_interval_needs_out_of_what_is_spare() -> None:
    times = {1: {"source": 100.0, "a": 90.0}, 8: {"source": 800.0, "a": 700.0}}
    assert [heat.rounds for heat in Track(times).run(budget=1.0).values()] == [LOOKS[0], LOOKS[0]]
    heats = Track(times, noise=0.2).run(budget=1.0, spare=lambda: 60.0)
    assert [(heat.rounds, heat.exhausted) for heat in heats.values()] == [(MIN_ROUNDS, True)] * 2


def test_an_arm_that_breaks_is_out() -> None:
    track = Track({8: {"a": 1.0, "broken": 0.5}})

    def ask(names: Sequence[str], batch: int, rounds: int) -> dict[str, list[float]]:
        return track.ask([name for name in names if name != "broken"], batch, rounds)

    heat = compete({8: ["a", "broken"]}, ask, lambda: 1.0)[8]
    assert heat.live == ["a"]


@given(times=st.lists(st.floats(0.5, 20.0), min_size=1, max_size=5), budget=st.floats(0.0, 2.0),
       seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_the_budget_is_kept_but_for_the_first_look(times: list[float], budget: float, seed: int) -> None:
    arms = {f"a{index}": value for index, value in enumerate(times)}
    track = Track({1: arms, 8: {name: 4 * value for name, value in arms.items()}}, noise=0.05, seed=seed)
    track.run(budget)
    spent = budget - track.left
    first = sum(3 * (LOOKS[0] * value / 1e3 * 5 + LOOKS[0] * CALL_OVERHEAD) for value in times for _ in (1, 8))
    # Slow patches make a round dearer than its median said; a look doubles what was seen at most.
    assert spent <= 2.0 * budget + first


@given(seed=st.integers(0, 10_000), order=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_the_order_of_the_arms_changes_nothing(seed: int, order: int) -> None:
    arms = {"a": 1.0, "b": 1.02, "c": 1.1, "d": 2.5}
    shuffled = dict(random.Random(order).sample(list(arms.items()), len(arms)))
    heats = [Track({8: which}, noise=0.05, seed=seed).run()[8] for which in (arms, shuffled)]
    assert heats[0].times == heats[1].times
    assert sorted(heats[0].live) == sorted(heats[1].live)


@given(times=st.lists(st.floats(1.0, 3.0), min_size=2, max_size=8), seed=st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_with_little_noise_the_leader_is_within_the_zone_of_the_best(times: list[float], seed: int) -> None:
    arms = {f"a{index}": value for index, value in enumerate(times)}
    heat = Track({8: arms}, noise=0.01, seed=seed).run()[8]
    assert arms[heat.leader()] <= min(times) * (1 + ZONE)

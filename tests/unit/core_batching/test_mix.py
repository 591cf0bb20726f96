"""What would suit traffic that was seen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.batching import Mix, SafeSet, Setting, candidate
from enginewright.core.batching.mix import TAIL
from enginewright.core.observed import Spent

FLAT = SafeSet(default=Setting(), curve=((1, 0.004), (8, 0.0042), (16, 0.0044)), max_batch=16, longest_delay_us=4400,
               load_seconds=1.0)
STEEP = replace(FLAT, curve=((1, 0.004), (16, 0.064)), longest_delay_us=64_000)
LONG = replace(FLAT, default=Setting(delay_us=3000))
# Two halves of four that wait for one another.
CROWD = Mix(taken=0.0084, waited=0.0043, batch=4, inside=7.4)


def test_means_are_told_from_counters() -> None:
    """In 10 s of replicas 800 requests waited 2 s and were computed for 4 s, in 200 batches."""
    found = Mix.of(Spent(10.0, 800, 2.0, 4.0, 200))
    assert found == Mix(taken=0.0075, waited=0.0025, batch=4.0, inside=0.6)
    assert found.computed == pytest.approx(0.005)


def test_clients_that_wait_are_all_let_into_one_batch() -> None:
    found = candidate(CROWD, FLAT)
    assert found is not None
    assert found.crowd == 8
    assert found.setting == Setting(delay_us=4300, preferred=(8, 16))
    assert found.expected == pytest.approx(0.0042)
    assert "8 clients" in found.why


def test_bursts_meet_in_a_shorter_time() -> None:
    found = candidate(Mix(taken=0.007, waited=0.003, batch=3.5, inside=2.0), FLAT)
    assert found is not None
    assert found.setting == Setting(delay_us=900)


def test_who_waits_in_vain_is_sent_at_once() -> None:
    found = candidate(Mix(taken=0.007, waited=0.003, batch=1.1, inside=0.3), LONG)
    assert found is not None
    assert (found.setting, found.crowd) == (Setting(), 1)
    assert found.expected == pytest.approx(0.004)


@pytest.mark.parametrize(("mix", "safe"), [
    (Mix(taken=0.0041, waited=0.0001, batch=1.0, inside=0.2), FLAT),  # lone requests, and no delay
    (Mix(taken=0.005, waited=0.001, batch=1.4, inside=0.5), LONG),  # neither alone nor together
    (Mix(taken=0.008, waited=0.004, batch=2.4, inside=2.0), FLAT),  # a busy stream
    (CROWD, STEEP),  # a batch of all takes as long as those of the halves
    (CROWD, replace(FLAT, max_batch=7)),  # more than one batch holds
    (CROWD, replace(FLAT, objective_seconds=0.008)),  # held back in vain they would be late
    (replace(CROWD, inside=40.0, taken=0.05, waited=0.045), FLAT),  # a backlog
], ids=["lone", "between", "stream", "steep", "too many", "objective", "backlog"])
def test_left_alone(mix: Mix, safe: SafeSet) -> None:
    assert candidate(mix, safe) is None


def test_a_slower_machine_gets_longer_delays() -> None:
    slower = Mix(taken=0.0168, waited=0.0084, batch=4, inside=7.7)
    assert candidate(slower, FLAT) is None, "no delay is longer than what the measurements allow"
    found = candidate(slower, replace(FLAT, longest_delay_us=9000))
    assert found is not None
    assert found.setting.delay_us == pytest.approx(8800, abs=300)


@pytest.mark.parametrize(("mix", "suits"), [
    (CROWD, False), (replace(CROWD, batch=8.0), True), (replace(CROWD, batch=5.2), True),
    (replace(CROWD, batch=5.1), False), (replace(CROWD, batch=8.0, inside=12.1), False),
    (replace(CROWD, batch=8.0, taken=0.011), False), (Mix(taken=0.008, waited=0.004, batch=1.0, inside=0.2), False),
])
def test_a_crowd_that_shrank_or_grew_or_is_another_does_not_fit(mix: Mix, suits: bool) -> None:
    found = candidate(CROWD, FLAT)
    assert found is not None
    assert found.suits(mix, 0.0084) is suits


@pytest.mark.parametrize(("mix", "suits"), [
    (Mix(taken=0.02, waited=0.01, batch=4.0, inside=3.0), True),
    (Mix(taken=0.005, waited=0.001, batch=1.4, inside=0.3), False),
])
def test_bursts_may_come_closer_but_not_stay_away(mix: Mix, suits: bool) -> None:
    found = candidate(Mix(taken=0.007, waited=0.003, batch=3.5, inside=2.0), FLAT)
    assert found is not None
    assert (found.suits(mix, 0.005), found.kind) == (suits, 0)


mixes = st.builds(
    lambda computed, waited, batch, inside: Mix(computed + waited, waited, batch, inside),
    st.floats(1e-4, 0.1), st.floats(0, 0.1), st.floats(1, 16), st.floats(0.01, 64),
)
safes = st.builds(
    lambda flat, delay, objective, longest: replace(
        FLAT, curve=((1, 0.004), (16, 0.004 * flat)), default=Setting(delay_us=delay), objective_seconds=objective,
        longest_delay_us=max(delay, longest)),
    st.floats(1, 16), st.integers(0, 5000), st.none() | st.floats(0.001, 0.1), st.integers(0, 50_000),
)


@given(mix=mixes, safe=safes)
def test_only_what_is_safe_and_costs_the_tail_nothing(mix: Mix, safe: SafeSet) -> None:
    found = candidate(mix, safe)
    if found is None:
        return
    assert found.setting != safe.default
    assert safe.holds(found.setting)
    assert all(1 <= size <= safe.max_batch for size in found.setting.preferred)
    if found.crowd > 1:
        assert found.setting.delay_us / 1e6 + found.expected <= TAIL * mix.taken + 1e-9

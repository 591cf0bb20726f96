"""Following the traffic: trials, what is kept, and what a trial that gains nothing may cost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.batching import SafeSet, Setting, State, begin, follow, loaded, refused, restart, server_lost
from enginewright.core.batching.follow import DWELL, DWELL_LOADS, LOOK, REFUSED, SETTLE, SHARE
from enginewright.core.observed import Spent

SAFE = SafeSet(default=Setting(), curve=((1, 0.004), (8, 0.0042), (16, 0.0044)), max_batch=16, longest_delay_us=4400,
               load_seconds=1.0)
TOGETHER = Setting(delay_us=4300, preferred=(8, 16))
# Eight clients in halves, all together, held back in vain, and one client alone: of one second.
HALVES = Spent(1.0, 900, 900 * 0.0043, 900 * 0.0041, 225)
WHOLE = Spent(1.0, 1600, 1600 * 0.0006, 1600 * 0.0042, 200)
VAIN = Spent(1.0, 100, 100 * 0.0044, 100 * 0.004, 100)
LONE = Spent(1.0, 50, 0.0, 50 * 0.004, 50)
Traffic = Callable[[float, Setting], Spent | None]


def states(traffic: Traffic, seconds: int, safe: SafeSet = SAFE) -> Iterator[State]:
    state = begin(0.0, safe)
    for second in range(1, seconds + 1):
        state = follow(state, float(second), traffic(second, state.setting), safe)
        yield state


def crowd(_: float, setting: Setting) -> Spent:
    return WHOLE if setting == TOGETHER else HALVES


def test_a_crowd_is_let_together_and_the_setting_is_kept() -> None:
    seen = list(states(crowd, 60))
    first = next(state for state in seen if state.setting != SAFE.default)
    assert (first.time, first.setting, first.phase) == (2 * LOOK, TOGETHER, "trial")
    assert "8 clients" in first.why
    assert seen[-1].phase == "kept"
    assert "4.8 ms a request, 8.4 ms before" in seen[-1].why
    assert len({state.setting for state in seen}) == 2
    assert sum(one.setting != other.setting for one, other in pairwise(seen)) == 1


def test_it_goes_back_in_two_seconds_when_the_crowd_is_gone() -> None:
    def traffic(second: float, setting: Setting) -> Spent:
        return crowd(second, setting) if second <= 30 else VAIN if setting == TOGETHER else LONE

    seen = list(states(traffic, 60))
    assert seen[29].setting == TOGETHER
    assert [state.setting for state in seen[32:]] == [SAFE.default] * 28
    assert "traffic changed" in seen[32].why


def test_one_second_of_something_else_is_not_a_change() -> None:
    def traffic(second: float, setting: Setting) -> Spent:
        return VAIN if setting == TOGETHER and second in (30, 35) else crowd(second, setting)

    assert [state.setting for state in states(traffic, 60)][10:] == [TOGETHER] * 50


def test_a_window_that_saw_the_shift_is_not_believed() -> None:
    """Four seconds of lone requests, then a crowd that looks smaller than it is, for one look."""
    small = Spent(1.0, 500, 500 * 0.004, 500 * 0.0041, 250)

    def traffic(second: float, setting: Setting) -> Spent:
        return LONE if second <= 4 else small if second <= 6 else crowd(second, setting)

    seen = list(states(traffic, 30))
    assert {state.setting for state in seen} == {SAFE.default, TOGETHER}


def test_others_that_look_alike_are_told_by_what_requests_take() -> None:
    def traffic(second: float, setting: Setting) -> Spent:
        return slow if setting == TOGETHER and second > 30 else crowd(second, setting)

    slow = replace(WHOLE, waited=WHOLE.waited + WHOLE.answered * 0.002)
    seen = list(states(traffic, 32))
    assert seen[29].setting == TOGETHER
    assert seen[-1].setting == SAFE.default
    assert "6.8 ms a request" in seen[-1].why


def test_what_gains_nothing_is_taken_back_and_not_tried_again_soon() -> None:
    seen = list(states(lambda _, __: HALVES, 600))
    away = [state.time for state in seen if state.setting != SAFE.default]
    assert away, "it was tried"
    assert away[-1] - away[0] <= SETTLE + SAFE.load_seconds + LOOK + 1
    assert "gained nothing" in seen[-1].why


def test_what_makes_it_worse_ends_before_the_look_is_over() -> None:
    def traffic(_: float, setting: Setting) -> Spent:
        return HALVES if setting == SAFE.default else replace(HALVES, waited=900 * 0.012)

    away = [state.time for state in states(traffic, 100) if state.setting != SAFE.default]
    assert len(away) <= SETTLE + SAFE.load_seconds + 1


def test_a_kept_setting_is_held_against_the_default_from_time_to_time() -> None:
    """Traffic whose gain is gone, and that looks the same."""
    def traffic(second: float, setting: Setting) -> Spent:
        return crowd(second, setting) if second < 100 else gone if setting == TOGETHER else quick

    quick = Spent(1.0, 1000, 1000 * 0.0022, 1000 * 0.0041, 250)
    gone = Spent(1.0, 1400, 1400 * 0.0018, 1400 * 0.0042, 1400 / 8)
    seen = list(states(traffic, 4000))
    assert seen[1500].setting == TOGETHER
    back = next(state.time for state in seen if state.time > 100 and state.setting == SAFE.default)
    assert back <= 2000
    away = [state for state in seen if state.time > back and state.setting != SAFE.default]
    assert len(away) < 20


def test_loads_take_no_more_than_their_share_of_the_time() -> None:
    """A crowd that comes and goes each half minute."""
    def traffic(second: float, setting: Setting) -> Spent:
        return crowd(second, setting) if int(second) // 30 % 2 else VAIN if setting == TOGETHER else LONE

    seen = list(states(traffic, 7200))
    loads = sum(one.setting != other.setting for one, other in pairwise(seen)) * SAFE.load_seconds
    assert 0 < loads <= 3 * (SETTLE + SAFE.load_seconds + LOOK) + SHARE * SAFE.allowed * 7200 + 2 * SAFE.load_seconds


def test_trials_lie_a_dwell_apart() -> None:
    """Traffic that changes each ten seconds."""
    def traffic(second: float, setting: Setting) -> Spent:
        return crowd(second, setting) if int(second) // 10 % 2 else VAIN if setting == TOGETHER else LONE

    seen = list(states(traffic, 600))
    trials = [other.time for one, other in pairwise(seen) if one.phase == "default" and other.phase == "trial"]
    assert len(trials) > 2
    assert min(other - one for one, other in pairwise(trials)) >= max(DWELL, DWELL_LOADS * SAFE.load_seconds)


@pytest.mark.parametrize("hole", [None, Spent(1.0)])
def test_what_cannot_be_told_changes_nothing(hole: Spent | None) -> None:
    assert {state.setting for state in states(lambda *_: hole, 60)} == {SAFE.default}


def test_an_unknown_second_begins_the_look_anew() -> None:
    seen = list(states(lambda second, _: None if second in (2, 4) else HALVES, 5))
    assert {state.setting for state in seen} == {SAFE.default}


def test_a_model_that_loads_slowly_is_left_alone_for_longer() -> None:
    slow = replace(SAFE, load_seconds=30.0)
    seen = list(states(lambda second, setting: crowd(second, setting) if second > 70 else LONE, 110, slow))
    assert next(state.time for state in seen if state.phase == "kept") >= 71 + LOOK + SETTLE + slow.load_seconds


spents = st.none() | st.builds(
    lambda answered, waited, computed, batch: Spent(1.0, answered, answered * waited, answered * computed,
                                                    answered / batch),
    st.floats(0, 2000), st.floats(0, 0.05), st.floats(0.001, 0.05), st.floats(1, 16),
)


@given(spent=st.lists(st.tuples(spents, st.integers(1, 40)), min_size=1, max_size=12),
       allowed=st.sampled_from([0.01, 0.05]))
def test_whatever_comes_only_safe_settings_and_few_fruitless_seconds(
    spent: list[tuple[Spent | None, int]], allowed: float
) -> None:
    """What replicas tell need make no sense."""
    safe = replace(SAFE, allowed=allowed, objective_seconds=0.02)
    seconds = [one for one, times in spent for _ in range(times)]
    seen = [begin(0.0, safe), *states(lambda second, _: seconds[int(second) - 1], len(seconds), safe)]
    assert all(safe.holds(state.setting) for state in seen)
    assert all(other.phase == "trial" for one, other in pairwise(seen)
               if one.setting == safe.default != other.setting), "what is new is on trial first"
    started = [other.time for one, other in pairwise(seen) if one.phase == "default" and other.phase == "trial"]
    assert all(other - one >= DWELL for one, other in pairwise(started))
    fruitless, begun = 0.0, 0.0
    for one, other in pairwise(seen):
        begun = other.time if one.phase == "default" and other.phase == "trial" else begun
        fruitless += other.time - begun if one.phase == "trial" and other.phase == "default" else 0.0
    cost = SETTLE + safe.load_seconds + LOOK
    longest = 20.0 + cost  # one with too few requests to tell
    assert fruitless <= 3 * cost + longest + SHARE * allowed * len(seconds)


def test_a_load_that_takes_long_is_waited_for() -> None:
    """What old batches took, of before the load was done, says nothing of the trial."""
    *_, trial = itertools.takewhile(lambda state: state.phase == "default", states(crowd, 60))
    trial = follow(trial, trial.time + 1, HALVES, SAFE)
    assert trial.phase == "trial"
    late = trial.time + 30
    state = loaded(trial, late, SAFE)
    state = follow(state, late, VAIN, SAFE)
    state = follow(state, late + SETTLE / 2, VAIN, SAFE)
    assert (state.phase, state.seen) == ("trial", Spent())
    for second in range(1, 6):
        state = follow(state, late + SETTLE + second, WHOLE, SAFE)
    assert state.phase == "kept"


def test_after_a_load_that_failed_nothing_is_tried_for_an_hour() -> None:
    trial = next(state for state in states(crowd, 60) if state.phase == "trial")
    state = refused(trial, trial.time, "no memory", SAFE)
    assert (state.setting, state.phase, state.why) == (SAFE.default, "default", "no memory")
    tried = None
    while tried is None and state.time < 2 * REFUSED:
        state = follow(state, state.time + 1, HALVES, SAFE)
        tried = state.tried if state.phase == "trial" else None
    assert tried is not None
    assert REFUSED <= tried - trial.time <= REFUSED + 10 * LOOK


def test_each_server_that_a_load_takes_with_it_bars_trials_for_twice_as_long() -> None:
    """In whatever phase: also one that is lost on the way back to the default costs requests."""
    state, bars = begin(0.0, SAFE), []
    for phase in ("default", "trial", "kept", "default"):
        time = state.closed
        state = server_lost(replace(state, phase=phase), time, "it ended", SAFE)
        assert (state.setting, state.phase) == (SAFE.default, "default")
        bars.append(state.closed - time)
        # What goes wrong in between shortens nothing, and a server that ends of something else lengthens nothing.
        assert restart(state, time + 1, SAFE).closed == state.closed
        state = restart(state, time + 1, SAFE)
    assert bars == [REFUSED, 2 * REFUSED, 4 * REFUSED, 8 * REFUSED]
    assert refused(state, state.closed, "no memory", SAFE).closed == state.closed + 8 * REFUSED
    assert refused(state, state.time, "no memory", SAFE).closed >= state.closed

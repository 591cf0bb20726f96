"""The scaler with a measured capacity: what it asks for, when it holds, and what must hold for every load."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.reasons import Reason
from enginewright.core.scaling import Capacity, ScaleDecision, ScaleLimits, decide_replicas
from enginewright.core.scaling import decide as scaling
from enginewright.core.scaling.arrivals import Interval, dispersion, dispersion_over, intervals, level
from enginewright.core.scaling.backlog import Queue, left_over, replicas_to_drain
from enginewright.core.scaling.capacity import largest_rate, late_share, replicas_for
from enginewright.core.scaling.forecast import forecast
from enginewright.core.scaling.seen import Belief, believe
from enginewright.core.scaling.trust import overfull, slower_than_believed
from enginewright.core.signals import Sample, SignalWindow, Work
from enginewright.observe.window import Window

ONE_BY_ONE = Capacity(throughput=20, curve=((1, 0.05),), objective_seconds=0.2, cold_start_seconds=20)
LIMITS = ScaleLimits(min_replicas=1, max_replicas=30)


def counted(arrived: Iterable[float | None]) -> list[Interval]:
    samples = [Sample(time=float(at), ready=1, arrived=came) for at, came in enumerate([0.0, *arrived])]
    return list(intervals(samples))


def play(
    arrived: Sequence[float | None], capacity: Capacity = ONE_BY_ONE, replicas: int = 1, limits: ScaleLimits = LIMITS,
    queued: float = 0.0,
) -> list[ScaleDecision]:
    """Decisions after each second; replicas are there at once and the queue is as given."""
    seen = SignalWindow(started=-10_000.0)
    made = []
    for second, came in enumerate(arrived):
        sample = Sample(time=float(second), ready=replicas, arrived=came,
                        pending={f"r{index}": queued / replicas for index in range(replicas)})
        seen = replace(seen, samples=(*seen.samples, sample)[-300:])
        made.append(decide_replicas(seen, replicas, limits, float(second), capacity))
        wishes = (*seen.recommendations, *((float(second), wish) for wish in made[-1].wishes))
        seen = replace(seen, recommendations=wishes[-300:])
        replicas = made[-1].replicas
    return made


def test_more_replicas_come_only_for_what_was_needed_all_through_the_up_window() -> None:
    """A little below a step five would be kept, as tolerance wants, and four do: that is no wish for five."""
    each = largest_rate(ONE_BY_ONE, ONE_BY_ONE.patience(LIMITS.target))
    below, above = 0.95 * 4 * each, 1.2 * 4 * each
    made = play([below] * 120 + [above] * 60, replicas=4, limits=replace(LIMITS, up_window=30.0))
    assert {(one.up, one.recommendation) for one in made[60:120]} == {(4, 5)}
    first = next(second for second, one in enumerate(made[120:]) if one.replicas > 4)
    assert 30 <= first <= 45, "the rate is a mean of some seconds, so that it takes some to rise"


@pytest.mark.parametrize("share", [0.5, 0.9, 1.0])
@pytest.mark.parametrize(("instances", "patience"), [(1, 0.1), (1, 0.2), (2, 0.2), (4, 0.15)])
def test_at_the_largest_rate_hardly_more_are_late_than_allowed(instances: int, patience: float, share: float) -> None:
    capacity = Capacity(throughput=20 * instances, curve=((1, 0.05),), instances=instances, objective_seconds=patience)
    rate = share * largest_rate(capacity, patience)
    draw = random.Random(1)
    free, now, late, requests = [0.0] * instances, 0.0, 0, 40_000
    for _ in range(requests):
        now += draw.expovariate(rate)
        soonest = free.index(min(free))
        free[soonest] = max(now, free[soonest]) + 0.05
        late += free[soonest] - now > patience + 1e-9
    assert late / requests <= 0.02
    assert late / requests >= 0.004 or share < 1


def test_a_batcher_carries_more_than_single_requests() -> None:
    batches = Capacity(throughput=400, curve=((1, 0.01), (8, 0.02)), objective_seconds=0.1)
    assert largest_rate(batches, 0.1) > 1.5 * largest_rate(replace(batches, curve=((1, 0.01),)), 0.1)


# One request alone takes longer than two together do, where an engine for each was chosen; (batch, seconds).
DEAR_ALONE = ((1, 0.0118), (2, 0.0118), (4, 0.0118), (8, 0.021))
FLAT = ((1, 0.005), (4, 0.0055), (8, 0.006), (32, 0.01))
CHEAP_ALONE = ((1, 0.004), (2, 0.0065), (4, 0.01))


@pytest.mark.parametrize(("throughput", "instances", "curve", "queued", "share"), [
    pytest.param(491, 2, DEAR_ALONE, 3, (0.5, 0.7), id="dear alone"),
    pytest.param(491, 2, DEAR_ALONE, 8, (0.7, 0.9), id="dear alone, many queued"),
    pytest.param(3200, 1, FLAT, 4, (0.2, 0.4), id="hardly dearer together"),
    pytest.param(422, 2, CHEAP_ALONE, 3, (0.5, 0.7), id="cheap alone"),
    pytest.param(20, 1, ((1, 0.05),), 3, (0.4, 0.6), id="one by one"),
])
def test_without_an_objective_a_replica_is_given_a_rate_that_its_batches_carry(
    throughput: float, instances: int, curve: tuple[tuple[int, float], ...], queued: float, share: tuple[float, float],
) -> None:
    capacity = Capacity(throughput=throughput, curve=curve, instances=instances)
    assert share[0] < largest_rate(capacity, capacity.patience(queued)) / throughput < share[1]


@pytest.mark.parametrize(("capacity", "seconds"), [
    pytest.param(Capacity(throughput=20), 0.2, id="throughput alone"),
    pytest.param(Capacity(throughput=20, curve=((1, 0.01),)), 0.16, id="slower than its batches"),
    pytest.param(Capacity(throughput=80, curve=((1, 0.05),), instances=4), 0.0875, id="side by side"),
    pytest.param(Capacity(throughput=80, curve=((1, 0.05),), instances=4, delay_seconds=0.01), 0.0975, id="held back"),
    pytest.param(Capacity(throughput=422, curve=CHEAP_ALONE, instances=2), 0.004 + 3 / 422, id="cheap alone"),
    # Each of three takes half of 11.8 ms, one by one; in batches of four they take less, but two batches' time more.
    pytest.param(Capacity(throughput=491, curve=DEAR_ALONE, instances=2), 0.0118 + 3 * 0.0059, id="dear alone"),
    pytest.param(Capacity(throughput=3200, curve=FLAT), 2 * 0.006 + 3 * 0.006 / 8, id="hardly dearer together"),
    pytest.param(Capacity(throughput=491, curve=DEAR_ALONE, objective_seconds=0.05), 0.05, id="an objective"),
])
def test_without_an_objective_a_request_has_the_time_of_those_before_it(capacity: Capacity, seconds: float) -> None:
    assert capacity.patience(3) == pytest.approx(seconds)


def test_late_share_grows_with_the_rate_and_is_one_when_too_much_comes() -> None:
    shares = [late_share(rate, ONE_BY_ONE, 0.1) for rate in (1, 5, 10, 19, 20, 40)]
    assert shares == sorted(shares)
    assert shares[-2:] == [1.0, 1.0]
    assert late_share(math.nextafter(20, 0), ONE_BY_ONE, 0.1) == 1.0


@given(st.floats(0.1, 500), st.floats(0.06, 2), st.floats(1, 20), st.integers(1, 30))
def test_fewer_replicas_would_not_do(rate: float, patience: float, spread: float, most: int) -> None:
    wanted = replicas_for(rate, ONE_BY_ONE, patience, spread, most)
    assert 1 <= wanted <= most + 1
    assert replicas_for(rate * 1.5, ONE_BY_ONE, patience, spread, most) >= wanted
    assert replicas_for(rate, ONE_BY_ONE, patience + 0.1, spread, most) <= wanted


@pytest.mark.parametrize(("queued", "asked"), [(4.0, 1), (17.0, 5)])
def test_a_queue_depth_that_the_user_wrote_is_kept_to(queued: float, asked: int) -> None:
    """Nineteen may wait and be in time, but no more than four each are wanted: who asks for more gets it."""
    lax = replace(ONE_BY_ONE, objective_seconds=2.0)
    free, bound = (play([10.0] * 60, lax, limits=replace(LIMITS, bounded=bounded), queued=queued)
                   for bounded in (False, True))
    assert free[-1].replicas == 1
    assert bound[-1].replicas == asked
    assert "with 4 queued at most" in bound[-1].message
    assert "queued at most" not in free[-1].message
    # Arrivals still ask for theirs.
    assert play([200.0] * 60, lax, limits=replace(LIMITS, bounded=True))[-1].replicas > asked + 5


def test_an_objective_below_the_compute_time_is_told_and_lived_with() -> None:
    capacity = replace(ONE_BY_ONE, objective_seconds=0.03)
    assert capacity.shortfall_seconds == pytest.approx(0.02)
    assert capacity.patience(4) == pytest.approx(0.1)
    assert play([10.0] * 60, capacity)[-1].replicas < LIMITS.max_replicas


def test_a_step_is_answered_within_three_seconds_by_what_it_needs() -> None:
    made = play([10.0] * 60 + [100.0] * 3, replicas=2)
    assert made[-1].replicas >= 100 / largest_rate(ONE_BY_ONE, 0.2)
    assert made[-1].reason is Reason.SCALING or made[-1].replicas == made[-2].replicas


def test_a_decision_tells_what_it_was_made_from() -> None:
    first = next(one for one in play([40.0] * 8) if one.replicas > 1)
    assert "40.0 requests/s" in first.message
    assert "within 200 ms at p99" in first.message
    assert "instead of 1" in first.message


def test_a_steady_load_says_the_same_every_second() -> None:
    draw = random.Random(3)
    made = play([float(sum(draw.random() < 0.1 for _ in range(300))) for _ in range(200)], replicas=4)
    assert len({one.message for one in made[60:] if one.reason is Reason.STEADY}) == 1


def test_what_is_queued_asks_for_more_than_the_rate_does() -> None:
    patient = replace(LIMITS, target=1000)  # queue depth alone would ask for nothing
    easy = replace(ONE_BY_ONE, objective_seconds=1.0)
    calm, behind = (play([50.0] * 60, easy, replicas=3, queued=queued, limits=patient) for queued in (0, 2000))
    assert behind[-1].replicas > calm[-1].replicas
    assert any("would still wait" in one.message for one in behind)


def test_replicas_that_start_are_counted_on_and_overdue_ones_are_not() -> None:
    here = [Queue(waiting=100, throughput=20)]
    alone = left_over(here, 30, (), 20, 20)
    assert [one.waiting for one in alone] == [pytest.approx(300)]
    helped = left_over(here, 30, (15.0, 15.0), 20, 20)
    assert [one.waiting for one in helped] == [0.0, 0.0, 0.0]
    assert left_over(here, 30, (100.0, 100.0), 20, 20) == alone


def test_a_slow_replica_keeps_its_queue_whatever_the_others_could_take() -> None:
    here = [Queue(waiting=0, throughput=20)] * 3 + [Queue(waiting=0, throughput=2)]
    left = left_over(here, 40, (), 20, 20)
    assert [one.waiting for one in left] == [0, 0, 0, 160]
    assert replicas_to_drain(left[3:], 40, 10) == 40  # half of what it does, for what comes: its queue needs the rest
    assert replicas_to_drain([], 40, 10) == 0


def test_unknown_arrivals_are_no_zero() -> None:
    made = play([60.0] * 120 + [None] * 60, replicas=6)
    assert {one.replicas for one in made[-45:]} == {made[120].replicas}
    assert made[-1].hold
    assert made[-1].reason is Reason.HOLDING


def test_without_arrivals_or_capacity_the_queue_decides() -> None:
    made = play([None] * 5, queued=18)
    assert made[-1].replicas == 5
    assert "18 queued requests on 1 replica" in made[1].message


def test_replicas_may_go_in_any_pass_and_all_of_them_hear_the_same() -> None:
    """One that looks every seventh second only, never when a step of the replay ends, lets go as well."""
    window, told = Window(-10_000.0), []
    for second in range(300):
        window.add(Sample(time=float(second), ready=8, arrived=80.0 if second < 60 else 10.0, pending={"r0": 0.0}))
        made = decide_replicas(window.view(), 8, LIMITS, float(second), ONE_BY_ONE)
        again = decide_replicas(window.view(), 8, LIMITS, float(second), ONE_BY_ONE)
        assert again == made
        window.recommend(float(second), *made.wishes)
        told.append(made.replicas)
    assert {count for second, count in enumerate(told) if second % 7 == 3 and second > 150} == {told[-1]}
    assert told[-1] < 8


def test_bursts_that_come_back_find_replicas_and_one_that_does_not_is_let_go() -> None:
    calm, burst = [10.0] * 100, [100.0] * 25
    again = play((calm + burst) * 4 + calm, limits=LIMITS)
    assert again[-1].replicas > play(calm * 4, limits=LIMITS)[-1].replicas
    falling = play([100.0] * 100 + [10.0] * 200)
    assert falling[-1].replicas == play([10.0] * 100)[-1].replicas


def test_a_given_window_is_kept_to() -> None:
    made = play([100.0] * 60 + [5.0] * 240, limits=replace(LIMITS, down_window=100))
    enough = 100 / largest_rate(ONE_BY_ONE, 0.2)
    assert all(one.replicas >= enough for one in made[60:158])
    assert made[-1].replicas < enough


def test_dispersion_is_one_for_poisson_and_more_for_clumps() -> None:
    draw = random.Random(5)
    poisson = counted([float(sum(draw.random() < 0.02 for _ in range(1000))) for _ in range(300)])
    clumped = [one._replace(arrived=4 * one.arrived) for one in poisson]
    assert dispersion(poisson) == pytest.approx(1, abs=0.25)
    assert dispersion(clumped) == pytest.approx(4, rel=0.25)
    assert dispersion_over(clumped, 0.1, dispersion(clumped)) == pytest.approx(1.3, abs=0.15)


def test_a_gap_and_longer_intervals_are_no_clumps() -> None:
    """A minute without answers, and after it samples that are ten seconds apart: the rate is the same throughout."""
    draw = random.Random(5)

    def came(seconds: int) -> float:
        return float(sum(draw.random() < 0.02 for _ in range(1000 * seconds)))

    fine = [Interval(float(at), 1.0, came(1)) for at in range(1, 31)]
    coarse = [Interval(30.0 + 60 + 10 * at, 10.0, came(10)) for at in range(1, 21)]
    assert dispersion([*fine, *coarse]) == pytest.approx(1, abs=0.4)
    step = [*(one._replace(arrived=0.0) for one in fine[-5:]), *(one._replace(arrived=2000.0) for one in coarse[:3])]
    assert dispersion(step) == 1.0


def test_a_gap_is_no_interval() -> None:
    assert [one.arrived for one in counted([1.0, None, 3.0])] == [1.0, 3.0]


def test_of_arrivals_no_more_is_looked_at_than_was_asked_for() -> None:
    samples = [Sample(time=float(at), ready=1, arrived=None if 30 <= at < 90 else 1.0) for at in range(100)]
    assert [one.time for one in intervals(samples, 4.0)] == [95.0, 96.0, 97.0, 98.0, 99.0]
    assert intervals(samples, 4.0, least=12)[0].time == 28.0, "there are ten since the gap"
    assert intervals(samples, 400.0) == intervals(samples)
    assert len(intervals(samples)) == 39


@pytest.mark.parametrize("seed", range(6))
def test_what_is_not_looked_at_would_change_no_decision(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads that change, with gaps and long silences, and cold starts of all lengths."""
    draw = random.Random(seed)
    series: list[float | None] = []
    while len(series) < 600:
        rate, seconds = draw.choice([0, 2, 20, 90]), draw.choice([1, 3, 20, 60, 150])
        known = draw.random() < 0.8
        series += [float(sum(draw.random() < rate / 200 for _ in range(200))) if known else None
                   for _ in range(seconds)]
    capacity = replace(ONE_BY_ONE, cold_start_seconds=[0.0, 1.0, 3.0, 8.0, 15.0, 30.0][seed])
    made = recorded(series, capacity)
    monkeypatch.setattr(scaling, "looked_back", lambda _: math.inf)
    assert recorded(series, capacity) == made


def recorded(series: Iterable[float | None], capacity: Capacity) -> list[ScaleDecision]:
    """As :func:`play`, over what a window keeps of an hour."""
    window, replicas, made = Window(-10_000.0), 1, list[ScaleDecision]()
    for second, came in enumerate(series):
        window.add(Sample(time=float(second), ready=replicas, arrived=came, pending={"r0": 0.0}))
        made.append(decide_replicas(window.view(), replicas, LIMITS, float(second), capacity))
        window.recommend(float(second), *made[-1].wishes)
        replicas = made[-1].replicas
    return made


def test_level_follows_a_sure_rise_at_once_and_chance_not_at_all() -> None:
    calm = [20.0, 21.0, 19.0, 20.0] * 10
    assert level(counted([*calm, 26.0, 27.0]), 1.0) == pytest.approx(20, abs=1)
    assert level(counted([*calm, 60.0, 60.0]), 1.0) == pytest.approx(60)


def begun(known: int, starting: tuple[float, ...]) -> int:
    """Replicas that two are made after ``known`` seconds of 16 requests a second and two of 24."""
    arrived = [16.0] * known + [24.0, 24.0]
    seen = SignalWindow(started=0.0)
    for second, came in enumerate([None, *arrived]):
        sample = Sample(time=float(second), ready=1, arrived=came, pending={"r0": 0.0}, starting=starting)
        seen = replace(seen, samples=(*seen.samples, sample))
    return decide_replicas(seen, 2, LIMITS, float(len(arrived)), ONE_BY_ONE).replicas


def test_while_the_first_replicas_start_the_highest_rate_counts() -> None:
    """Two seconds of half as many more are chance where a load is known; where it has just begun, nothing says so."""
    assert begun(20, starting=(5.0,)) == math.ceil(24 / largest_rate(ONE_BY_ONE, 0.2)) == 3
    assert begun(20, starting=()) == 2
    assert begun(40, starting=(5.0,)) == 2


def test_the_forecast_votes_on_ramps_and_not_on_noise() -> None:
    ramp = forecast(counted([10 + 0.5 * second for second in range(120)]), 20)
    assert ramp is not None
    assert ramp.votes
    assert 70 < ramp.rate <= 80
    draw = random.Random(7)
    noise = forecast(counted([draw.uniform(0, 40) for _ in range(240)]), 20)
    assert noise is not None
    assert not noise.votes
    assert forecast(counted([5.0] * 20), 20) is None


@given(st.lists(st.floats(0, 400) | st.none(), min_size=1, max_size=40), st.integers(1, 30), st.floats(0, 100))
def test_always_within_the_limits_and_never_down_on_what_is_unknown(
    series: list[float | None], replicas: int, cold: float
) -> None:
    limits = ScaleLimits(min_replicas=2, max_replicas=12)
    made = play(series, replace(ONE_BY_ONE, cold_start_seconds=cold), replicas, limits)
    assert all(2 <= one.replicas <= 12 for one in made)


@given(st.floats(1, 250), st.integers(1, 20))
def test_a_constant_load_settles_and_stays(rate: float, replicas: int) -> None:
    made = play([rate] * 100, replicas=replicas)
    assert len({one.replicas for one in made[70:]}) == 1


def overloaded(does: float, *, seconds: int = 60, inflight: int = 100, most: int = 8) -> list[int]:
    """Replicas after each second when a closed loop keeps ``inflight`` requests waiting, and a replica that was
    measured at 1,000 requests a second does ``does``; new ones are there at once."""
    capacity = Capacity(throughput=1000, curve=((1, 0.001),), cold_start_seconds=13)
    limits = ScaleLimits(min_replicas=1, max_replicas=most, target=3)
    window, replicas, told = Window(-10_000.0), 1, []
    for second in range(seconds):
        pods = [f"r{index}" for index in range(replicas)]
        window.add(Sample(time=float(second), ready=replicas, pending=dict.fromkeys(pods, inflight / replicas),
                          arrived=does * replicas, served=dict.fromkeys(pods, does)))
        made = decide_replicas(window.view(), replicas, limits, float(second), capacity)
        window.recommend(float(second), *made.wishes)
        replicas = made.replicas
        told.append(replicas)
    return told


@pytest.mark.parametrize("does", [5.0, 300.0, 600.0, 900.0])
def test_a_queue_that_stays_scales_up_however_fast_replicas_were_measured(does: float) -> None:
    assert overloaded(does)[-1] == 8


def test_replicas_that_answer_nothing_at_all_are_not_enough() -> None:
    assert overloaded(0.0)[-1] == 8


@pytest.mark.parametrize("queued", [{"a": 12.0}, {"a": 6.0, "b": 6.0}])
def test_no_replica_goes_while_more_wait_than_can_be_answered_in_time(queued: dict[str, float]) -> None:
    """They answer nothing at all: queue depth asks for three, and keeps them."""
    capacity = Capacity(throughput=900, curve=((1, 0.005),), cold_start_seconds=13)
    limits = ScaleLimits(min_replicas=1, max_replicas=9, target=4, down_window=3)
    seen, replicas, told = SignalWindow(started=-10_000.0), len(queued), []
    for second in range(30):
        pending = {**dict.fromkeys((f"r{index}" for index in range(replicas - len(queued))), 0.0), **queued}
        sample = Sample(time=float(second), ready=replicas, pending=pending, arrived=0.0)
        seen = replace(seen, samples=(*seen.samples, sample))
        made = decide_replicas(seen, replicas, limits, float(second), capacity)
        seen = replace(seen, recommendations=(*seen.recommendations, (float(second), made.recommendation)))
        replicas = made.replicas
        told.append(replicas)
    assert told[-1] == 3
    assert told == sorted(told)


BELIEF = Belief(measured=ONE_BY_ONE, full=ONE_BY_ONE, fleet=ONE_BY_ONE, slowest=ONE_BY_ONE, own={"b": 10.0})


def sampled(*served: float | None, queued: float = 5.0, pod: str = "a") -> list[Sample]:
    """One a second with ``queued`` requests at ``pod``, which was full where it is said what it served."""
    pending = {"a": 0.0, "b": 0.0, pod: queued}
    return [Sample(time=float(at), ready=2, pending=pending, full={} if one is None else {pod: Work(1.0, one)})
            for at, one in enumerate(served)]


@pytest.mark.parametrize(("seconds", "own"), [(1.0, {}), (8.0, {"a": 30.0})])
def test_a_replica_of_which_too_little_was_seen_is_not_called_slower(seconds: float, own: dict[str, float]) -> None:
    capacity = Capacity(throughput=100, curve=((1, 0.01),))
    queues = {"a": 900.0, "b": 0.0}
    samples = [Sample(time=0.0, ready=2, pending=queues),
               Sample(time=seconds, ready=2, pending=queues, full={"a": Work(seconds, 30 * seconds)})]
    assert believe(samples, capacity).own == pytest.approx(own)


@pytest.mark.parametrize(("samples", "doubted", "slower"), [
    pytest.param(sampled(None, 17, 17, 17), True, True, id="slower"),
    pytest.param(sampled(None, 18, 18, 18), False, False, id="as believed"),
    pytest.param(sampled(None, 17, None, 17), True, False, id="not always full"),
    pytest.param(sampled(*[None] * 4), True, False, id="unknown"),
    pytest.param(sampled(*[None] * 4, queued=4.9), False, False, id="ordinary"),
    pytest.param(sampled(None, 8, 8, 8, pod="b"), False, False, id="known to be slow"),
    pytest.param(sampled(17, 17, 17), False, False, id="too few"),
    pytest.param([*sampled(None, 17, 17), *sampled(17, queued=1)], False, False, id="a moment"),
    pytest.param([], False, False, id="nothing"),
])
def test_a_queue_that_nothing_explains_is_doubted(samples: list[Sample], doubted: bool, slower: bool) -> None:
    found = overfull(samples, 4.9, BELIEF)
    assert found == ({"a"} if doubted else frozenset())
    assert slower_than_believed(samples, found) is slower

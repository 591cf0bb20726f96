"""Limits: schedules, what money pays for, and how far one step goes."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.reasons import Reason
from enginewright.core.scaling import ScaleLimits, decide_replicas, limits_of
from enginewright.core.scaling.limits import Step
from enginewright.core.scaling.schedules import holding_at
from enginewright.core.signals import Sample, SignalWindow
from enginewright.core.spec import AutoscalingSpec, ScheduleSpec
from enginewright.observe.window import Window

BERLIN = "Europe/Berlin"
OFFICE = {"name": "office", "timeZone": BERLIN, "start": "0 8 * * 1-5", "end": "0 18 * * 1-5", "minReplicas": 4}
NIGHT = {"name": "night", "start": "0 22 * * *", "end": "0 6 * * *", "maxReplicas": 2}
WEEKEND = {"name": "weekend", "start": "0 0 * * 6,0", "end": "0 0 * * 1", "minReplicas": 2}
HOURLY = {"name": "hourly", "start": "0 8-17 * * *", "end": "0 18,20 * * *", "minReplicas": 2}
CLOCK = {"name": "clock", "timeZone": BERLIN, "start": "30 2 * * *", "end": "30 4 * * *", "minReplicas": 3}


def spec(**given: Any) -> AutoscalingSpec:
    return AutoscalingSpec.model_validate({"maxReplicas": 10, **given})


def at(text: str, zone: str = "UTC") -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


@pytest.mark.parametrize(("schedule", "now", "holds"), [
    (OFFICE, at("2026-11-20T07:59:59", BERLIN), False),
    (OFFICE, at("2026-11-20T08:00:00", BERLIN), True),
    (OFFICE, at("2026-11-20T07:00:00"), True),  # a Friday, an hour later in Berlin
    (OFFICE, at("2026-07-20T06:00:00"), True),  # and two hours in summer
    (OFFICE, at("2026-11-20T17:59:59", BERLIN), True),
    (OFFICE, at("2026-11-20T18:00:00", BERLIN), False),
    (OFFICE, at("2026-11-22T12:00:00", BERLIN), False),  # a Sunday
    (NIGHT, at("2026-11-22T23:00:00"), True),
    (NIGHT, at("2026-11-22T05:59:00"), True),
    (NIGHT, at("2026-11-22T06:00:00"), False),
    (WEEKEND, at("2026-11-20T23:59:59"), False),
    (WEEKEND, at("2026-11-21T00:00:00"), True),  # two starts come before one end
    (WEEKEND, at("2026-11-21T12:00:00"), True),
    (WEEKEND, at("2026-11-22T12:00:00"), True),
    (WEEKEND, at("2026-11-23T00:00:00"), False),
    (HOURLY, at("2026-11-23T09:30:00"), True),
    (HOURLY, at("2026-11-23T19:00:00"), False),  # and two ends before one start
    (HOURLY, at("2026-11-23T21:00:00"), False),
    (NIGHT, at("2026-11-22T21:59:59.900000"), False),
    (CLOCK, at("2026-10-25T03:30:00", BERLIN), True),  # 02:30 came twice that day
    (CLOCK, at("2026-10-25T04:30:00", BERLIN), False),
    (CLOCK, at("2026-03-29T03:10:00", BERLIN), True),  # 02:30 did not come that day: 03:00 stands for it
    (CLOCK, at("2026-03-29T01:59:00", BERLIN), False),
    (CLOCK, at("2026-03-29T04:30:00", BERLIN), False),
])
def test_when_a_schedule_holds(schedule: dict[str, Any], now: datetime, holds: bool) -> None:
    found = holding_at((ScheduleSpec.model_validate(schedule),), now)
    assert (found is not None) == holds


@given(st.integers(0, 7 * 24 * 4), st.lists(st.integers(0, 23), min_size=1, max_size=4, unique=True),
       st.lists(st.integers(0, 23), min_size=1, max_size=4, unique=True))
def test_it_holds_from_each_start_to_the_next_end(quarters: int, starts: list[int], ends: list[int]) -> None:
    ends = sorted(set(ends) - set(starts)) or [next(hour for hour in range(24) if hour not in starts)]
    schedule = ScheduleSpec(name="any", start=f"0 {','.join(map(str, starts))} * * *",
                            end=f"0 {','.join(map(str, ends))} * * *", min_replicas=2)
    now = at("2026-11-22T00:00:00") + timedelta(minutes=15 * quarters)
    last = next(hour % 24 for hour in range(now.hour + 24, now.hour, -1) if hour % 24 in {*starts, *ends})
    assert (holding_at((schedule,), now) is not None) == (last in starts)


def test_of_several_the_first_counts() -> None:
    limits = limits_of(spec(schedules=[NIGHT, {**NIGHT, "name": "later", "maxReplicas": 5}]),
                       now=at("2026-11-22T23:00:00"))
    assert (limits.min_replicas, limits.max_replicas) == (1, 2)
    assert limits.ceiling == "maxReplicas 2 of schedule night"


def test_one_that_is_malformed_never_holds() -> None:
    """An object may be older than what refuses it."""
    wrong = [{**OFFICE, "start": "0 25 * * *"}, {**OFFICE, "timeZone": "Europe/Atlantis"},
             {**OFFICE, "end": "0 0 31 2 *"}]
    limits = limits_of(spec(schedules=wrong), now=at("2026-11-20T12:00:00"))
    assert limits == limits_of(spec())


@pytest.mark.parametrize(("ceiling", "price", "fewest", "most", "why"), [
    (10.0, 2.5, 1, 4, "costCeilingPerHour 10, which pays for 4 at 2.5 each"),
    (0.3, 0.1, 1, 3, "pays for 3"),  # 0.3 / 0.1 is less than 3 in floating point
    (9.9, 2.5, 1, 3, "pays for 3"),
    (100.0, 2.5, 1, 10, ""),
    (1.0, 2.5, 2, 2, "pays for 0"),  # the fewest run, whatever they cost
    (10.0, None, 1, 10, ""),
])
def test_what_money_pays_for(ceiling: float, price: float | None, fewest: int, most: int, why: str) -> None:
    limits = limits_of(spec(minReplicas=fewest, costCeilingPerHour=ceiling), price=price)
    assert (limits.min_replicas, limits.max_replicas) == (fewest, most)
    assert why in limits.most
    assert bool(why) == bool(limits.most)


def test_money_goes_before_a_schedule_that_allows_more() -> None:
    limits = limits_of(spec(schedules=[{**NIGHT, "maxReplicas": 8}], costCeilingPerHour=6), price=2,
                       now=at("2026-11-22T23:00:00"))
    assert limits.max_replicas == 3
    assert "costCeilingPerHour" in limits.ceiling


def full(queued: float, replicas: int, asked: tuple[tuple[float, int], ...], now: float = 100.0) -> SignalWindow:
    pending = {f"p{number}": queued / replicas for number in range(replicas)}
    samples = tuple(Sample(time=now - age, ready=replicas, pending=pending) for age in (2.0, 1.0, 0.0))
    return SignalWindow(started=0.0, samples=samples, asked=asked)


PODS, PERCENT = Step(value=2, percent=False, period=60.0), Step(value=100, percent=True, period=60.0)


@pytest.mark.parametrize(("steps", "asked", "current", "wanted"), [
    ((PODS,), ((0.0, 4),), 4, 6),
    ((PERCENT,), ((0.0, 4),), 4, 8),
    ((PODS, PERCENT), ((0.0, 4),), 4, 8),  # the one that allows most
    ((PODS,), ((0.0, 4), (50.0, 5)), 5, 6),  # one was added half a minute ago
    ((PODS,), ((0.0, 5), (50.0, 7)), 7, 7),
    ((PODS,), ((0.0, 4), (40.0, 7)), 7, 9),  # a minute ago
    ((PODS,), (), 4, 6),
    ((), ((0.0, 4),), 4, 12),
])
def test_up_by_steps(steps: tuple[Step, ...], asked: tuple[tuple[float, int], ...], current: int, wanted: int) -> None:
    limits = ScaleLimits(max_replicas=12, up_steps=steps)
    found = decide_replicas(full(96, current, asked), current, limits, 100.0)
    assert found.replicas == wanted
    assert ("autoscaling.behavior.scaleUp adds" in found.message) == (wanted < 12)
    assert found.recommendation == 24  # the wish is remembered as it is
    assert (found.reason == Reason.AT_LIMIT) == (wanted == current)


@pytest.mark.parametrize(("steps", "asked", "current", "wanted"), [
    ((PODS,), ((0.0, 8),), 8, 6),
    ((Step(value=50, percent=True, period=60.0),), ((0.0, 9),), 9, 4),
    ((PODS,), ((0.0, 8), (50.0, 7)), 7, 6),
    ((PODS,), ((0.0, 8), (50.0, 6)), 6, 6),
    ((PERCENT,), ((0.0, 8),), 8, 1),
    ((), ((0.0, 8),), 8, 1),
])
def test_down_by_steps(
    steps: tuple[Step, ...], asked: tuple[tuple[float, int], ...], current: int, wanted: int
) -> None:
    limits = ScaleLimits(max_replicas=12, down_window=0.0, down_steps=steps)
    found = decide_replicas(full(0, current, asked), current, limits, 100.0)
    assert found.replicas == wanted
    assert ("autoscaling.behavior.scaleDown removes" in found.message) == (wanted > 1)
    assert found.reason == Reason.SCALING  # no alarm: nobody needs more replicas
    assert ("Fewer replicas are needed, but have to wait" in found.message) == (wanted == current)


def test_a_step_holds_back_no_one_from_the_limits() -> None:
    limits = ScaleLimits(min_replicas=6, max_replicas=12, up_steps=(PODS,))
    assert decide_replicas(full(0, 2, ((0.0, 2),)), 2, limits, 100.0).replicas == 6
    down = ScaleLimits(max_replicas=3, down_steps=(PODS,))
    assert decide_replicas(full(100, 9, ((0.0, 9),)), 9, down, 100.0).replicas == 3


def test_a_change_for_the_sake_of_a_schedule_says_so() -> None:
    limits = limits_of(spec(schedules=[OFFICE]), now=at("2026-11-20T12:00:00"))
    up = decide_replicas(full(0, 1, ()), 1, limits, 100.0)
    assert up.replicas == 4
    assert "By minReplicas 4 of schedule office." in up.message
    steady = decide_replicas(full(0, 4, ()), 4, limits, 100.0)
    assert "at least by minReplicas 4 of schedule office" in steady.message


def test_a_change_for_the_sake_of_the_fewest_replicas_says_so() -> None:
    limits = ScaleLimits(min_replicas=2, max_replicas=3)
    up = decide_replicas(full(0, 1, ()), 1, limits, 100.0)
    assert up.replicas == 2
    assert up.message.endswith("By autoscaling.minReplicas 2.")
    assert "minReplicas" not in decide_replicas(full(100, 1, ()), 1, limits, 100.0).message


def test_what_costs_too_much_says_so() -> None:
    limits = limits_of(spec(costCeilingPerHour=6), price=2.0)
    up = decide_replicas(full(100, 1, ()), 1, limits, 100.0)
    assert up.replicas == 3
    assert "By autoscaling.costCeilingPerHour 6, which pays for 3 at 2 each." in up.message
    there = decide_replicas(full(100, 3, ()), 3, limits, 100.0)
    assert there.reason == Reason.AT_LIMIT
    assert "more than autoscaling.costCeilingPerHour 6" in there.message


@given(st.lists(st.floats(0, 200), min_size=5, max_size=60), st.integers(1, 5), st.integers(1, 5), st.integers(2, 20))
def test_no_step_leads_further_from_a_period_ago_than_allowed(
    queues: list[float], up: int, down: int, period: int
) -> None:
    limits = ScaleLimits(max_replicas=40, down_window=2.0, up_steps=(Step(value=up, percent=False, period=period),),
                         down_steps=(Step(value=down, percent=False, period=period),))
    window, current, history = Window(started=-100.0), 3, [3]
    for second, queued in enumerate(queues):
        window.ask(float(second), current)
        window.add(Sample(time=float(second), ready=current, pending={"p": queued}))
        made = decide_replicas(window.view(), current, limits, float(second))
        window.recommend(float(second), *made.wishes)
        current = made.replicas
        history.append(current)
    for second, (last, count) in enumerate(itertools.pairwise(history)):
        before = history[max(0, second - period)]
        assert min(last, before - down) <= count <= max(last, before + up)


def test_numbers_that_were_asked_for_are_kept_as_long_as_the_longest_period() -> None:
    window = Window(started=0.0)
    for second in range(5000):
        window.ask(float(second), second // 100)
    asked = window.view().asked
    assert asked[0] == (3100.0, 31)
    assert len(asked) == 19

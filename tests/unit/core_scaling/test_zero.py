"""When the last replica goes, and what brings one back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginewright.core.reasons import Reason
from enginewright.core.scaling import Capacity, ScaleDecision, ScaleLimits, decide_replicas
from enginewright.core.scaling.zero import quiet_since
from enginewright.core.signals import Sample, SignalWindow

LIMITS = ScaleLimits(min_replicas=0, max_replicas=8, zero_after=60.0, down_window=5.0)
QUIET = Sample(time=0.0, ready=2, pending={"a": 0.0, "b": 0.0}, arrived=0.0, held=0.0)


def window(*samples: Sample, started: float = 0.0) -> SignalWindow:
    """One sample a second."""
    return SignalWindow(started=started, samples=tuple(replace(one, time=float(at)) for at, one in enumerate(samples)))


def decide(seen: SignalWindow | None, current: int, now: float, limits: ScaleLimits = LIMITS) -> ScaleDecision:
    return decide_replicas(seen, current, limits, now)


def test_from_any_number_to_none_after_the_whole_time_without_a_request() -> None:
    seen = [QUIET] * 61
    assert decide(window(*seen[:60]), 2, 59.0).replicas == 1
    found = decide(window(*seen), 2, 60.0)
    assert (found.replicas, found.recommendation, found.reason) == (0, 0, Reason.SCALING)
    assert found.message == "No request for 60 s: no replica instead of 2."


@pytest.mark.parametrize("event", [
    {"arrived": 1.0}, {"arrived": None}, {"pending": {"a": 1.0, "b": 0.0}}, {"held": 1.0}], ids=str)
@pytest.mark.parametrize("at", [5, 60])
def test_whatever_may_be_a_request_begins_the_time_anew(event: dict[str, object], at: int) -> None:
    seen = [QUIET] * 61
    seen[at] = replace(QUIET, **event)  # type: ignore[arg-type]
    assert decide(window(*seen), 1, 60.0).replicas == 1
    assert decide(window(*seen, *[QUIET] * (at - 1)), 1, 59.0 + at).replicas == 1
    assert decide(window(*seen, *[QUIET] * at), 1, 60.0 + at).replicas == 0


def test_without_an_activator_that_answers_the_last_one_stays() -> None:
    seen = [replace(QUIET, held=None)] * 100
    assert decide(window(*seen), 1, 99.0).replicas == 1


def test_what_is_not_watched_for_long_enough_is_not_known() -> None:
    assert decide(None, 1, 100.0).replicas == 1
    assert decide(window(QUIET), 1, 100.0).replicas == 1, "a minute without a sample"
    assert quiet_since(()) is None


def test_where_one_is_the_least_nothing_of_it_happens() -> None:
    seen = [QUIET] * 200
    assert decide(window(*seen), 1, 199.0, replace(LIMITS, min_replicas=1)).replicas == 1
    assert decide(window(*seen), 3, 199.0, replace(LIMITS, min_replicas=1)).replicas == 1


ASLEEP = Sample(time=0.0, ready=0, held=0.0)


@pytest.mark.parametrize("held", [1.0, 500.0])
def test_the_first_request_starts_one_however_many_wait(held: float) -> None:
    found = decide(window(ASLEEP, replace(ASLEEP, held=held)), 0, 1.0)
    assert (found.replicas, found.queue_depth) == (1, held)
    assert "and no replica runs: 1 replica." in found.message


def test_it_sleeps_on_while_nobody_asks() -> None:
    found = decide(window(*[ASLEEP] * 100), 0, 99.0)
    assert (found.replicas, found.reason, found.hold) == (0, Reason.SCALED_TO_ZERO, False)
    assert decide(None, 0, 99.0).replicas == 0


@pytest.mark.parametrize("seen", [(), (ASLEEP,), (ASLEEP, *[replace(ASLEEP, held=None)] * 10)], ids=len)
def test_an_activator_that_does_not_answer_is_not_waited_for_long(seen: tuple[Sample, ...]) -> None:
    assert decide(window(*seen), 0, 10.0).replicas == 0
    found = decide(window(*seen), 0, 10.5)
    assert found.replicas == 1
    assert "so that no request waits unseen" in found.message


def test_while_one_starts_nothing_more_is_asked_for() -> None:
    waking = replace(ASLEEP, held=900.0, starting=(3.0,))
    assert decide(window(*[waking] * 20), 1, 19.0).replicas == 1


def test_awake_it_is_the_usual_rule() -> None:
    capacity = Capacity(throughput=10.0, curve=((1, 0.1),), objective_seconds=0.5, cold_start_seconds=10.0)
    busy = [replace(QUIET, pending={"a": 30.0, "b": 30.0}, arrived=40.0)] * 30
    for what in (None, capacity):
        found = decide_replicas(window(*busy), 2, LIMITS, 29.0, what)
        assert found == decide_replicas(window(*busy), 2, replace(LIMITS, min_replicas=1), 29.0, what)
        assert found.replicas > 2

"""What is kept between scrapes: bounded, and right across restarts of servers."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.clients.signals import ReplicaMetrics
from enginewright.core.probe import Match
from enginewright.core.scaling import ScaleLimits, decide_replicas
from enginewright.core.signals import ProbeResults, Reading, Sample, Spent, Traffic
from enginewright.core.spec import AutoscalingSpec
from enginewright.observe.window import (
    FORGOTTEN,
    OLD_KEPT,
    OLD_SECONDS,
    ROUNDS,
    SAMPLES,
    SIMILARITIES,
    UNANSWERED,
    Counters,
    Window,
)


def test_samples_are_bounded_and_oldest_first() -> None:
    window = Window(0.0)
    seconds, cells = SAMPLES + int(OLD_KEPT) + 1000, int(OLD_KEPT / OLD_SECONDS)
    for time in range(seconds):
        window.add(Sample(time=float(time), ready=1, arrived=2.0))
    samples = window.view().samples
    assert len(samples) <= SAMPLES + cells + 2
    assert sum(one.arrived or 0.0 for one in samples[-SAMPLES:]) == 2 * SAMPLES
    assert {one.arrived for one in samples[: cells - 1]} == {2 * OLD_SECONDS}
    assert samples[-1].time == seconds - 1
    assert [one.time for one in samples] == sorted(one.time for one in samples)


@pytest.mark.parametrize(("period", "jitter"), [
    (0.4, 0.0005), (1.0, 0.0), (1.0, 0.0005), (1.3, 0.002), (2.7, 0.05), (5.1, 0.0), (9.9, 0.2), (30.0, 0.5)])
def test_a_whole_hour_without_a_request_is_seen_however_often_replicas_are_asked(period: float, jitter: float) -> None:
    window, random, times = Window(0.0), Random(8), [0.0]
    while times[-1] < OLD_KEPT + 2 * SAMPLES * period:
        times.append(times[-1] + period + jitter * random.random())
    for time in times:
        window.add(Sample(time=time, ready=1, pending={"pod-1": 0.0}, arrived=0.0, held=0.0))
    limits = ScaleLimits(min_replicas=0, zero_after=OLD_KEPT)
    found = decide_replicas(window.view(), 1, limits, times[-1])
    assert found.replicas == 0
    assert len(window.view().samples) <= SAMPLES + 2 * OLD_KEPT / OLD_SECONDS + 2


@pytest.mark.parametrize("work", [{"running": {"pod-1": 1.0}}, {"pending": {"pod-1": 1.0}}, {"held": 1.0}], ids=str)
@pytest.mark.parametrize("apart", [1, 3], ids=["in all samples", "in every third"])
def test_the_time_without_a_request_begins_when_the_last_one_has_ended(work: dict[str, Any], apart: int) -> None:
    """However long ago it came: a stream may go on for longer than samples are kept as they are."""
    window, limits = Window(0.0), ScaleLimits(min_replicas=0, zero_after=600.0)
    idle = Sample(time=0.0, ready=1, pending={"pod-1": 0.0}, arrived=0.0, held=0.0)
    ended = int(40.5 * OLD_SECONDS)
    for time in range(int(ended + limits.zero_after) + 1):
        window.add(replace(idle, time=float(time), **(work if time <= ended and (ended - time) % apart == 0 else {})))
        if time % 100 in (0, 4, 5, 9):
            found = decide_replicas(window.view(), 1, limits, float(time))
            assert (found.replicas == 0) == (time >= ended + limits.zero_after), time


def test_the_longest_time_without_a_request_that_a_spec_can_ask_for_is_kept() -> None:
    field = AutoscalingSpec.model_json_schema()["properties"]["scaleToZeroAfterSeconds"]
    assert field["maximum"] <= OLD_KEPT


def test_arrivals_of_an_old_sample_that_could_not_tell_stay_unknown() -> None:
    window = Window(0.0)
    for time in range(SAMPLES + 40):
        window.add(Sample(time=float(time), ready=1, pending={"pod-1": 3.0}, arrived=None if time == 25 else 2.0))
    old = window.view().samples[:-SAMPLES]
    assert [one.arrived for one in old] == [22.0, 20.0, None, 18.0]
    assert not any(one.pending for one in old)


def test_what_requests_took_without_a_backlog_is_kept_until_another_revision_serves() -> None:
    window = Window(0.0)
    window.serve(["a"])
    for time in range(SAMPLES + 40):
        window.add(Sample(time=float(time), ready=2, pending={"p": 0.0, "q": 50.0},
                          spent={"p": Spent(1.0, 4.0, 0.5, 0.25, 2.0), "q": Spent(1.0, 9.0, 7.0, 1.0, 9.0)}))
    samples = window.view().samples
    assert samples[-1].calm == Spent(1.0, 4.0, 0.5, 0.25, 2.0)
    assert sum((one.calm for one in samples), Spent()).answered == 4 * (SAMPLES + 39)
    assert not any(one.spent for one in samples[:-SAMPLES])
    window.serve(["b"])
    assert not any(one.calm.seconds for one in window.view().samples)


@given(wishes=st.lists(st.integers(1, 5), min_size=1), seconds=st.integers(0, 50))
def test_what_is_kept_of_recommendations_has_the_same_least_and_most_in_every_window(
    wishes: list[int], seconds: int
) -> None:
    window = Window(0.0)
    for time, wish in enumerate(wishes):
        window.recommend(float(time), wish)
    now = len(wishes) - 1
    kept = [replicas for time, replicas in window.view().recommendations if now - time <= seconds]
    whole = wishes[max(0, now - seconds):]
    assert (min(kept), max(kept)) == (min(whole), max(whole))
    assert len(window.view().recommendations) <= 5


def counted(requests: float, failed: float = 0.0, p99: float | None = None) -> ReplicaMetrics:
    return ReplicaMetrics(
        pending={},
        successes={"m": requests},
        failures={"BACKEND": failed, "CANCELED": 50.0},
        busy=1000 * requests,
        queued_for=100 * requests,
        quantiles={} if p99 is None else {0.99: p99},
    )


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        ([100.0], []),
        ([100.0, 103.0], [3.0]),
        ([100.0, 103.0, 2.0], [3.0, 2.0]),
        ([5.0, 0.0, 0.0], [0.0, 0.0]),
    ],
    ids=["what was before we looked is not counted", "growth counts", "a restart starts at zero", "a restart alone"],
)
def test_growth_of_counters(totals: list[float], expected: list[float]) -> None:
    counters = Counters()
    grown = [counters.update({"a": counted(total)}, ["a"]) for total in totals]
    assert [one["a"].requests for one in grown if one] == expected
    assert [one["a"].busy for one in grown if one] == [1000 * count for count in expected]


def test_all_counters_of_a_restarted_server_start_at_zero() -> None:
    counters = Counters()
    counters.update({"a": counted(10, failed=1)}, ["a"])
    grown = counters.update({"a": counted(4, failed=3)}, ["a"])
    assert (grown["a"].requests, grown["a"].failed, grown["a"].busy) == (4, 3, 4000)


def test_requests_that_waited_for_too_long_are_counted_apart() -> None:
    counters = Counters()
    found = [counters.update({"a": replace(counted(total), failures={"REJECTED": rejected})}, ["a"])
             for total, rejected in ((10, 2.0), (20, 5.0), (1, 1.0))]
    assert [(one["a"].rejected, one["a"].failed) for one in found[1:]] == [(3.0, 0.0), (1.0, 0.0)]
    assert (found[1]["a"] + found[2]["a"]).rejected == 4.0


def test_a_success_that_was_none_is_a_failure_and_takes_its_time_with_it() -> None:
    counters = Counters()
    counters.update({"a": counted(10)}, ["a"])
    grown = counters.update({"a": replace(counted(30), mistaken={"backend": 4.0, "request": 1.0})}, ["a"])["a"]
    assert (grown.requests, grown.failed, grown.busy, grown.queued) == (15, 4, 15_000, 1500)


def test_a_failure_that_is_counted_before_its_success_takes_nothing_off_others() -> None:
    counters = Counters()
    counters.update({"a": counted(10)}, ["a"])
    grown = counters.update({"a": replace(counted(10), mistaken={"backend": 1.0})}, ["a"])["a"]
    assert (grown.requests, grown.failed, grown.busy) == (0, 1, 0)


def test_a_missed_scrape_is_made_up_for_by_the_next_and_a_pod_that_is_gone_is_forgotten() -> None:
    counters = Counters()
    counters.update({"a": counted(1), "b": counted(1)}, ["a", "b"])
    assert counters.update({}, ["a", "b"]) == {}
    assert counters.update({"a": counted(4)}, ["a"])["a"].requests == 3
    assert counters.update({"b": counted(9)}, ["a", "b"]) == {}, "seen anew"


def rounds(window: Window, seconds: int, start: float = 0.0) -> None:
    pods = {"old-1": "old", "old-2": "old", "new-1": "new"}
    for second in range(seconds):
        totals = {"old-1": counted(10 * second, p99=7), "old-2": counted(10 * second, second, p99=9),
                  "new-1": counted(5 * second)}
        window.count(start + second, totals, pods)


def test_rounds_are_sums_by_revision() -> None:
    window = Window(0.0)
    window.analyse("k")
    rounds(window, 3)
    view = window.view()
    assert view.analysis == "k"
    assert [one.traffic for one in view.rounds] == [{}, *([{
        "old": Traffic(requests=20, failed=1, busy=20_000, queued=2000, replicas=2, p99=9),
        "new": Traffic(requests=5, busy=5000, queued=500, replicas=1)}] * 2)]


def test_another_analysis_begins_without_samples_and_the_same_goes_on() -> None:
    window = Window(0.0)
    window.analyse("k")
    rounds(window, 3)
    window.probed(1.0, Match(similarity=1.0))
    window.analyse("k")
    assert len(window.view().rounds) == 3
    window.analyse("other")
    assert window.view().rounds == ()
    assert window.view().probes == ProbeResults()
    assert window.view().begun_again == 0
    rounds(window, 2)
    assert window.view().rounds[0].traffic == {}, "counters begin anew, too"


def test_rounds_and_similarities_are_bounded() -> None:
    window = Window(0.0)
    window.analyse("k")
    for second in range(ROUNDS + 5):
        window.count(float(second), {}, {})
        window.probed(float(second), Match(similarity=0.5, flaw="odd" if second == 3 else ""))
    view = window.view()
    assert len(view.rounds) == ROUNDS - FORGOTTEN + 5
    assert view.begun_again == 1
    assert len(view.probes.similarities) == SIMILARITIES
    assert (view.probes.pairs, view.probes.flawed, view.probes.flaw) == (ROUNDS + 5, 1, "odd")


def test_single_numbers_are_held_against_all_that_the_analysis_has_seen() -> None:
    window = Window(0.0)
    window.analyse("k")
    window.probed(1.0, Match(single=(("y", 0.1, -0.1),)))
    assert (window.probes.similarities, window.probes.single) == ((0.0,), True)
    window.probed(2.0, Match(single=(("y", -10.0, -10.0),)))
    assert window.probes.similarities == pytest.approx((0.9996, 1.0), abs=1e-4)
    window.analyse("other")
    window.probed(3.0, Match(single=(("y", 0.1, -0.1),)))
    assert window.probes.similarities == (0.0,)


def test_without_an_analysis_nothing_is_kept() -> None:
    window = Window(0.0)
    rounds(window, 3)
    assert window.view().rounds == ()


def test_traffic_is_thin_when_one_side_gets_little_and_probes_do_not_count() -> None:
    window = Window(0.0)
    window.analyse("k")
    assert window.thin(("old", "new"), 0.0)
    rounds(window, 10)
    assert not window.thin(("old", "new"), 9.0)
    assert window.thin(("old", "new"), 60.0), "that was long ago"
    for _ in range(40):
        window.probed(9.0, Match())
    assert window.thin(("old", "new"), 9.0)


def test_a_probe_that_works_again_ends_the_problem() -> None:
    window = Window(0.0)
    for _ in range(UNANSWERED):
        assert window.probes.problem == ""
        window.cannot_probe("refused")
    assert window.probes.problem == "refused"
    window.probed(1.0, Match())
    assert window.probes.problem == ""


@pytest.mark.parametrize("percentile", [99.0, 95.0, 99.9, 99.99, 57.0])
def test_any_percentile_finds_its_quantile(percentile: float) -> None:
    window = Window(0.0)
    window.analyse("k")
    for time in range(2):
        exported = {float(f"0.{str(percentile).replace('.', '')}".rstrip("0")): 7.0}
        scraped = {"p": replace(counted(10.0 * time), quantiles=exported)}
        window.count(float(time), scraped, {"p": "new"}, percentile / 100)
    assert window.view().rounds[-1].traffic["new"].p99 == 7.0


def test_of_each_ready_replica_it_is_known_when_it_was_last_heard_in_an_analysis() -> None:
    window, revisions = Window(0.0), {"old-1": "old", "new-1": "new", "new-2": "new"}
    window.count(0.0, {}, revisions)
    assert window.view().readings == ()
    window.analyse("k")
    answers = ReplicaMetrics(pending={})
    for time, heard in enumerate((["old-1", "new-1"], ["old-1"], ["old-1", "new-1"]), start=1):
        window.count(float(time), dict.fromkeys(heard, answers), revisions)
    assert set(window.view().readings) == {
        Reading("old-1", "old", 3.0, counted=True), Reading("new-1", "new", 3.0, counted=True),
        Reading("new-2", "new", 1.0, counted=False)}
    window.count(4.0, {}, {"old-1": "old"})
    assert window.view().readings == (Reading("old-1", "old", 3.0, counted=True),)
    window.analyse("another")
    assert window.view().readings == ()

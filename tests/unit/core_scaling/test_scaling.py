"""The scaler, fed with series: the trace of replicas, and what must hold for every series."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.reasons import Reason
from enginewright.core.scaling import ScaleDecision, ScaleLimits, decide_replicas, limits_of
from enginewright.core.scaling.queue import awaits_another, queued_text
from enginewright.core.signals import Sample, SignalWindow
from enginewright.core.spec import AutoscalingSpec

LIMITS = ScaleLimits(min_replicas=1, max_replicas=8, target=4, down_window=30)


def window(
    *pending: Mapping[str, float] | None,
    started: float = -1000.0,
    newest: float = 0.0,
    wishes: Iterable[tuple[float, int]] = (),
) -> SignalWindow:
    """Samples a second apart, the last at ``newest``; None is a round in which nobody answered."""
    samples = tuple(
        Sample(time=newest - (len(pending) - 1 - index), ready=len(answers or ()), pending=answers or {})
        for index, answers in enumerate(pending)
    )
    return SignalWindow(started=started, samples=samples, recommendations=tuple(wishes))


def even(total: float, replicas: int) -> dict[str, float]:
    return {f"r{index}": total / replicas for index in range(replicas)}


def run(
    series: Iterable[float | None], limits: ScaleLimits = LIMITS, replicas: int = 1, watched: float = 0.0
) -> list[int]:
    """Replicas after each second of ``series``, the total queue depth; None is a second without an answer."""
    seen = SignalWindow(started=-watched)
    trace = []
    for second, total in enumerate(series):
        sample = Sample(time=second, ready=replicas, pending={} if total is None else even(total, replicas))
        seen = replace(seen, samples=(*seen.samples, sample)[-120:])
        decision = decide_replicas(seen, replicas, limits, second)
        seen = replace(seen, recommendations=(*seen.recommendations, (float(second), decision.recommendation)))
        replicas = decision.replicas
        trace.append(replicas)
    return trace


@pytest.mark.parametrize(
    ("total", "current", "wanted"),
    [
        (0, 1, 1),
        (4, 1, 1),
        (4.4, 1, 1),
        (4.5, 1, 2),
        (8, 1, 2),
        (9, 1, 3),
        (30, 1, 8),
        (1e6, 2, 8),
        (11, 3, 3),
        (13.2, 3, 3),
        (13.3, 3, 4),
    ],
)
def test_up_by_the_formula(total: float, current: int, wanted: int) -> None:
    seen = window(*[even(total, current)] * 3)
    assert decide_replicas(seen, current, LIMITS, 0).replicas == wanted


@pytest.mark.parametrize(("totals", "current", "awaits"), [
    ((0, 0, 9), 1, True), ((9,), 1, True),
    ((0, 9, 9), 1, False), ((9, 9), 1, False),
    ((0, 0, 4), 1, False), ((9, 9, 0), 1, False),
    ((0, 0, 90), 8, False),
    ((0, 9, None), 1, False), ((), 1, False),
], ids=["a first one", "the very first", "two of three", "two", "within the target", "it is over", "no more to have",
        "no answer since", "nothing seen"])
def test_a_look_that_alone_asks_for_more_is_followed_by_another_soon(
    totals: tuple[float | None, ...], current: int, awaits: bool
) -> None:
    seen = window(*(None if total is None else even(total, current) for total in totals))
    assert awaits_another(seen, current, LIMITS, 0) == awaits


def test_the_look_after_that_scales_where_the_queue_stands_and_only_there() -> None:
    before = window(even(0, 1), even(0, 1), even(9, 1))
    for later, wanted in ((9, 3), (0, 1)):
        sample = Sample(time=0.4, ready=1, pending=even(later, 1))
        seen = replace(before, samples=(*before.samples, sample))
        assert decide_replicas(seen, 1, LIMITS, 0.4).replicas == wanted


@pytest.mark.parametrize(
    ("total", "current", "wanted"), [(0, 4, 1), (4, 4, 1), (5, 4, 2), (14.5, 4, 4), (14, 4, 4), (12, 4, 3)]
)
def test_down_by_the_formula_once_the_window_is_full(total: float, current: int, wanted: int) -> None:
    seen = window(*[even(total, current)] * 3)
    assert decide_replicas(seen, current, LIMITS, 0).replicas == wanted


def test_a_spike_of_one_second_moves_nothing_however_tall() -> None:
    assert run([0, 0, 1e9, 0, 0, 0]) == [1] * 6


def test_a_step_is_answered_in_two_seconds() -> None:
    assert run([0, 0, 0, 20, 20, 20]) == [1, 1, 1, 1, 5, 5]


def test_the_first_sample_after_a_restart_is_not_enough_to_scale_up() -> None:
    assert decide_replicas(window(even(100, 1)), 1, LIMITS, 0).replicas == 1
    assert decide_replicas(window(even(100, 1), even(100, 1)), 1, LIMITS, 0).replicas == 8


def test_scale_down_waits_for_the_window_and_takes_its_maximum() -> None:
    load = [20.0] * 5 + [0.0] * 40
    trace = run(load, watched=1000)
    assert max(trace) == 5
    # The wish for five replicas was last made in second 5 (the median lags by one).
    assert trace.index(1, 5) == 5 + 30
    assert set(trace[4:34]) == {5}


def test_scale_down_waits_for_history_after_a_restart() -> None:
    assert run([0.0] * 29, replicas=4, watched=0)[-1] == 4
    assert run([0.0] * 31, replicas=4, watched=0)[-1] == 1


def test_up_window_takes_the_least_that_was_wished() -> None:
    limits = replace(LIMITS, up_window=5)
    trace = run([0.0] * 10 + [20.0] * 10, limits, watched=1000)
    assert trace[:15] == [1] * 15
    assert trace[-1] == 5


def test_alternating_load_does_not_flap() -> None:
    trace = run([0.0, 0.0, 0.0, 16.0, 16.0, 16.0] * 40, watched=1000)
    changes = sum(one != other for one, other in itertools.pairwise(trace))
    assert changes == 1
    assert trace[-1] == 4


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (None, "has not asked a replica"),
        (SignalWindow(started=0), "has not asked a replica"),
        (window(even(50, 2), even(50, 2), newest=-11), "older than 10 s"),
        (window(None, None, None), "No replica reports"),
    ],
)
def test_without_fresh_samples_it_holds(seen: SignalWindow | None, words: str) -> None:
    decision = decide_replicas(seen, 5, LIMITS, 0)
    assert (decision.replicas, decision.hold, decision.reason, decision.queue_depth) == (5, True, Reason.HOLDING, None)
    assert decision.recommendation == 5
    assert words in decision.message


def test_one_missed_round_is_no_blindness() -> None:
    assert not decide_replicas(window(even(4, 1), None), 1, LIMITS, 0).hold


def test_samples_from_the_future_are_not_believed() -> None:
    assert decide_replicas(window(even(50, 1), newest=5), 1, LIMITS, 0).hold


def test_a_silent_replica_counts_as_empty_upwards_and_as_busy_downwards() -> None:
    half = {"r0": 8.0, "r1": 8.0}  # two of four answer
    assert decide_replicas(window(half, half, half), 4, LIMITS, 0).replicas == 4
    idle = {"r0": 0.0, "r1": 0.0}
    assert decide_replicas(window(idle, idle, idle), 4, LIMITS, 0).replicas == 2
    flood = {"r0": 30.0, "r1": 0.0}
    assert decide_replicas(window(flood, flood, flood), 4, LIMITS, 0).replicas == 8


@pytest.mark.parametrize(
    ("current", "limits", "wanted"),
    [
        (1, replace(LIMITS, min_replicas=3), 3),
        (8, replace(LIMITS, max_replicas=5), 5),
    ],
)
def test_limits_apply_at_once_even_while_holding(current: int, limits: ScaleLimits, wanted: int) -> None:
    assert decide_replicas(None, current, limits, 0).replicas == wanted


def test_at_the_limit_it_says_so() -> None:
    seen = window(*[even(100, 8)] * 3)
    decision = decide_replicas(seen, 8, LIMITS, 0)
    assert (decision.replicas, decision.reason) == (8, Reason.AT_LIMIT)
    assert "maxReplicas 8" in decision.message


@pytest.mark.parametrize(("ages", "ago", "reason"), [
    ((2.0,), 0.0, Reason.SCALING),
    ((30.0,), 9.0, Reason.SCALING),  # the last one has just begun to answer
    ((30.0,), 11.0, Reason.AT_LIMIT),
    ((500.0,), 0.0, Reason.AT_LIMIT),  # nobody expects that one any more
    ((), 0.0, Reason.AT_LIMIT),
])
def test_the_limit_binds_when_all_that_it_allows_answer(ages: tuple[float, ...], ago: float, reason: Reason) -> None:
    seen = window(*[even(100, 8)] * 3)
    before = replace(seen.samples[0], time=-ago, starting=ages)
    decision = decide_replicas(replace(seen, samples=(before, *seen.samples[1:])), 8, LIMITS, 0)
    assert (decision.replicas, decision.reason) == (8, reason)


@pytest.mark.parametrize(("asked", "reason"), [
    (((-60.0, 3),), Reason.SCALING),  # eight have been asked for since the last look
    (((-60.0, 3), (-1.0, 8)), Reason.SCALING),  # they have no pods yet
    (((-60.0, 3), (-11.0, 8)), Reason.AT_LIMIT),
    (((-60.0, 8), (-11.0, 9)), Reason.AT_LIMIT),
])
def test_replicas_that_no_sample_has_yet_are_awaited(asked: tuple[tuple[float, int], ...], reason: Reason) -> None:
    seen = replace(window(*[even(100, 8)] * 3), asked=asked)
    decision = decide_replicas(seen, 8, LIMITS, 0)
    assert (decision.replicas, decision.reason) == (8, reason)


def test_a_decision_tells_its_figures_and_a_steady_state_does_not() -> None:
    scaled = decide_replicas(window(*[even(17, 1)] * 3), 1, LIMITS, 0)
    assert scaled.message == "17 queued requests on 1 replica (target 4 each): 5 replicas."
    messages = {
        decide_replicas(window(*[even(total, 2)] * 3), 2, replace(LIMITS, min_replicas=2), 0).message
        for total in (0.0, 1.5, 7.0, 8.0)
    }
    assert len(messages) == 1


def test_limits_of_a_spec() -> None:
    spec = AutoscalingSpec.model_validate({"minReplicas": 2, "maxReplicas": 6, "targetQueueDepth": 3})
    limits = limits_of(spec)
    assert (limits.min_replicas, limits.max_replicas, limits.target, limits.down_window) == (2, 6, 3, None)
    assert limits.bounded
    silent = limits_of(AutoscalingSpec.model_validate({"maxReplicas": 6}))
    assert (silent.target, silent.bounded) == (4, False)
    slow = limits_of(
        AutoscalingSpec.model_validate(
            {"maxReplicas": 6, "source": "prometheus", "prometheus": {"url": "http://prometheus:9090"}}
        )
    )
    assert slow.stale_after > limits.stale_after


depths = st.floats(0, 1e6) | st.floats(0, 60)
limits_strategy = st.builds(
    lambda low, span, target, tolerance, up, down: ScaleLimits(
        min_replicas=low, max_replicas=low + span, target=target, tolerance=tolerance, up_window=up, down_window=down
    ),
    st.integers(1, 5),
    st.integers(0, 20),
    st.floats(0.5, 50),
    st.floats(0, 0.5),
    st.integers(0, 10),
    st.integers(0, 20),
)


@given(st.lists(depths | st.none(), min_size=1, max_size=60), limits_strategy, st.integers(1, 25))
def test_always_within_the_limits(series: list[float | None], limits: ScaleLimits, replicas: int) -> None:
    assert all(limits.min_replicas <= wanted <= limits.max_replicas for wanted in run(series, limits, replicas))


@given(st.lists(st.none(), min_size=1, max_size=30), st.integers(1, 8))
def test_blindness_never_changes_anything(series: list[None], replicas: int) -> None:
    assert run(series, replicas=replicas) == [replicas] * len(series)


@given(st.floats(0, 1000), st.integers(1, 20), limits_strategy)
def test_a_constant_load_settles_and_stays(total: float, replicas: int, limits: ScaleLimits) -> None:
    trace = run([total] * 90, limits, replicas, watched=1000)
    assert len(set(trace[60:])) == 1


@given(st.lists(depths, min_size=3, max_size=60), st.integers(1, 8))
def test_never_two_changes_of_direction_within_the_down_window(series: list[float], replicas: int) -> None:
    trace = [replicas, *run(series, replicas=replicas, watched=1000)]
    moves = [
        (second, later - earlier)
        for second, (earlier, later) in enumerate(itertools.pairwise(trace))
        if later != earlier
    ]
    downs = [second for second, move in moves if move < 0]
    ups = [second for second, move in moves if move > 0]
    window = LIMITS.down_window
    assert window is not None
    assert all(down - up >= window for up in ups for down in downs if down > up)


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 100), min_size=1), st.integers(1, 8))
def test_a_replica_that_falls_silent_never_causes_a_scale_up(pending: dict[str, float], current: int) -> None:
    def after(answers: Mapping[str, float]) -> ScaleDecision:
        return decide_replicas(window(answers, answers, answers), current, LIMITS, 0)

    full = after(pending).replicas
    for silent in pending:
        rest = {name: depth for name, depth in pending.items() if name != silent}
        assert after(rest).replicas <= max(full, current)


@pytest.mark.parametrize(("count", "text"), [("0", "0 queued requests"), ("1", "1 queued request"),
                                             ("13", "13 queued requests")])
def test_one_request_is_one(count: str, text: str) -> None:
    assert queued_text(count) == text

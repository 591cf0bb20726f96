"""The peers against what their projects document, and the oracle's arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_simulation.foresight import BLOCK, Bounds, cheapest
from enginewright_simulation.policies.base import Seen
from enginewright_simulation.policies.hpa import Controller, Hpa, HpaSettings, external_metric, pods_metric
from enginewright_simulation.policies.keda import Keda, KedaSettings
from enginewright_simulation.policies.knative import Knative, KnativeSettings
from enginewright_simulation.policies.oracle import Oracle, sliding_max


def pods(*queued: float) -> dict[str, float]:
    return {f"pod-{number}": value for number, value in enumerate(queued)}


@pytest.mark.parametrize(
    ("values", "missing", "target", "wanted"),
    [
        # kubernetes.io, "Horizontal Pod Autoscaling", algorithm details: "if the current metric value is 200m, and the
        # desired value is 100m, the number of replicas will be doubled"; at 50m it is halved; within 10 % nothing.
        pytest.param(pods(200, 200), 0, 100, 4, id="doubled"),
        pytest.param(pods(50, 50), 0, 100, 1, id="halved"),
        pytest.param(pods(109, 109), 0, 100, 2, id="within the tolerance above"),
        pytest.param(pods(91, 91), 0, 100, 2, id="within the tolerance below"),
        pytest.param(pods(150, 150), 0, 100, 3, id="rounded up"),
        # "it assumes … pods were consuming 100% of the desired value in case of a scale down, and 0% in case of a scale
        # up": 200 on two pods and none on two are a mean of 100.
        pytest.param(pods(200, 200), 2, 100, 4, id="pods that say nothing count as idle before scaling up"),
        pytest.param(pods(50, 50), 2, 100, 3, id="and as at their target before scaling down"),
        pytest.param(pods(150, 150), 2, 100, 4, id="a change of direction changes nothing"),
        pytest.param({}, 4, 100, 4, id="without any value nothing changes"),
    ],
)
def test_hpa_follows_the_documented_algorithm(
    values: dict[str, float], missing: int, target: float, wanted: int
) -> None:
    assert pods_metric(values, missing, len(values) + missing, target) == wanted


@pytest.mark.parametrize(
    ("total", "current", "wanted"),
    [
        pytest.param(40, 4, 10, id="total over target"),
        pytest.param(17, 4, 4, id="within the tolerance"),
        pytest.param(18, 4, 5, id="rounded up"),
        pytest.param(0, 4, 0, id="nothing is queued"),
    ],
)
def test_an_external_metric_counts_all_pods_asked_for(total: float, current: int, wanted: int) -> None:
    assert external_metric(total, current, 4.0) == wanted


def settle(proposals: Sequence[int], start: int, **settings: float) -> list[int]:
    """Replicas after each sync, 15 s apart."""
    controller = Controller(HpaSettings(max_replicas=1000, **settings))  # type: ignore[arg-type]
    found, current = [], start
    for number, proposed in enumerate(proposals):
        current = controller.settle(proposed, current, 15.0 * (number + 1))
        found.append(current)
    return found


def test_up_by_the_larger_of_four_pods_and_their_double_in_fifteen_seconds() -> None:
    # kubernetes.io, default behaviour of scaleUp: Percent 100 and Pods 4 in 15 s, selectPolicy Max.
    assert settle([100] * 6, 1) == [5, 10, 20, 40, 80, 100]


def test_down_only_as_far_as_the_most_of_five_minutes() -> None:
    # kubernetes.io, default behaviour of scaleDown: stabilizationWindowSeconds 300, Percent 100 in 15 s.
    assert settle([10, *[2] * 25], 10) == [*[10] * 20, *[2] * 6]
    assert settle([10, *[2] * 5], 10, down_window=30.0) == [10, 10, 2, 2, 2, 2]


def test_a_higher_recommendation_within_the_window_is_kept() -> None:
    assert settle([10, 2, 7, 2, 2, 2], 10, down_window=45.0) == [10, 10, 10, 7, 7, 2]


def seen(time: float, *queued: float, **other: object) -> Seen:
    given: dict[str, object] = {"desired": len(queued), **other}
    return Seen(time=time, pending=pods(*queued), **given)  # type: ignore[arg-type]


def test_an_earlier_recommendation_that_was_out_of_reach_then_does_not_lead_up() -> None:
    controller = Controller(HpaSettings())
    assert controller.settle(20, 1, 0.0) == 5
    assert controller.settle(0, 5, 20.0) == 5


def test_hpa_looks_every_fifteen_seconds_only() -> None:
    hpa = Hpa(HpaSettings())
    found = [hpa.decide(seen(float(second), 100.0)) for second in range(31)]
    assert [second for second, wanted in enumerate(found) if wanted != 1] == [15, 30]


def test_keda_scales_to_zero_after_its_cooldown_and_back_at_its_next_poll() -> None:
    keda = Keda(KedaSettings(min_replicas=0))
    last = [keda.decide(seen(float(second), 1.0 if second <= 30 else 0.0)) for second in range(361)]
    # Active for the last time at 30; 330 is not later than 300 s after it, 360 is.
    assert (last[330], last[360]) == (1, 0)
    assert [keda.decide(Seen(time=float(second), desired=0, pending={}, held=5)) for second in range(361, 391)] == [
        *[0] * 29, 1]


def test_keda_never_goes_below_its_minimum() -> None:
    keda = Keda(KedaSettings(min_replicas=2))
    assert {keda.decide(seen(float(second), 0.0, 0.0)) for second in range(1000)} == {2}


def knative(**settings: float) -> Knative:
    return Knative(KnativeSettings(max_replicas=100, **settings))  # type: ignore[arg-type]


def test_knative_aims_at_seventy_percent_of_its_target() -> None:
    # knative.dev, "Concurrency": "if … 70%, the Autoscaler creates a new replica when the average … reaches 7" of 10.
    assert knative(target=10.0).scale(stable=70.0, panic=70.0, ready=10, now=100.0) == 10
    assert knative(target=10.0).scale(stable=71.0, panic=71.0, ready=10, now=100.0) == 11


def test_knative_panics_at_twice_what_is_ready_and_takes_nothing_away_until_a_stable_window_is_over() -> None:
    kpa = knative(target=10.0)
    assert kpa.scale(stable=7.0, panic=13.0, ready=1, now=0.0) == 2  # 13 / 7 needs two: 200 % of one
    assert kpa.scale(stable=14.0, panic=70.0, ready=2, now=2.0) == 10
    assert kpa.scale(stable=14.0, panic=7.0, ready=10, now=62.0) == 10
    # Half at most goes in one tick (max-scale-down-rate 2).
    assert kpa.scale(stable=14.0, panic=7.0, ready=10, now=62.1) == 5


def test_knative_does_not_panic_below_twice_what_is_ready() -> None:
    assert knative(target=10.0).scale(stable=70.0, panic=130.0, ready=10, now=0.0) == 10


def test_knative_takes_means_over_its_windows() -> None:
    kpa = knative(target=10.0)
    found = [kpa.decide(seen(float(second), 10.0 if second >= 30 else 0.0)) for second in range(61)]
    # Over the panic window it is 10 × 5 / 6 after five seconds, which needs two replicas.
    assert next(second for second, wanted in enumerate(found) if wanted > 1) == 34
    assert kpa._mean(60.0, 60.0) == pytest.approx(10.0 * 31 / 60)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 45))
def test_sliding_max(values: list[int], width: int) -> None:
    assert sliding_max(values, width) == [max(values[index:index + width]) for index in range(len(values))]


def test_the_oracle_starts_a_cold_start_ahead_and_keeps_what_it_will_need_again() -> None:
    ready = [1] * 20 + [4] * 5 + [1] * 9 + [3] * 5 + [1] * 21
    oracle = Oracle(ready, cold_start=10.0, min_replicas=1, max_replicas=20)
    wanted = [oracle.decide(seen(float(second))) for second in range(60)]
    assert wanted[9:12] == [1, 4, 4]
    assert wanted[24:26] == [4, 3]
    assert min(wanted[10:39]) == 3
    assert wanted[39] == 1


def cost(plan: Sequence[int], blocks: Sequence[Sequence[float]], price: float, bounds: Bounds) -> float:
    rises = sum(max(0, after - before) for before, after in pairwise(plan))
    late = sum(row[count - bounds.low] if count - bounds.low < len(row) else 0.0
               for row, count in zip(blocks, plan, strict=True))
    return BLOCK * sum(plan) + bounds.cold_start * rises + price * late


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=4), st.integers(0, 40),
       st.sampled_from([0.1, 1.0, 10.0]))
def test_no_plan_is_cheaper_than_the_one_found(blocks: list[list[int]], cold_start: int, price: float) -> None:
    rows = [[float(one) for one in sorted(row, reverse=True)] for row in blocks]
    bounds = Bounds(low=1, high=4, cold_start=float(cold_start))
    plans: list[list[int]] = [[]]
    for _ in rows:
        plans = [[*plan, count] for plan in plans for count in range(1, 5)]
    least = min(cost(plan, rows, price, bounds) for plan in plans)
    assert cost(cheapest(rows, price, bounds), rows, price, bounds) == pytest.approx(least)

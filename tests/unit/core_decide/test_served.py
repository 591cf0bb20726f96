"""What live traffic costs: of the last minute, written when it visibly differs, absent where nobody reads replicas."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.config import Prices
from enginewright.core.money import (
    Paid,
    build_price,
    idle_share,
    paid_back_hours,
    per_million_served,
    replicas_for,
    saved_per_hour,
    served_rate,
)
from enginewright.core.signals import Sample, SignalWindow
from support.cluster import SPEC, Cluster, built, resolved

PRICES = Prices(currency="EUR", per_hour={"cpu": 3.6})
PAID = Paid(replicas=2, least=1, capacity=100.0, speedup=3.0, price_per_hour=3.6)


def minute(rate: float, until: float = 100.0, seconds: int = 60) -> tuple[Sample, ...]:
    return tuple(Sample(time=until - back, ready=2, inferences=rate) for back in range(seconds, -1, -1))


@pytest.mark.parametrize(("samples", "expected"), [
    (minute(50.0), 50.0), (minute(50.0, seconds=30), 50.0), (minute(50.0, seconds=29), None), ((), None),
    (minute(10.0, until=40.0), None),  # of long ago
    (tuple(replace(one, inferences=None) for one in minute(50.0)), None),  # by Prometheus, or replicas are silent
    (tuple(replace(one, inferences=100.0 if place % 2 else None) for place, one in enumerate(minute(0.0))), 50.0),
])
def test_what_was_served_is_of_the_last_minute(samples: tuple[Sample, ...], expected: float | None) -> None:
    assert served_rate(samples, 100.0) == pytest.approx(expected)


def test_idle_replicas_are_paid_as_well() -> None:
    assert per_million_served(PAID, 50.0) == pytest.approx(2 * 3.6 / 3600 / 50 * 1e6)
    assert per_million_served(PAID, 0.0) is None
    assert idle_share(PAID, 50.0) == pytest.approx(0.75)
    assert idle_share(PAID, 500.0) == 0.0
    assert idle_share(replace(PAID, replicas=0), 0.0) is None


@pytest.mark.parametrize(("rate", "replicas", "saved"), [
    (0.0, (1, 1), 0.0), (30.0, (1, 1), 0.0), (50.0, (1, 2), 3.6), (250.0, (3, 8), 18.0)])
def test_what_the_source_model_would_take(rate: float, replicas: tuple[int, int], saved: float) -> None:
    assert replicas_for(PAID, rate) == replicas
    assert saved_per_hour(PAID, rate) == pytest.approx(saved)


def test_what_was_not_compared_saves_nothing_known() -> None:
    assert saved_per_hour(replace(PAID, speedup=None), 50.0) is None
    assert saved_per_hour(replace(PAID, speedup=0.5), 50.0) == 0.0, "the source model itself may be the faster one"


def test_when_a_build_has_paid_for_itself() -> None:
    assert build_price(3.6, 600.0) == pytest.approx(0.6)
    assert paid_back_hours(0.6, 3.6) == pytest.approx(1 / 6)
    assert paid_back_hours(0.6, 0.0) is None


@given(st.floats(0, 1e6), st.integers(1, 1000), st.floats(0.1, 1e5))
def test_idle_and_served_are_shares_of_one_capacity(rate: float, replicas: int, capacity: float) -> None:
    paid = replace(PAID, replicas=replicas, capacity=capacity)
    share = idle_share(paid, rate)
    assert share is not None
    assert 0 <= share <= 1
    million = per_million_served(paid, rate)
    if million is not None and rate <= replicas * capacity:
        at_best = replicas * paid.price_per_hour / 3600 / (replicas * capacity) * 1e6
        assert million >= at_best * (1 - 1e-9)


def serving(**spec: object) -> Cluster:
    cluster = Cluster(spec={**SPEC, **spec})
    cluster.config = replace(cluster.config, prices=PRICES)
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(built(device_class="cpu", throughput_at_objective=100.0, speedup=3.0))
    cluster.settle()
    return cluster


def told(cluster: Cluster, rate: float) -> dict[str, object] | None:
    cluster.signals = SignalWindow(started=0.0, samples=minute(rate, until=cluster.monotonic))
    cluster.operate()
    found: dict[str, object] | None = cluster.status["cost"].get("served")
    return found


def test_status_says_what_live_traffic_costs_and_is_written_sparingly() -> None:
    cluster = serving(autoscaling={"minReplicas": 1, "maxReplicas": 4})
    found = told(cluster, 50.0)
    assert found is not None
    assert {key: value for key, value in found.items() if key != "time"} == {
        "perSecond": 50.0, "perMillion": 20.0, "idleShare": 0.5, "savedPerHour": 3.6}
    assert told(cluster, 80.0) == found, "within a minute nothing else is written"
    cluster.now += timedelta(seconds=61)
    assert told(cluster, 52.0) == found, "nor what hardly differs"
    later = told(cluster, 80.0)
    assert later is not None
    assert later["perSecond"] == 80.0
    cluster.now += timedelta(seconds=61)
    none = told(cluster, 0.0)
    assert none is not None
    assert (none["perSecond"], none["idleShare"], "perMillion" in none) == (0.0, 1.0, False)


def test_without_an_autoscaler_nobody_reads_replicas() -> None:
    cluster = serving()
    cluster.signals = None
    cluster.operate()
    assert "served" not in cluster.status["cost"]

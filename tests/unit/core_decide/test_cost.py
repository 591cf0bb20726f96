"""What inferences cost: at the objective, at the configured price, and nothing where either is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.config import OperatorConfig, Prices
from enginewright.core.cost import per_million, replica_cost
from enginewright.core.status import CostStatus
from support.cluster import Cluster, built, engine, resolved

H100 = "NVIDIA-H100-80GB-HBM3"
PRICES = Prices(currency="EUR", per_hour={"cpu": 0.36, H100: 3.6, f"{H100}/1g.10gb": 0.6})


@pytest.mark.parametrize(
    ("summary", "expected"),
    [
        ({"device_class": "cpu", "throughput_at_objective": 100.0}, (1.0, 0.36)),
        ({"device_class": H100, "throughput_at_objective": 2000.0}, (0.5, 3.6)),
        ({"device_class": H100, "throughput_at_objective": 2000.0, "device_count": 2}, (1.0, 7.2)),
        ({"device_class": f"{H100}/1g.10gb", "throughput_at_objective": 300.0}, (0.5556, 0.6)),
        ({"device_class": "NVIDIA-L4", "throughput_at_objective": 300.0}, None),
        ({"device_class": "", "throughput_at_objective": 300.0}, None),
        ({"device_class": "cpu", "throughput_at_objective": None, "throughput": 500.0}, None),
        ({"device_class": "cpu", "throughput_at_objective": 0.0}, None),
    ],
)
def test_cost_of_a_replica(summary: dict[str, Any], expected: tuple[float, float] | None) -> None:
    found = replica_cost(engine(**summary), PRICES)
    if expected is None:
        assert found is None
    else:
        throughput = summary["throughput_at_objective"]
        assert found == CostStatus(per_million_inferences=expected[0], currency="EUR", price_per_hour=expected[1],
                                   throughput=throughput)


@given(st.floats(0.001, 1e4), st.floats(0.001, 1e6))
def test_a_million_inferences_cost_what_their_hours_cost(price: float, throughput: float) -> None:
    hours = 1_000_000 / throughput / 3600
    assert per_million(price, throughput) == pytest.approx(hours * price)


def serving(config: OperatorConfig, **summary: Any) -> Cluster:
    cluster = Cluster()
    cluster.config = config
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(built(device_class="cpu", **summary))
    cluster.operate()
    return cluster


def test_status_shows_it_and_follows_the_price_without_a_build() -> None:
    cluster = serving(replace(Cluster().config, prices=PRICES), throughput_at_objective=100.0)
    assert cluster.status["cost"] == {
        "perMillionInferences": 1.0,
        "currency": "EUR",
        "pricePerHour": 0.36,
        "throughput": 100.0,
    }
    assert cluster.status["summary"]["cost"] == "1 EUR"
    fingerprint = cluster.status["fingerprint"]
    cluster.config = replace(cluster.config, prices=Prices(currency="EUR", per_hour={"cpu": 0.72}))
    plan = cluster.operate()
    assert cluster.status["cost"]["perMillionInferences"] == 2.0
    assert cluster.status["fingerprint"] == fingerprint
    assert not [action for action in plan.actions if "Job" in str(action)]


@pytest.mark.parametrize(
    ("prices", "summary"),
    [
        (Prices(), {"throughput_at_objective": 100.0}),
        (PRICES, {"throughput_at_objective": None}),
    ],
)
def test_nothing_is_shown_without_a_price_or_a_throughput(prices: Prices, summary: dict[str, Any]) -> None:
    cluster = serving(replace(Cluster().config, prices=prices), **summary)
    assert "cost" not in cluster.status
    assert "cost" not in cluster.status["summary"]

"""What inferences cost, from evidence and configured prices."""

from __future__ import annotations

from enginewright.core.config import Prices
from enginewright.core.status import CostStatus
from enginewright_builder.contract import EngineSummary

MILLION = 1_000_000
HOUR = 3600
# Digits of a price that the measured throughput can bear.
_DIGITS = 4


def replica_cost(engine: EngineSummary, prices: Prices) -> CostStatus | None:
    """At the throughput that one replica sustains within the latency objective, not at its maximum: what lies beyond
    the objective cannot be sold. None without a price for the device class, or when nothing meets the objective."""
    hourly = replica_price(engine, prices)
    throughput = engine.throughput_at_objective
    if hourly is None or not throughput:
        return None
    return CostStatus(per_million_inferences=_rounded(per_million(hourly, throughput)), currency=prices.currency,
                      price_per_hour=_rounded(hourly), throughput=throughput)


def replica_price(engine: EngineSummary, prices: Prices) -> float | None:
    """Of one replica for an hour, with all its devices."""
    price = prices.per_hour.get(engine.device_class)
    return None if price is None else price * max(1, engine.device_count)


def per_million(price_per_hour: float, throughput: float) -> float:
    """``price / 3600 s / throughput × 10⁶`` for ``throughput`` above 0 inferences a second."""
    return price_per_hour / HOUR / throughput * MILLION


def _rounded(price: float) -> float:
    return float(f"{price:.{_DIGITS}g}")

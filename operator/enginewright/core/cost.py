"""What inferences cost, from evidence and configured prices."""

from __future__ import annotations

from enginewright.core.config import Prices
from enginewright.core.published import Published
from enginewright.core.status import CostStatus
from enginewright_builder.contract import GenerateSummary

MILLION = 1_000_000
HOUR = 3600
# Digits of a price that the measured throughput can bear.
_DIGITS = 4


def replica_cost(summary: Published, prices: Prices) -> CostStatus | None:
    """At the throughput that one replica sustains within the latency objective, not at its maximum: what lies beyond
    the objective cannot be sold. None without a price for the device class, or when nothing meets the objective. Of a
    language model at the measured load, by the tokens of answers."""
    hourly = replica_price(summary, prices)
    if isinstance(summary, GenerateSummary):
        rate = summary.tokens.output_rate
        if hourly is None or not rate or not (summary.objective_met or summary.too_few_requests):
            return None
        return CostStatus(per_million_tokens=rounded(per_million(hourly, rate)), currency=prices.currency,
                          price_per_hour=rounded(hourly))
    throughput = summary.throughput_at_objective
    if hourly is None or not throughput:
        return None
    return CostStatus(per_million_inferences=rounded(per_million(hourly, throughput)), currency=prices.currency,
                      price_per_hour=rounded(hourly), throughput=throughput)


def replica_price(summary: Published, prices: Prices) -> float | None:
    """Of one replica for an hour, with all its devices."""
    price = prices.per_hour.get(summary.device_class)
    return None if price is None else price * max(1, summary.device_count)


def per_million(price_per_hour: float, throughput: float) -> float:
    """``price / 3600 s / throughput × 10⁶`` for ``throughput`` above 0 inferences, or tokens, a second."""
    return price_per_hour / HOUR / throughput * MILLION


def rounded(price: float) -> float:
    """To what the measured throughput can bear."""
    return float(f"{price:.{_DIGITS}g}")


def price_words(cost: CostStatus | None) -> str | None:
    """For columns: of a million inferences, or tokens of a language model's answers."""
    if cost is None:
        return None
    price = cost.per_million_tokens if cost.per_million_inferences is None else cost.per_million_inferences
    return None if price is None else f"{price:g} {cost.currency}"

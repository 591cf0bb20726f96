"""What each object asks for and its status says, as series: conditions for alarms, latency, cost of inferences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from enginewright.observe.keys import Key

OBJECT = ("namespace", "optimisedmodel")
P99 = "0.99"


@dataclass(frozen=True)
class _Shown:
    """``conditions`` are (type, status, reason), ``cost`` (currency, price of a million inferences), ``quality`` what
    status.quality has, ``rate`` inferences a joule as the build measured them, idle power included. ``objective`` is
    (quantile, seconds), ``tokens`` (quantile, seconds to the first, seconds for each further one or None), ``live`` the
    p99 in seconds, ``rejected`` counts requests of the last minute, ``hit_share`` is the share of these that a cache
    answered. ``served`` is (currency, price of a million), and ``idle`` the share of the replicas that no client asked
    for."""

    conditions: tuple[tuple[str, str, str], ...] = ()
    cost: tuple[str, float] | None = None
    quality: Mapping[str, Any] | None = None
    rate: float | None = None
    objective: tuple[str, float] | None = None
    tokens: tuple[str, float, float | None] | None = None
    live: float | None = None
    rejected: int | None = None
    served: tuple[str, float] | None = None
    idle: float | None = None
    hit_share: float | None = None


class Exposed(Collector):
    """Of each object its newest status; nothing of one that is gone."""

    def __init__(self) -> None:
        self._shown: dict[Key, _Shown] = {}

    def remember(self, key: Key, status: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        """``status`` as it is written and ``spec`` as it is stored: plain data, a ``spec`` of any shape."""
        cost, conditions = status.get("cost"), status.get("conditions") or ()
        engine = status.get("engine") or {}
        served = (cost or {}).get("served") or {}
        watts, throughput = engine.get("powerWatts"), engine.get("throughput")
        self._shown[key] = _Shown(
            conditions=tuple((entry["type"], entry["status"], entry["reason"]) for entry in conditions),
            cost=(cost["currency"], cost["perMillionInferences"]) if cost and "perMillionInferences" in cost else None,
            quality=status.get("quality"),
            rate=throughput / watts if watts and throughput else None,
            objective=_latency(spec),
            tokens=_tokens(spec),
            live=_seconds((status.get("autoscaling") or {}).get("p99Milliseconds")),
            rejected=(status.get("autoscaling") or {}).get("rejected"),
            served=(cost["currency"], served["perMillion"]) if cost and "perMillion" in served else None,
            idle=served.get("idleShare"),
            hit_share=(status.get("autoscaling") or {}).get("cacheHitShare"),
        )

    def forget(self, key: Key) -> None:
        self._shown.pop(key, None)

    def collect(self) -> Iterator[Metric]:
        conditions = GaugeMetricFamily("enginewright_condition", "1 for the state of each condition of each object.",
                                       labels=(*OBJECT, "type", "status", "reason"))
        agreement = GaugeMetricFamily("enginewright_quality_agreement", "Agreement of live answers, as in "
                                                                        "status.quality.",
                                      labels=(*OBJECT, "bound"))
        answers = GaugeMetricFamily("enginewright_quality_samples", "Sampled requests in the windows of all replicas.",
                                    labels=OBJECT)
        rates = GaugeMetricFamily("enginewright_engine_inferences_per_joule",
                                  "Of the build's measured load, idle power included: status.engine.throughput by "
                                  "powerWatts.", labels=OBJECT)
        lives = GaugeMetricFamily("enginewright_live_latency_seconds",
                                  "Latency of the slowest replica in the last minute, as in status.autoscaling.",
                                  labels=(*OBJECT, "quantile"))
        rejections = GaugeMetricFamily("enginewright_rejected_requests",
                                       "Requests rejected in the last minute after their timeout in a queue, as in "
                                       "status.autoscaling.", labels=OBJECT)
        shares = GaugeMetricFamily("enginewright_cache_hit_share",
                                   "Share of the requests of the last minute that the response cache answered, as in "
                                   "status.autoscaling.", labels=OBJECT)
        for key, shown in self._shown.items():
            if shown.hit_share is not None:
                shares.add_metric((key.namespace, key.name), shown.hit_share)
            if shown.rejected is not None:
                rejections.add_metric((key.namespace, key.name), shown.rejected)
            if shown.live is not None:
                lives.add_metric((key.namespace, key.name, P99), shown.live)
            if shown.rate is not None:
                rates.add_metric((key.namespace, key.name), shown.rate)
            for condition in shown.conditions:
                conditions.add_metric((key.namespace, key.name, *condition), 1)
            if shown.quality and shown.quality["samples"]:  # of none there is no agreement, not one of 0
                for bound, name in (("mean", "agreement"), ("low", "low"), ("high", "high"), ("required", "required")):
                    agreement.add_metric((key.namespace, key.name, bound), shown.quality[name])
                answers.add_metric((key.namespace, key.name), shown.quality["samples"])
        yield from (conditions, *self._costs(), agreement, answers, rates, *self._objectives(), lives, rejections,
                    shares)

    def _costs(self) -> Iterator[Metric]:
        costs = GaugeMetricFamily("enginewright_cost_per_million_inferences", "Cost, as in status.cost.",
                                  labels=(*OBJECT, "currency"))
        served = GaugeMetricFamily("enginewright_cost_per_million_served",
                                   "Cost of what was served in the last minute, as in status.cost.served.",
                                   labels=(*OBJECT, "currency"))
        idle = GaugeMetricFamily("enginewright_idle_share",
                                 "Of what the replicas can answer, as in status.cost.served.", labels=OBJECT)
        for key, shown in self._shown.items():
            for family, told in ((costs, shown.cost), (served, shown.served)):
                if told:
                    family.add_metric((key.namespace, key.name, told[0]), told[1])
            if shown.idle is not None:
                idle.add_metric((key.namespace, key.name), shown.idle)
        yield from (costs, served, idle)

    def _objectives(self) -> Iterator[Metric]:
        labels = (*OBJECT, "quantile")
        latencies = GaugeMetricFamily("enginewright_objective_latency_seconds", "spec.objective.latency.",
                                      labels=labels)
        firsts = GaugeMetricFamily("enginewright_objective_first_token_seconds",
                                   "spec.objective.tokens.ttftMilliseconds.", labels=labels)
        furthers = GaugeMetricFamily("enginewright_objective_token_seconds",
                                     "spec.objective.tokens.tpotMilliseconds.", labels=labels)
        for key, shown in self._shown.items():
            if shown.objective:
                quantile, seconds = shown.objective
                latencies.add_metric((key.namespace, key.name, quantile), seconds)
            if shown.tokens:
                quantile, first, further = shown.tokens
                firsts.add_metric((key.namespace, key.name, quantile), first)
                if further is not None:
                    furthers.add_metric((key.namespace, key.name, quantile), further)
        yield from (latencies, firsts, furthers)


def _latency(spec: Mapping[str, Any]) -> tuple[str, float] | None:
    """None without this objective, or where it is malformed."""
    latency = _objective(spec, "latency")
    quantile, seconds = _quantile(latency), _seconds(latency.get("milliseconds"))
    return None if quantile is None or seconds is None else (quantile, seconds)


def _tokens(spec: Mapping[str, Any]) -> tuple[str, float, float | None] | None:
    """As :func:`_latency`."""
    tokens = _objective(spec, "tokens")
    quantile, first = _quantile(tokens), _seconds(tokens.get("ttftMilliseconds"))
    return None if quantile is None or first is None else (quantile, first, _seconds(tokens.get("tpotMilliseconds")))


def _objective(spec: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    objective = spec.get("objective")
    found = objective.get(name) if isinstance(objective, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _quantile(objective: Mapping[str, Any]) -> str | None:
    """As Triton's own series write it."""
    percentile = objective.get("percentile", 99)
    if isinstance(percentile, bool) or not isinstance(percentile, int | float):
        return None
    return f"{percentile / 100:.6g}"


def _seconds(milliseconds: object) -> float | None:
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        return None
    return milliseconds / 1e3

"""Triton's own metrics, read from one replica.

The pending gauge counts queued *requests* (not batch elements) of one model version, without those that execute. It is
summed over versions and over label sets: GPU instances may show a twin of the series that stays zero, which a sum
survives and a mean would not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as MetricSample

from enginewright.clients.pods import LARGEST_PAGE, PodClient
from enginewright.clients.signals import (
    DURATION,
    EXECUTIONS,
    FAILURES,
    PENDING,
    QUEUE_DURATION,
    SUCCESSES,
    SUMMARY,
    NoSignalError,
    ReplicaMetrics,
)
from enginewright.clients.urls import pod_url
from enginewright.core.labels import METRICS_PORT

_WANTED: Final = (PENDING, FAILURES, SUCCESSES, DURATION, QUEUE_DURATION, EXECUTIONS, SUMMARY)


class TritonClient(PodClient):
    """``deadline`` is seconds for one scrape; connections are kept between scrapes. Their number has no limit but that
    of replicas: with one, those that do not answer, as behind a network policy, would keep all others waiting."""

    def __init__(self, *, deadline: float = 0.8) -> None:
        super().__init__(deadline=deadline, connections=0)

    async def scrape(self, address: str, port: int = METRICS_PORT) -> ReplicaMetrics:
        """Raises :class:`TransientError` when the replica does not answer in time, :class:`NoSignalError` when its
        answer holds no queue depth: an unknown queue must not look like an empty one."""
        url = pod_url(address, port, "/metrics")
        page = await self._page(url, LARGEST_PAGE)
        if len(page) > LARGEST_PAGE:
            raise NoSignalError(f"metrics page is larger than {LARGEST_PAGE} bytes", call=f"GET {url}")
        return parse_metrics(page.decode("utf-8", "replace"))


def parse_metrics(page: str) -> ReplicaMetrics:
    """Raises :class:`NoSignalError`."""
    sums: dict[str, dict[str, float]] = {name: {} for name in _WANTED}
    quantiles: dict[float, float] = {}
    for sample in _samples(page):
        if sample.name == SUMMARY:
            _add_quantile(quantiles, sample)
            continue
        of = sums[sample.name]
        place = sample.labels.get("reason" if sample.name == FAILURES else "model", "")
        of[place] = of.get(place, 0.0) + sample.value
    if not sums[PENDING]:
        raise NoSignalError(f"no {PENDING} in the metrics (Triton exports it since 23.09)")
    return ReplicaMetrics(
        pending=sums[PENDING],
        failures=sums[FAILURES],
        successes=sums[SUCCESSES],
        busy=sum(sums[DURATION].values()),
        queued_for=sum(sums[QUEUE_DURATION].values()),
        executions=sum(sums[EXECUTIONS].values()),
        quantiles=quantiles,
    )


def _add_quantile(quantiles: dict[float, float], sample: MetricSample) -> None:
    """Not a number: no request in the server's sliding window."""
    if "quantile" in sample.labels and not math.isnan(sample.value):
        quantile = float(sample.labels["quantile"])
        quantiles[quantile] = max(quantiles.get(quantile, 0.0), sample.value / 1000)


def _samples(page: str) -> Iterator[MetricSample]:
    """Only the wanted lines go through the parser: a page with latency summaries is a hundred times as long."""
    wanted = "\n".join(line for line in page.splitlines() if line.startswith(_WANTED))
    try:
        for family in text_string_to_metric_families(wanted + "\n"):
            yield from (sample for sample in family.samples if sample.name in _WANTED)
    except ValueError as error:
        raise NoSignalError(f"metrics cannot be parsed: {error}") from error

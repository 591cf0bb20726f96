"""Triton's own metrics, read from one replica.

The pending gauge counts queued *requests* (not batch elements) of one model version, without those that execute. It is
summed over versions and over label sets: GPU instances may show a twin of the series that stays zero, which a sum
survives and a mean would not.
"""

from __future__ import annotations

from typing import Final

from enginewright.clients.page import LARGEST_PAGE, Sample, samples
from enginewright.clients.pods import PodClient
from enginewright.clients.signals import (
    DURATION,
    ENERGY,
    EXECUTIONS,
    FAILURES,
    GPU_MEMORY,
    INFERENCES,
    PENDING,
    QUEUE_DURATION,
    SUCCESSES,
    SUMMARY,
    UTILISATION,
    WATTS,
    GpuMetrics,
    NoSignalError,
    ReplicaMetrics,
)
from enginewright.clients.urls import pod_url
from enginewright.core.labels import METRICS_PORT

_COUNTED: Final = frozenset({PENDING, FAILURES, SUCCESSES, DURATION, QUEUE_DURATION, EXECUTIONS, INFERENCES})
_OF_GPUS: Final = {ENERGY: "joules", WATTS: "watts", UTILISATION: "utilisation", GPU_MEMORY: "memory_bytes"}
_WANTED: Final = _COUNTED | {SUMMARY} | _OF_GPUS.keys()


class TritonClient(PodClient):
    """``deadline`` is seconds for one scrape; connections are kept between scrapes. Their number has no limit but that
    of replicas: with one, those that do not answer, as behind a network policy, would keep all others waiting."""

    def __init__(self, *, deadline: float = 0.8) -> None:
        super().__init__(deadline=deadline, largest=LARGEST_PAGE)

    async def scrape(self, address: str, port: int = METRICS_PORT) -> ReplicaMetrics:
        """Raises :class:`TransientError` when the replica does not answer in time, :class:`NoSignalError` when its
        answer holds no queue depth: an unknown queue must not look like an empty one."""
        return parse_metrics(await self._page(pod_url(address, port, "metrics")))


def parse_metrics(page: bytes) -> ReplicaMetrics:
    """Raises :class:`NoSignalError`."""
    sums: dict[str, dict[str, float]] = {name: {} for name in _COUNTED}
    gpus: dict[str, dict[str, float]] = {}
    quantiles: dict[float, float] = {}
    for sample in samples(page, _WANTED):
        if sample.name == SUMMARY:
            _add_quantile(quantiles, sample)
            continue
        if (figure := _OF_GPUS.get(sample.name)) is not None:
            gpus.setdefault(sample.labels.get("gpu_uuid", ""), {})[figure] = sample.value
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
        inferences=sum(sums[INFERENCES].values()),
        gpus={uuid: GpuMetrics(**figures) for uuid, figures in gpus.items() if uuid},
    )


def _add_quantile(quantiles: dict[float, float], sample: Sample) -> None:
    """Raises :class:`NoSignalError`."""
    try:
        quantile = float(sample.labels["quantile"])
    except (KeyError, ValueError) as error:
        raise NoSignalError(f"{SUMMARY} has a quantile that is not a number") from error
    if not 0 <= quantile <= 1:
        raise NoSignalError(f"{SUMMARY} has a quantile that is not between 0 and 1")
    quantiles[quantile] = max(quantiles.get(quantile, 0.0), sample.value / 1000)

"""Triton's own metrics, read from one replica.

The pending gauge counts queued *requests* (not batch elements) of one model version, without those that execute. It is
summed over versions and over label sets: GPU instances may show a twin of the series that stays zero, which a sum
survives and a mean would not.

A server with a response cache has two models: the engine, and the one that clients know, which asks the engine for what
it does not remember. Its figures are the engine's once more and those of hits, which are no work: only the engine's are
taken, and how many hits there were.
"""

from __future__ import annotations

from typing import Final

from enginewright.clients.gets import PageClient
from enginewright.clients.page import LARGEST_PAGE, Sample, samples
from enginewright.clients.signals import GpuMetrics, NoSignalError, ReplicaMetrics
from enginewright.clients.urls import pod_url
from enginewright.clients.vllm import parse_vllm_metrics
from enginewright.core.labels import METRICS_PORT
from enginewright.core.servers.triton import TRITON
from enginewright.core.servers.vllm import VLLM

_NAMES: Final = TRITON.metrics
# What no other server's page has.
FAILURES: Final = "nv_inference_request_failure"
# Those of the successes that were none, by ``fault``: the Python backend answered with an error
# (pod/python_model/model.py of the builder).
MISTAKEN: Final = "enginewright_failed_requests_total"
_EXECUTIONS: Final = "nv_inference_exec_count"
_INFERENCES: Final = "nv_inference_count"
# Of each model that has a cache, and of no other.
HITS: Final = "nv_cache_num_hits_per_model"
MISSES: Final = "nv_cache_num_misses_per_model"
# Exported with --metrics-config summary_latencies=true only.
SUMMARY: Final = "nv_inference_request_summary_us"
# Counters and gauges that are added up, each by one of its labels.
_COUNTED: Final = {
    **dict.fromkeys((_NAMES.pending, _NAMES.successes, _NAMES.busy, _NAMES.queued_for, _EXECUTIONS, _INFERENCES),
                    _NAMES.model_label),
    FAILURES: "reason", MISTAKEN: "fault"}
# Of each GPU that the server sees; not exported on a CPU.
_OF_GPUS: Final = {"nv_energy_consumption": "joules", "nv_gpu_power_usage": "watts",
                   "nv_gpu_utilization": "utilisation", "nv_gpu_memory_used_bytes": "memory_bytes"}
_OF_CACHES: Final = frozenset({HITS, MISSES})
_WANTED: Final = _COUNTED.keys() | {SUMMARY} | _OF_CACHES | _OF_GPUS.keys()


class TritonClient(PageClient):
    """``deadline`` is seconds for one scrape; connections are kept between scrapes. Their number has no limit but that
    of replicas: with one, those that do not answer, as behind a network policy, would keep all others waiting."""

    def __init__(self, *, deadline: float = 0.8) -> None:
        super().__init__(deadline=deadline, largest=LARGEST_PAGE)

    async def scrape(self, address: str, port: int = METRICS_PORT) -> ReplicaMetrics:
        """Raises :class:`TransientError` when the replica does not answer in time, :class:`NoSignalError` when its
        answer holds no queue depth: an unknown queue must not look like an empty one."""
        return parse_metrics(await self._page(pod_url(address, port, "metrics")))

    async def scrape_vllm(self, address: str, port: int = VLLM.metrics_port) -> ReplicaMetrics:
        """Of a language model's replica, over the same connections. Raises as :meth:`scrape`."""
        return parse_vllm_metrics(await self._page(pod_url(address, port, "metrics")))


def parse_metrics(page: bytes) -> ReplicaMetrics:
    """Raises :class:`NoSignalError`."""
    sums: dict[str, dict[str, float]] = {name: {} for name in _COUNTED}
    gpus: dict[str, dict[str, float]] = {}
    quantiles: dict[float, float] = {}
    found = list(samples(page, _WANTED))
    cached = [sample for sample in found if sample.name in _OF_CACHES]
    fronts = {sample.labels.get(_NAMES.model_label, "") for sample in cached}
    for sample in found:
        name, labels, value = sample
        if fronts and (name in _OF_CACHES or labels.get(_NAMES.model_label) in fronts):
            continue
        if (label := _COUNTED.get(name)) is not None:
            of, place = sums[name], labels.get(label, "")
            of[place] = of.get(place, 0.0) + value
        elif name == SUMMARY:
            _add_quantile(quantiles, sample)
        else:
            gpus.setdefault(labels.get("gpu_uuid", ""), {})[_OF_GPUS[name]] = value
    if not sums[_NAMES.pending]:
        raise NoSignalError(f"no {_NAMES.pending} in the metrics (Triton exports it since 23.09)")
    return ReplicaMetrics(
        pending=sums[_NAMES.pending],
        failures=sums[FAILURES],
        successes=sums[_NAMES.successes],
        mistaken=sums[MISTAKEN],
        busy=_NAMES.microseconds * sum(sums[_NAMES.busy].values()),
        queued_for=_NAMES.microseconds * sum(sums[_NAMES.queued_for].values()),
        executions=sum(sums[_EXECUTIONS].values()),
        quantiles=quantiles,
        inferences=sum(sums[_INFERENCES].values()),
        gpus={uuid: GpuMetrics(**figures) for uuid, figures in gpus.items() if uuid},
        hits=sum(sample.value for sample in cached if sample.name == HITS),
        misses=sum(sample.value for sample in cached if sample.name == MISSES),
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

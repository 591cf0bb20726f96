"""vLLM's own metrics, from one replica's page.

A request that its client gave up is counted among those that ended, with the reason ``abort``; the time that it took is
in the sums of times like any other's. Batches are not told: requests join and leave the running one at each token.
"""

from __future__ import annotations

from typing import Final

from enginewright.clients.page import samples
from enginewright.clients.signals import NoSignalError, ReplicaMetrics
from enginewright.core.servers.vllm import VLLM

_NAMES: Final = VLLM.metrics
# What no other server's page has. Prompts count with what the prefix cache answered of them.
RUNNING: Final = "vllm:num_requests_running"
PROMPTS: Final = "vllm:prompt_tokens_total"
CACHED: Final = "vllm:prefix_cache_hits_total"
GENERATED: Final = "vllm:generation_tokens_total"
CACHE_USED: Final = "vllm:kv_cache_usage_perc"
_WANTED: Final = frozenset({_NAMES.pending, _NAMES.successes, _NAMES.busy, _NAMES.queued_for, RUNNING, PROMPTS, CACHED,
                            GENERATED, CACHE_USED})
# Why a request ended that was not answered as it was asked to, and what the operator calls that.
REASON: Final = "finished_reason"
FAILED: Final = {"abort": "CANCELED", "error": "BACKEND"}


def parse_vllm_metrics(page: bytes) -> ReplicaMetrics:
    """Raises :class:`NoSignalError` for a page without a queue depth."""
    sums: dict[str, dict[str, float]] = {name: {} for name in _WANTED}
    failures: dict[str, float] = {}
    for sample in samples(page, _WANTED):
        why = FAILED.get(sample.labels.get(REASON, "")) if sample.name == _NAMES.successes else None
        of, key = (failures, why) if why else (sums[sample.name], sample.labels.get(_NAMES.model_label, ""))
        of[key] = of.get(key, 0.0) + sample.value
    if not sums[_NAMES.pending]:
        raise NoSignalError(f"no {_NAMES.pending} in the metrics")
    return ReplicaMetrics(
        pending=sums[_NAMES.pending],
        failures=failures,
        successes=sums[_NAMES.successes],
        busy=_NAMES.microseconds * sum(sums[_NAMES.busy].values()),
        queued_for=_NAMES.microseconds * sum(sums[_NAMES.queued_for].values()),
        running=sum(sums[RUNNING].values()),
        prompt_tokens=sum(sums[PROMPTS].values()),
        cached_tokens=sum(sums[CACHED].values()),
        generated_tokens=sum(sums[GENERATED].values()),
        cache_used=max(sums[CACHE_USED].values(), default=None),
    )

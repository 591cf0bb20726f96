"""vLLM's own metrics, from one replica's page.

A request that its client leaves is counted nowhere among those that ended: it has begun, and neither runs nor waits.
The time that it took is in no sum but that of first tokens. Batches are not told: requests join and leave the running
one at each token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, TypeVar

from enginewright.clients.page import Sample, samples
from enginewright.clients.signals import NoSignalError, ReplicaMetrics
from enginewright.core.servers.vllm import VLLM
from enginewright.core.tokens import Tokens

_NAMES: Final = VLLM.metrics
# What no other server's page has. Prompts count with what the prefix cache answered of them.
RUNNING: Final = "vllm:num_requests_running"
PROMPTS: Final = "vllm:prompt_tokens_total"
CACHED: Final = "vllm:prefix_cache_hits_total"
GENERATED: Final = "vllm:generation_tokens_total"
CACHE_USED: Final = "vllm:kv_cache_usage_perc"
# Why a request ended that was not answered as it was asked to, and what the operator calls that.
REASON: Final = "finished_reason"
FAILED: Final = {"abort": "CANCELED", "error": "BACKEND"}
CUT: Final = "length"
# Histograms. The last is the mean of each request that ended, over its tokens but one: 0 where that was the only one.
TTFT: Final = "vllm:time_to_first_token_seconds"
LENGTH: Final = "vllm:request_generation_tokens"
TPOT: Final = "vllm:request_time_per_output_token_seconds"
_SUMS: Final = tuple(f"{name}_{part}" for name in (TTFT, LENGTH, TPOT) for part in ("sum", "count"))
_BUCKETS: Final = {f"{name}_bucket": name for name in (TTFT, LENGTH, TPOT)}
_PLAIN: Final = frozenset({_NAMES.pending, _NAMES.busy, _NAMES.queued_for, RUNNING, PROMPTS, CACHED, GENERATED,
                           CACHE_USED, *_SUMS})
_WANTED: Final = _PLAIN | _BUCKETS.keys() | {_NAMES.successes}
_MILLISECONDS: Final = 1000.0
Key = TypeVar("Key", str, float)


class _Page:
    """What a page has of the samples that are read, added up."""

    def __init__(self, page: bytes) -> None:
        """Raises :class:`NoSignalError`."""
        self.sums: dict[str, dict[str, float]] = {name: {} for name in _PLAIN}
        self.successes: dict[str, float] = {}
        self.reasons: dict[str, float] = {}
        self.buckets: dict[str, dict[float, float]] = {name: {} for name in _BUCKETS.values()}
        for sample in samples(page, _WANTED):
            self._take(sample)

    def _take(self, sample: Sample) -> None:
        model = sample.labels.get(_NAMES.model_label, "")
        if (histogram := _BUCKETS.get(sample.name)) is not None:
            _add(self.buckets[histogram], _bound(sample), sample.value)
        elif sample.name == _NAMES.successes:
            reason = sample.labels.get(REASON, "")
            _add(self.reasons, reason, sample.value)
            if reason not in FAILED:
                _add(self.successes, model, sample.value)
        else:
            _add(self.sums[sample.name], model, sample.value)

    def sum(self, name: str) -> float:
        return sum(self.sums[name].values())

    @property
    def failures(self) -> dict[str, float]:
        return {FAILED[reason]: count for reason, count in self.reasons.items() if reason in FAILED}


def _add(counts: dict[Key, float], key: Key, value: float) -> None:
    counts[key] = counts.get(key, 0.0) + value


def _bound(sample: Sample) -> float:
    """Raises :class:`NoSignalError`."""
    try:
        found = float(sample.labels["le"])
    except (KeyError, ValueError) as error:
        raise NoSignalError(f"{sample.name} has a bound that is not a number") from error
    if math.isnan(found):
        raise NoSignalError(f"{sample.name} has a bound that is not a number")
    return found


def parse_vllm_metrics(page: bytes) -> ReplicaMetrics:
    """Raises :class:`NoSignalError` for a page without a queue depth."""
    found = _Page(page)
    if not found.sums[_NAMES.pending]:
        raise NoSignalError(f"no {_NAMES.pending} in the metrics")
    return ReplicaMetrics(
        pending=found.sums[_NAMES.pending],
        failures=found.failures,
        successes=found.successes,
        busy=_NAMES.microseconds * found.sum(_NAMES.busy),
        queued_for=_NAMES.microseconds * found.sum(_NAMES.queued_for),
        tokens=_tokens(found),
        running=found.sum(RUNNING),
        prompt_tokens=found.sum(PROMPTS),
        cached_tokens=found.sum(CACHED),
        generated_tokens=found.sum(GENERATED),
        cache_used=max(found.sums[CACHE_USED].values(), default=None),
    )


def _tokens(page: _Page) -> Tokens:
    begun, ended = page.sum(f"{TTFT}_count"), page.sum(f"{LENGTH}_count")
    # One that has no first token yet runs or waits all the same, so that no more are taken for left than are.
    left = max(0.0, begun - ended - page.sum(RUNNING) - page.sum(_NAMES.pending))
    short = page.buckets[LENGTH].get(1.0, 0.0)
    return Tokens(
        begun=begun,
        waited=_NAMES.microseconds * page.sum(f"{TTFT}_sum"),
        ended=ended,
        generated=page.sum(f"{LENGTH}_sum"),
        cut=page.reasons.get(CUT, 0.0),
        paced=max(0.0, page.sum(f"{TPOT}_count") - short),
        pace=_NAMES.microseconds * page.sum(f"{TPOT}_sum"),
        gone=left + page.failures.get("CANCELED", 0.0),
        begun_within=_in_milliseconds(page.buckets[TTFT]),
        paced_within=_in_milliseconds(page.buckets[TPOT]),
    )


def _in_milliseconds(buckets: Mapping[float, float]) -> dict[float, float]:
    return {_MILLISECONDS * bound: count for bound, count in buckets.items()}

"""What a load run saw: every call kept, and the figures made of them."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from enginewright_builder.contract import requests_needed

PERCENTILES = (50.0, 90.0, 95.0, 99.0)
TAIL = 99.9
# The window is cut into so many slices for the interval of throughput.
SLICES = 10
# What Triton answers to requests that its queue policy turns away, and what they are counted as: those that find the
# queue full, and those that waited for too long.
REJECTIONS = {"Exceeds maximum queue size": "QUEUE_FULL", "Request timeout expired": "QUEUE_TIMEOUT"}


@dataclass(frozen=True, slots=True)
class Call:
    """Seconds on one monotonic clock. ``due`` is when the call should have started: in an open loop a late start counts
    as latency (no coordinated omission); in a closed loop it is the start. ``error`` is a gRPC status name, or one of
    :data:`REJECTIONS`; empty if none."""

    due: float
    end: float
    batch: int
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class LoadResult:
    """Latencies of the calls due in the window that succeeded; ``throughput`` in inferences (batch elements) completed
    inside it a second. ``requests``, ``failed``, ``errors`` and ``retried`` count everything sent, warm-up and drain
    included, so that a failure cannot hide outside the window. ``messages`` has what came with the first of each of
    ``errors``. ``rejected`` counts those apart that the server's queue policy turned away: they are neither failures
    nor late answers. NaN-free: 0 where nothing was measured. ``p999_ms`` is None of fewer requests than it takes."""

    mode: str
    seconds: float
    requests: int
    failed: int
    rejected: Mapping[str, int]
    retried: int
    errors: Mapping[str, int]
    measured: int
    throughput: float
    throughput_low: float
    throughput_high: float
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float | None
    max_ms: float
    latencies_ms: Sequence[float] = field(default=(), repr=False)
    messages: Mapping[str, str] = field(default_factory=dict)

    def percentile(self, percentile: float) -> float:
        """Milliseconds, nearest rank: a latency that a request really had."""
        return nearest_rank(self.latencies_ms, percentile)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a load has seen so far, of the calls that ended: as :class:`LoadResult` has it, without latencies."""

    seconds: float
    measured: int
    throughput: float
    throughput_low: float
    throughput_high: float


class Recorder:
    """Collects calls as they end; the window opens at ``begin``, which is set before the first call, and closes at
    ``finish`` (same clock as the calls)."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.messages: dict[str, str] = {}
        self.retried = 0
        self.begin = 0.0
        # Of the calls that succeeded: when each ended, and the inferences of all up to it.
        self._ends: list[float] = []
        self._sums: list[int] = [0]
        self._measured = 0

    def add(self, call: Call, message: str = "") -> None:
        self.calls.append(call)
        if call.error:
            self.messages.setdefault(call.error, message)
            return
        self._ends.append(call.end)
        self._sums.append(self._sums[-1] + call.batch)
        self._measured += call.due >= self.begin

    @property
    def has_measured(self) -> bool:
        """Whether a call that counts has ended, with an answer or with an error."""
        return any(call.due >= self.begin for call in self.calls)

    @property
    def first_answer(self) -> float:
        """When the first call of the window was answered; its opening where none was."""
        return min((call.end for call in self.calls if not call.error and call.due >= self.begin), default=self.begin)

    def so_far(self, now: float) -> Progress:
        """Looks at no call: it runs between requests in flight, whose latency has what it takes."""
        seconds = max(now - self.begin, 1e-9)
        edges = [self.begin + seconds * part / SLICES for part in range(SLICES)]
        places = [*(bisect_left(self._ends, edge) for edge in edges), bisect_right(self._ends, now)]
        sums = [self._sums[place] for place in places]
        low, high = _interval(np.diff(sums), seconds, places[-1] - places[0])
        return Progress(seconds=seconds, measured=self._measured, throughput=(sums[-1] - sums[0]) / seconds,
                        throughput_low=low, throughput_high=high)

    def result(self, mode: str, finish: float) -> LoadResult:
        seconds = max(finish - self.begin, 1e-9)
        good = [call for call in self.calls if not call.error]
        completed = [call for call in good if self.begin <= call.end <= finish]
        latencies = sorted((call.end - call.due) * 1e3 for call in good if self.begin <= call.due <= finish)
        errors = Counter(call.error for call in self.calls if call.error)
        throughput = sum(call.batch for call in completed) / seconds
        low, high = throughput_interval(completed, self.begin, finish)
        return _result(mode=mode, seconds=seconds, requests=len(self.calls), retried=self.retried, errors=errors,
                       messages=self.messages, latencies=latencies, throughput=throughput, low=low, high=high)


def joined(results: Sequence[LoadResult]) -> LoadResult:
    """Several windows of the same load as one: latencies pooled, so that a percentile is one of all requests. The
    interval of throughput spans those of the windows. At least one; raises ``ValueError`` when modes differ."""
    (mode,) = {one.mode for one in results}
    seconds = sum(one.seconds for one in results)
    errors: Counter[str] = sum((Counter({**one.errors, **one.rejected}) for one in results), Counter())
    return _result(mode=mode, seconds=seconds, requests=sum(one.requests for one in results),
                   retried=sum(one.retried for one in results), errors=errors,
                   messages={kind: text for one in reversed(results) for kind, text in one.messages.items()},
                   latencies=sorted(latency for one in results for latency in one.latencies_ms),
                   throughput=sum(one.throughput * one.seconds for one in results) / seconds,
                   low=min(one.throughput_low for one in results), high=max(one.throughput_high for one in results))


def _result(*, mode: str, seconds: float, requests: int, retried: int, errors: Counter[str],
            messages: Mapping[str, str], latencies: Sequence[float], throughput: float, low: float, high: float
            ) -> LoadResult:
    """``latencies`` ascending. What was rejected is among ``errors``."""
    rejected = {kind: count for kind, count in errors.items() if kind in REJECTIONS.values()}
    failed = {kind: count for kind, count in errors.items() if kind not in rejected}
    return LoadResult(
        mode=mode, seconds=seconds, requests=requests, failed=sum(failed.values()), rejected=rejected,
        retried=retried, errors=failed, messages={kind: messages[kind] for kind in failed if messages.get(kind)},
        measured=len(latencies), throughput=throughput, throughput_low=low, throughput_high=high,
        mean_ms=float(np.mean(latencies)) if latencies else 0.0,
        **{f"p{percentile:.0f}_ms": nearest_rank(latencies, percentile) for percentile in PERCENTILES},
        p999_ms=nearest_rank(latencies, TAIL) if len(latencies) >= requests_needed(TAIL) else None,
        max_ms=latencies[-1] if latencies else 0.0, latencies_ms=tuple(latencies))


def nearest_rank(ordered: Sequence[float], percentile: float) -> float:
    """The smallest value with at least ``percentile`` % of values at or below it; 0 of nothing."""
    if not ordered:
        return 0.0
    # 99.9 % of 1000 is a little above 999 in binary, which would make it the slowest of all.
    rank = math.ceil(round(percentile / 100 * len(ordered), 6))
    return float(ordered[max(0, rank - 1)])


def throughput_interval(completed: Sequence[Call], begin: float, finish: float) -> tuple[float, float]:
    """95 % interval of throughput by batch means: the window cut into slices, Student's t over their rates.

    Slices rather than single calls, because calls that share a batch or a queue are not independent.
    """
    edges = np.linspace(begin, max(begin, finish), SLICES + 1)
    counts, _ = np.histogram([call.end for call in completed], bins=edges, weights=[call.batch for call in completed])
    return _interval(counts, finish - begin, len(completed))


def _interval(counts: NDArray[Any], seconds: float, completed: int) -> tuple[float, float]:
    """``counts``: the inferences of each slice of ``seconds``."""
    if seconds <= 0 or completed < 2:
        return 0.0, math.inf if completed else 0.0
    rates = counts / (seconds / SLICES)
    half = 2.262 * float(np.std(rates, ddof=1)) / math.sqrt(SLICES)  # t(0.975, 9 degrees of freedom)
    mean = float(np.mean(rates))
    return max(0.0, mean - half), mean + half

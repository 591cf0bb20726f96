"""Where a request's time goes: in the queue, in prefill, in decode, and beyond the server. By vLLM's own histograms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from enginewright_builder.generate.answer import Answer

QUEUE, PREFILL, DECODE = ("vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds",
                          "vllm:request_decode_time_seconds")
CACHED = "vllm:prefix_cache_hits_total"
_HITS = re.compile(rf"^{CACHED}(?:\{{[^}}]*\}})? (\S+)$", re.MULTILINE)
_SERIES = re.compile(rf"^({QUEUE}|{PREFILL}|{DECODE})_(sum|count)(?:\{{[^}}]*\}})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Mean milliseconds of a request; ``transport_ms`` is what the client saw beyond the server's own three."""

    queue_ms: float
    prefill_ms: float
    decode_ms: float
    transport_ms: float


def layers(before: str, after: str, answers: Sequence[Answer]) -> Layers | None:
    """``before`` and ``after`` are the server's metrics at both ends of the load that gave ``answers``. None where the
    server counted no request."""
    begin, end = _sums(before), _sums(after)
    good = [one for one in answers if not one.error]
    queue, prefill, decode = (_mean(begin, end, name) for name in (QUEUE, PREFILL, DECODE))
    if not good or queue is None or prefill is None or decode is None:
        return None
    seen = sum(one.end - one.due for one in good) / len(good) * 1e3
    return Layers(queue_ms=queue, prefill_ms=prefill, decode_ms=decode,
                  transport_ms=max(0.0, seen - queue - prefill - decode))


def cached_tokens(before: str, after: str) -> float:
    """Tokens of prompts that the prefix cache answered between two readings of the server's metrics."""
    return max(0.0, sum(map(float, _HITS.findall(after))) - sum(map(float, _HITS.findall(before))))


def _sums(page: str) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for name, what, value in _SERIES.findall(page):
        found[name, what] = found.get((name, what), 0.0) + float(value)
    return found


def _mean(begin: dict[tuple[str, str], float], end: dict[tuple[str, str], float], name: str) -> float | None:
    count = end.get((name, "count"), 0.0) - begin.get((name, "count"), 0.0)
    seconds = end.get((name, "sum"), 0.0) - begin.get((name, "sum"), 0.0)
    return seconds / count * 1e3 if count > 0 else None

"""What a tritonserver's metrics say of its GPUs: energy, utilisation and memory, for who has no device to ask itself;
and what it has taken of its pool of pinned host memory, which nothing else tells.

Triton reads them from the driver in steps of ``--metrics-interval-ms``: windows are to be long beside that.
"""

from __future__ import annotations

import math
import re

import httpx

from enginewright_builder.measure.energy import Reading

# Triton's documentation, "Metrics": joules since it started, a share of 0 to 1, and bytes, each by GPU.
JOULES, BUSY, MEMORY = "nv_energy_consumption", "nv_gpu_utilization", "nv_gpu_memory_used_bytes"
# Of the pool that --pinned-memory-pool-byte-size makes; from release 24.01 on. Without a GPU Triton makes no pool, and
# exports the size that was asked for all the same (core, pinned_memory_manager.cc).
PINNED_USED, PINNED_TOTAL = "nv_pinned_memory_pool_used_bytes", "nv_pinned_memory_pool_total_bytes"
_SERIES = re.compile(rf"^({JOULES}|{BUSY}|{MEMORY})\{{[^}}]*\}} (\S+)$", re.MULTILINE)
# Loopback, and a page of some kilobytes.
_SECONDS = 2.0


class TritonMeter:
    """Of all GPUs of the server whose metrics are at ``address`` (``host:port``)."""

    name = "triton"

    def __init__(self, address: str) -> None:
        self._client = httpx.Client(trust_env=False, timeout=_SECONDS)
        self._url = f"http://{address}/metrics"

    def read(self) -> Reading:
        """Nothing where the server does not answer: what is measured beside it goes on."""
        try:
            answer = self._client.get(self._url)
        except httpx.TransportError:
            return Reading()
        return reading(answer.text) if answer.is_success else Reading()

    def close(self) -> None:
        self._client.close()


def reading(page: str) -> Reading:
    """A page of Triton's metrics: joules and bytes added up over GPUs, utilisation as their mean. What it lacks is
    None."""
    found: dict[str, list[float]] = {}
    for name, text in _SERIES.findall(page):
        if (value := _number(text)) is not None:
            found.setdefault(name, []).append(value)
    joules, busy, memory = (found.get(name) for name in (JOULES, BUSY, MEMORY))
    return Reading(joules=sum(joules) if joules else None, utilisation=sum(busy) / len(busy) if busy else None,
                   memory_bytes=int(sum(memory)) if memory else None)


def pinned(page: str, name: str) -> int | None:
    """:data:`PINNED_USED` or :data:`PINNED_TOTAL`, in bytes; None where this Triton does not export it."""
    found = re.search(rf"^{name} (\S+)$", page, re.MULTILINE)
    value = _number(found[1]) if found else None
    return None if value is None else int(value)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None

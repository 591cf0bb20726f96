"""What a tritonserver's metrics say of its GPUs: energy, utilisation and memory, for who has no device to ask itself.

Triton reads them from the driver in steps of ``--metrics-interval-ms``: windows are to be long beside that.
"""

from __future__ import annotations

import math
import re

import httpx

from enginewright_builder.measure.energy import Reading

# Triton's documentation, "Metrics": joules since it started, a share of 0 to 1, and bytes, each by GPU.
JOULES, BUSY, MEMORY = "nv_energy_consumption", "nv_gpu_utilization", "nv_gpu_memory_used_bytes"
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


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None

"""What the GPUs of one object's replicas draw and do, by Triton's own counters on the pages that are read anyway.

Replicas may share a GPU, and each then tells all of what it does: a GPU counts once, by its UUID.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Final

from enginewright.clients.signals import GpuMetrics, ReplicaMetrics

# Inferences and joules are held against each other over so many seconds: Triton reads its GPU every two.
OVER: Final = 60.0
# A reading that is older says nothing of now.
STALE: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Of all GPUs: mean share of the time busy (0 to 1), watts and bytes of memory in use now, and inferences for each
    joule, idle power included, over the last minute. None: not told."""

    utilisation: float | None = None
    watts: float | None = None
    memory_bytes: float | None = None
    inferences_per_joule: float | None = None


@dataclass(frozen=True)
class _Grown:
    time: float
    inferences: float
    joules: float


class Power:
    """Times are seconds on a monotonic clock."""

    def __init__(self) -> None:
        self._last: dict[str, ReplicaMetrics] = {}
        self._now: dict[str, tuple[float, GpuMetrics]] = {}
        self._grown: deque[_Grown] = deque()

    def update(self, time: float, scraped: Mapping[str, ReplicaMetrics], pods: Container[str]) -> None:
        """One round: what each pod that answered said. Others than ``pods`` are forgotten."""
        inferences, joules = 0.0, dict[str, float]()
        for pod, metrics in scraped.items():
            before = self._last.get(pod)
            if before is not None and (grown := _since(before, metrics)) is not None:
                inferences += metrics.inferences - before.inferences
                for gpu, more in grown.items():
                    joules[gpu] = max(more, joules.get(gpu, 0.0))
            self._now |= {gpu: (time, reading) for gpu, reading in metrics.gpus.items()}
        # A pod that did not answer tells later of all that it did meanwhile, unless it is gone by then.
        self._last = {pod: metrics for pod, metrics in (self._last | dict(scraped)).items() if pod in pods}
        if joules:
            self._grown.append(_Grown(time, inferences, sum(joules.values())))
        self._forget(time)

    def drawn(self, time: float) -> Drawn:
        self._forget(time)
        inferences, joules = (sum(getattr(one, name) for one in self._grown) for name in ("inferences", "joules"))
        busy = self._each(lambda gpu: gpu.utilisation)
        return Drawn(utilisation=statistics.fmean(busy) if busy else None,
                     watts=_sum(self._each(lambda gpu: gpu.watts)),
                     memory_bytes=_sum(self._each(lambda gpu: gpu.memory_bytes)),
                     inferences_per_joule=inferences / joules if joules else None)

    def _each(self, figure: Callable[[GpuMetrics], float | None]) -> list[float]:
        found = (figure(gpu) for _, gpu in self._now.values())
        return [one for one in found if one is not None]

    def _forget(self, time: float) -> None:
        while self._grown and self._grown[0].time < time - OVER:
            self._grown.popleft()
        self._now = {gpu: seen for gpu, seen in self._now.items() if seen[0] >= time - STALE}


def _since(before: ReplicaMetrics, now: ReplicaMetrics) -> Mapping[str, float] | None:
    """Joules of each GPU; None where a counter fell, with its server, or a GPU, or the server, tells of none."""
    grown = {}
    for uuid, gpu in now.gpus.items():
        last = before.gpus.get(uuid, GpuMetrics()).joules
        if gpu.joules is None or last is None or gpu.joules < last:
            return None
        grown[uuid] = gpu.joules - last
    return grown if grown and now.inferences >= before.inferences else None


def _sum(figures: list[float]) -> float | None:
    return sum(figures) if figures else None

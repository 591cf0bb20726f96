"""What the operator holds at one moment."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Final

from prometheus_client.samples import Sample

from operator_metrics import samples
from scale_study.meters import rss_mb

PORT: Final = 8080
EVENTS: Final = "enginewright_watch_events_total"
GAUGES: Final = {"tasks": "enginewright_tasks", "remembered": "enginewright_remembered_objects",
                 "objects": "enginewright_objects"}
# Memory is read so often at rest, and the least counts: a pass may be under way.
READINGS: Final = 10


@dataclass(frozen=True)
class Held:
    """``rss_mb`` in 10**6 bytes; ``series`` are the samples of the operator's /metrics."""

    rss_mb: float
    tasks: int
    files: int
    threads: int
    series: int
    remembered: int
    objects: int

    def beside(self, before: Held) -> dict[str, float]:
        """Each figure over what it was before."""
        return {name: round(value / was, 3) for (name, value), was in zip(asdict(self).items(), asdict(before).values(),
                                                                         strict=True)}


@dataclass(frozen=True)
class Reading:
    events: int
    held: Held


async def read(process: int) -> Reading:
    return reading(await samples(PORT), rss_mb(process), len(os.listdir(f"/proc/{process}/fd")),
                   len(os.listdir(f"/proc/{process}/task")))


def reading(told: Sequence[Sample], memory: float, files: int, threads: int) -> Reading:
    """From the operator's own metrics, without the series of calls by code: which codes there were depends on the
    cluster's faults."""
    plain = {sample.name: int(sample.value) for sample in told if not sample.labels}
    return Reading(plain[EVENTS], Held(round(memory, 1), files=files, threads=threads, series=sum(
        "code" not in sample.labels for sample in told), **{name: plain[gauge] for name, gauge in GAUGES.items()}))


async def at_rest(process: int) -> Reading:
    """The least of each figure in ten readings, a second apart."""
    readings = []
    for _ in range(READINGS):
        readings.append(await read(process))
        await asyncio.sleep(1.0)
    least = Held(**{one.name: min(getattr(reading.held, one.name) for reading in readings) for one in fields(Held)})
    return Reading(readings[-1].events, least)


def record_of(name: str, one: Reading) -> dict[str, object]:
    return {"when": name, "events": one.events, **asdict(one.held)}

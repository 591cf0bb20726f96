"""What replicas are seen to do while all of them are full: less than was measured, where neighbours, longer inputs or a
hot device slow them down. A queue that stays is then no passing burst, whatever the measured capacity says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from enginewright.core.observed import Sample

# Samples in a row in which every replica has a queue.
SATURATED = 4


@dataclass(frozen=True)
class Saturation:
    """Requests a second: that came, and that one replica served."""

    rate: float
    each: float


def saturation(samples: Sequence[Sample], ordinary: float) -> Saturation | None:
    """From what arrived and what the queue grew by; None unless in each of the last samples the same replicas all
    answered, each with requests waiting, and more in all than the ``ordinary`` ones that can be answered in time."""
    recent = samples[-SATURATED:]
    if len(recent) < SATURATED or not all(_full(one, ordinary) for one in recent):
        return None
    first, last = recent[0], recent[-1]
    if any(one.pending.keys() != first.pending.keys() for one in recent):
        return None
    arrived = [one.arrived for one in recent[1:]]
    seconds = last.time - first.time
    if seconds <= 0 or any(one is None for one in arrived):
        return None
    came = sum(one for one in arrived if one is not None)
    served = came - (_queued(last) - _queued(first))
    return Saturation(rate=came / seconds, each=max(0.0, served) / seconds / last.ready)


def _full(sample: Sample, ordinary: float) -> bool:
    everyone = sample.ready > 0 and len(sample.pending) == sample.ready and min(sample.pending.values()) >= 1
    return everyone and _queued(sample) > ordinary


def _queued(sample: Sample) -> float:
    return sum(sample.pending.values())

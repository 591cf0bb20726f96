"""Is a replica what it was measured to be? Neighbours, longer inputs or a hot device make it slower, and then a queue
stays that by the measured capacity would have been gone: queue depth is believed before any model of it."""

from __future__ import annotations

from collections.abc import Sequence

from enginewright.core.observed import Sample

# Samples in a row that speak against it.
WITNESSES = 4
# A part of the measured throughput that full replicas reach at least.
REACHED = 0.9


def overfull(samples: Sequence[Sample], ordinary: float) -> bool:
    """Whether more requests wait than the ``ordinary`` ones that can be answered in time, and not for a moment only."""
    recent = samples[-WITNESSES:]
    return len(recent) == WITNESSES and all(_queued(one) > ordinary for one in recent)


def slower_than_measured(samples: Sequence[Sample], throughput: float) -> bool:
    """Of replicas with requests to serve: whether they served fewer than ``throughput`` a second each, by what arrived
    and what the queue grew by. False where arrivals cannot be told."""
    recent = samples[-WITNESSES:]
    arrived = [one.arrived for one in recent[1:]]
    seconds = recent[-1].time - recent[0].time if recent else 0.0
    if len(recent) < WITNESSES or seconds <= 0 or any(came is None for came in arrived):
        return False
    served = sum(came for came in arrived if came is not None) + _queued(recent[0]) - _queued(recent[-1])
    return served < REACHED * throughput * min(one.ready for one in recent) * seconds


def _queued(sample: Sample) -> float:
    return sum(sample.pending.values())

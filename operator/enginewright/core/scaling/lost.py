"""How many requests were late, by the queues that they found.

What a sample finds queued at a replica is what a request finds that comes then (Poisson arrivals see time averages:
Wolff, 1982). So of the arrivals between two samples the share of replicas with a long queue were late. Kept is how many
arrivals found how much, whatever a replica was believed to do: that may change within the hour.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from enginewright.core.scaling.capacity import Capacity
from enginewright.core.signals import Sample

# Queues of 1, 2, 4, … requests and more: no server does half a million in a second.
SIZES = tuple(2**power for power in range(20))


def found_queued(sample: Sample) -> tuple[float, ...]:
    """Arrivals that found at least 1, 2, 4, … requests queued at the replica that they came to; none where that
    is unknown."""
    queues = sample.pending.values()
    longest = max(queues, default=0.0)
    if not sample.arrived or longest < 1:
        return ()
    each = sample.arrived / len(queues)
    return tuple(each * sum(queue >= size for queue in queues) for size in SIZES if size <= longest)


def added(these: tuple[float, ...], those: tuple[float, ...]) -> tuple[float, ...]:
    longer, shorter = (these, those) if len(these) >= len(those) else (those, these)
    return tuple(one + (shorter[place] if place < len(shorter) else 0.0) for place, one in enumerate(longer))


def lost(samples: Iterable[Sample], capacity: Capacity, patience: float) -> float:
    """Requests that took longer than ``patience`` seconds, by what ``capacity`` says of a replica."""
    spare = max(0.0, patience - capacity.compute_seconds)
    place = math.log2(max(1.0, spare * capacity.throughput))
    low, part = int(place), place - int(place)
    late = 0.0
    for sample in samples:
        queued = sample.queued
        if low < len(queued):
            more = queued[low + 1] if low + 1 < len(queued) else 0.0
            # Between two sizes queues fall off evenly on a scale of powers.
            late += queued[low] + part * (more - queued[low])
    return late

"""What requests were seen to take at replicas without a backlog, beside what the build measured.

A replica that is slower than it was measured, but never full (``seen.py``), shows it by the time that requests wait and
are computed, both of which Triton counts. The mean wait is held against that of the queue in ``capacity.py``, at the
rate that reached a replica::

    E(wait) = I / 2 · ρ ** (√(2 (instances + 1)) - 1) / (1 - ρ) / μ

(Sakasegawa, "An approximation formula L_q ≈ α ρ^β / (1 - ρ)", 1977, with the index of dispersion I as in heavy traffic;
for one instance and Poisson arrivals it is Pollaczek's and Khinchin's), with a batcher on top of the rest of the batch
under way. Computing is held against the service curve, at the batches that were executed. How sure a difference is
follows from the spread between cells of some seconds: what waits now is like what waited a moment ago, but not like
what waited long before (batch means: Schmeiser, 1982).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise

from enginewright.core.scaling.capacity import Capacity, largest_rate
from enginewright.core.scaling.seen import NEVER_EMPTY, PART, in_parts
from enginewright.core.signals import Sample, Spent

# Seconds of a cell of the fleet's time; how many count, the newest; the fewest that do.
CELL = 10.0
LOOKED, LEAST = 30, 6
# A cell counts where each replica got so much of what one may be given: a device that idles slows its clock, and hardly
# anything waits.
LOADED = 0.5
# A load above this lasts too short in one cell for a longer queue to build up.
FULLEST = 0.9
# Slower is what is so by so many standard deviations.
SURE = 3.0
# The build's times are medians, what is counted are means, which lie above.
MEAN = 1.1
# Scrapes are not a second apart to the last digit.
ROUNDING = 0.05
HALVINGS = 8


def calm(before: Sample, sample: Sample) -> Spent:
    """What those replicas spent between two samples that had hardly a queue at either: what waits in a backlog tells of
    the load, not of the replica."""
    total = Spent()
    for pod, spent in sample.spent.items():
        queue = max(before.pending.get(pod, math.inf), sample.pending.get(pod, math.inf))
        if queue <= max(1.0, NEVER_EMPTY * math.sqrt(spent.answered)):
            total += spent
    return total


def share_by_latency(samples: Sequence[Sample], capacity: Capacity, patience: float, dispersion: float) -> float:
    """Of the measured throughput, from :data:`PART` to 1, what one replica does by the time that requests took; 1 where
    nothing is sure. ``dispersion`` is the index of dispersion of what reaches one replica."""
    least = LOADED * largest_rate(capacity, patience, dispersion)
    cells = list(islice(_cells(samples, least), LOOKED))
    if len(cells) < LEAST:
        return 1.0

    def waiting(share: float) -> list[float]:
        slower = capacity.slowed(share)
        return [cell.answered * _mean_wait(cell.answered / cell.seconds, slower, dispersion) for cell in cells]

    def computing(share: float) -> list[float]:
        return [MEAN * cell.answered * _compute_seconds(cell, capacity) / share for cell in cells]

    return min(_explained([cell.waited for cell in cells], waiting),
               _explained([cell.computed for cell in cells], computing))


def _cells(samples: Sequence[Sample], least: float) -> Iterator[Spent]:
    """Newest first, each of the fleet's time, those in which more than ``least`` requests a second were answered."""
    if not any(sample.calm.answered for sample in samples):
        return
    seconds = answered = waited = computed = executions = 0.0
    end = samples[-1].time
    for sample, before in pairwise(reversed(samples)):
        calm = sample.calm
        seconds, answered, waited = seconds + calm.seconds, answered + calm.answered, waited + calm.waited
        computed, executions = computed + calm.computed, executions + calm.executions
        if end - before.time >= CELL * (1 - ROUNDING):
            if answered > least * seconds:
                yield Spent(seconds, answered, waited, computed, executions)
            seconds = answered = waited = computed = executions = 0.0
            end = before.time


def _explained(seen: Sequence[float], expected: Callable[[float], Sequence[float]]) -> float:
    """The share at which as much is ``expected`` as was ``seen``, in parts; 1 unless more is seen than chance makes."""
    over = [one - other for one, other in zip(seen, expected(1.0), strict=True)]
    mean = math.fsum(over) / len(over)
    spread = math.fsum((one - mean) ** 2 for one in over) / (len(over) - 1)
    if mean <= SURE * math.sqrt(spread / len(over)):
        return 1.0
    total, low, high = math.fsum(seen), PART, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if math.fsum(expected(middle)) >= total:
            low = middle
        else:
            high = middle
    return in_parts(low)


def _mean_wait(rate: float, capacity: Capacity, dispersion: float) -> float:
    """At ``rate`` requests a second: by the batch size that promises the least, as in ``capacity.py``."""
    return capacity.delay_seconds + min(_mean_wait_at(point, rate, capacity, dispersion) for point in capacity.points)


def _mean_wait_at(point: tuple[int, float], rate: float, capacity: Capacity, dispersion: float) -> float:
    batch, seconds = point
    served = min(capacity.throughput, capacity.instances * batch / seconds)
    load = min(rate / served, FULLEST)
    queue = dispersion / 2 * math.pow(load, math.sqrt(2 * (capacity.instances + 1)) - 1) / (1 - load) / served
    return queue if batch == 1 else queue + seconds


def _compute_seconds(cell: Spent, capacity: Capacity) -> float:
    """What the service curve says of the batches of this cell, by straight lines. Of sizes with the spread of a
    geometric distribution the mean request sees 2 m - 1, where m is the mean; where batches are not counted, the
    largest."""
    batches, seconds = zip(*capacity.points, strict=True)
    batch = 2 * cell.answered / cell.executions - 1 if cell.executions else batches[-1]
    above = min(bisect_left(batches, batch), len(batches) - 1)
    if above == 0 or batch >= batches[-1]:
        return float(seconds[above])
    part = (batch - batches[above - 1]) / (batches[above] - batches[above - 1])
    return float(seconds[above - 1] + part * (seconds[above] - seconds[above - 1]))

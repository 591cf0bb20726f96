"""What replicas were seen to do while they had requests waiting all the time, beside what the build measured.

Neighbours, longer inputs or a hot device make a replica slower than it was measured. While it is never idle it shows
what it does, and that is believed for as long as samples are remembered, the floor's hour: what was seen last of all
replicas, if most of them were full; of one that was full alone, for as long as it lives. A replica that does more than
was measured is believed the measurement.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Reversible, Sequence
from dataclasses import dataclass
from itertools import pairwise

from enginewright.core.scaling.capacity import Capacity
from enginewright.core.signals import Sample, Work

# A queue of so many standard deviations of what is served between two samples was not empty in between: with Poisson
# arrivals, by the reflection principle, but once in exp(2 · 2²) = 3,000 times.
NEVER_EMPTY = 2.0
# Seconds of evidence that count, the newest; and the fewest that do.
LOOKED, LEAST_SECONDS = 15.0, 2.5
# A server counts when a batch or a step ends, which may take longer than one sample does. In so many seconds without
# an end nothing was done; before, it is not known.
STILL = LOOKED
# Requests that would have been served meanwhile, so that one more or less is no matter.
LEAST_REQUESTS = 20.0
# Fewer seconds than these may be a hiccup: half of them take away half of what was measured at most.
CERTAIN_SECONDS = 6.0
# What is seen is expressed in such parts of what was measured; less than two fifths of a part below is as measured.
PART, SLACK = 0.05, 0.4
# One replica is slower than the others where it is so by so many standard deviations.
SURE = 3.0


@dataclass(frozen=True, kw_only=True)
class Belief:
    """``fleet`` is what a replica does that nothing is seen of, ``slowest`` what the slowest one does; ``own`` has
    requests a second of those that are slower than the fleet. ``measured`` is the build's, ``full`` what replicas did
    that were never idle."""

    measured: Capacity
    full: Capacity
    fleet: Capacity
    slowest: Capacity
    own: Mapping[str, float]

    def throughput(self, pod: str) -> float:
        return self.own.get(pod, self.fleet.throughput)

    @property
    def share(self) -> float:
        """Of the measured throughput, that of the fleet."""
        return self.fleet.throughput / self.measured.throughput


def never_idle(before: Reversible[Sample], sample: Sample) -> dict[str, Work]:
    """What those replicas did that had a queue at ``sample`` and at the newest of ``before``, too long to have been
    empty in between. Of one that has answered nothing since, it is not known, ``Work()``, until it answers: then the
    whole time counts, or once that is :data:`STILL`."""
    last = next(iter(reversed(before)))
    seconds = sample.time - last.time
    if seconds <= 0:
        return {}
    found = {}
    for pod, served in sample.served.items():
        queue = min(last.pending.get(pod, 0.0), sample.pending.get(pod, 0.0))
        if queue < max(1.0, NEVER_EMPTY * math.sqrt(served)):
            continue
        work = Work(seconds + _unknown_seconds(before, pod), served)
        found[pod] = Work() if not served and work.seconds < STILL else work
    return found


def _unknown_seconds(before: Reversible[Sample], pod: str) -> float:
    """For which ``pod`` has been busy, up to the newest sample, without having answered."""
    total = 0.0
    for sample, earlier in pairwise(reversed(before)):
        if sample.full.get(pod) != Work():
            break
        total += sample.time - earlier.time
    return total


def believe(samples: Sequence[Sample], capacity: Capacity, most: float = 1.0) -> Belief:
    """``samples`` at least one, the newest last. ``most`` is the share of the measured throughput that replicas do by
    other signs."""
    alive = samples[-1].pending.keys()
    evidence = [one for one in reversed(samples) if one.full]
    common = [_mean(one.full.values()) for one in evidence if 2 * len(one.full) > one.ready]
    did = _newest(common, capacity.throughput)
    full = capacity.slowed(_share(did, capacity.throughput))
    fleet = min(full, capacity.slowed(most), key=lambda one: one.throughput)
    others = min(fleet.throughput, did.served / did.seconds if did.seconds else math.inf)
    own = {}
    for pod in sorted({pod for one in evidence for pod in one.full.keys() & alive}):
        work = _newest((one.full[pod] for one in evidence if pod in one.full), capacity.throughput)
        if work.served + SURE * math.sqrt(work.served) < others * work.seconds:
            own[pod] = _share(work, capacity.throughput) * capacity.throughput
    # Of some too little was seen to say by how much they are slower.
    own = {pod: throughput for pod, throughput in own.items() if throughput < fleet.throughput}
    slowest = capacity.slowed(min([fleet.throughput, *own.values()]) / capacity.throughput)
    return Belief(measured=capacity, full=full, fleet=fleet, slowest=slowest, own=own)


def _mean(works: Collection[Work]) -> Work:
    return Work(sum(one.seconds for one in works) / len(works), sum(one.served for one in works) / len(works))


def _newest(works: Iterable[Work], throughput: float) -> Work:
    """Newest first; as many as are looked at."""
    total = Work()
    for work in works:
        total += work
        if total.seconds >= max(LOOKED, LEAST_REQUESTS / throughput):
            break
    return total


def _share(work: Work, throughput: float) -> float:
    """Of the measured ``throughput``, from :data:`PART` to 1; 1 where too little was seen."""
    expected = throughput * work.seconds
    if work.seconds < LEAST_SECONDS or expected < LEAST_REQUESTS:
        return 1.0
    share = max(work.served / expected, 1 - work.seconds / CERTAIN_SECONDS)
    return in_parts(share)


def in_parts(share: float) -> float:
    return min(1.0, max(1, math.floor(share / PART + SLACK)) * PART)

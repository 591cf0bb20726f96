"""What is queued, turned into the replicas that take it away in time.

Each replica has a queue of its own, which no other can take over: one that is started helps because it takes a share of
what arrives, so that those before it have time for what waits there."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from enginewright.core.scaling.seen import Belief
from enginewright.core.signals import Sample

# Cold starts after which a replica that has not answered is not expected any more.
OVERDUE = 2.0
# A queue is given at least so many times as long as it takes without any arrivals.
UNHURRIED = 2.0
# Steps of a cold start; a replica that joins in between is counted on from the next.
STEPS = 8
# Samples whose median is a replica's queue.
SMOOTHED = 3


@dataclass(frozen=True, kw_only=True)
class Queue:
    """``waiting`` requests at one replica that serves ``throughput`` a second."""

    waiting: float
    throughput: float


def queues(samples: Sequence[Sample], belief: Belief) -> list[Queue]:
    """Of the replicas that are ready now; one that has not answered lately is taken to have none."""
    recent = samples[-SMOOTHED:]
    pods = sorted({pod for one in recent for pod in one.pending if pod in recent[-1].pending or recent[-1].missing})
    found = [Queue(waiting=statistics.median_low(one.pending[pod] for one in recent if pod in one.pending),
                   throughput=belief.throughput(pod)) for pod in pods]
    silent = max(0, recent[-1].ready - len(found))
    return found + [Queue(waiting=0.0, throughput=belief.fleet.throughput)] * silent


def left_over(here: Iterable[Queue], rate: float, starting: Sequence[float], throughput: float, cold: float
              ) -> list[Queue]:
    """The queues when a replica that is asked for now answers, ``cold`` seconds on: a fluid that comes at ``rate``, in
    equal shares to those that are ready and to each of ``starting`` (ages in seconds), which does ``throughput``, from
    when it answers. One that is long overdue is not counted on."""
    step = cold / STEPS
    joins = Counter(min(STEPS, math.ceil(max(0.0, cold - age) / step)) for age in starting if age <= OVERDUE * cold)
    left, clock = list(here), 0
    for moment in sorted({*joins, STEPS}):
        share, seconds = rate / max(1, len(left)), (moment - clock) * step
        left = [Queue(waiting=max(0.0, one.waiting + (share - one.throughput) * seconds), throughput=one.throughput)
                for one in left]
        clock = moment
        left += [Queue(waiting=0.0, throughput=throughput)] * joins[moment]
    return left


def ordinary(rate: float, replicas: int, compute: float, patience: float) -> float:
    """Requests that may be queued at one replica at any moment without one of them being late (Little's law)."""
    return rate / max(1, replicas) * max(0.0, patience - compute)


def late(left: Sequence[Queue], ordinary_each: float) -> list[Queue]:
    """What is queued beyond the ordinary, where there is such."""
    return [Queue(waiting=one.waiting - ordinary_each, throughput=one.throughput)
            for one in left if one.waiting > ordinary_each]


def replicas_to_drain(behind: Iterable[Queue], rate: float, seconds: float) -> int:
    """So many that each of these queues gets a share of ``rate`` that leaves it time to be gone within ``seconds``, or
    what it needs at the least; 0 where none is behind."""
    wanted = 0
    for one in behind:
        within = max(seconds, UNHURRIED * one.waiting / one.throughput)
        wanted = max(wanted, math.ceil(rate / (one.throughput - one.waiting / within)))
    return wanted

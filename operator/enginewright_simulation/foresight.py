"""The plan of the oracle: how many replicas should be ready when, if all that comes is known.

It is the cheapest plan that meets the objective, as far as this search sees:

1. The trace is cut into blocks of some seconds. For each it is tried how many requests would be late with so many
   replicas, with the same draw of who goes where.
2. Dynamic programming over the blocks finds the plan with the least sum of replica-seconds, cold starts, and late
   requests at a price each (a Lagrange multiplier). The price is found by halving, so that just as many are late as the
   objective's percentile allows.
3. The plan is simulated; what blocks do to one another is not in 1, so the allowance is corrected a few times.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from enginewright_simulation.curve import Service
from enginewright_simulation.server import Ledger, Replica

# Seconds of one block: fewer than the usual cold start, many enough to hold some requests.
BLOCK = 10
# Counts of replicas that are tried in a block lie so far apart; between them late requests fall in proportion.
STEP = 1.15
HALVINGS = 20
PRICES = (1e-3, 1e6)  # replica-seconds for one late request
CORRECTIONS = 6
# The allowance is used up when so much of it is.
CLOSE = 0.93


@dataclass(frozen=True, kw_only=True)
class Trial:
    """How a plan did when it was simulated."""

    late: int
    replica_seconds: float


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """``cold_start`` is what one more replica costs in replica-seconds before it is of use."""

    low: int
    high: int
    cold_start: float


def search(arrivals: Sequence[float], dice: Sequence[float], service: Service, slo: float, share: float,
           bounds: Bounds, attempt: Callable[[Sequence[int]], Trial]) -> list[int]:
    """Replicas ready by second. ``share`` of all requests may be late; ``attempt`` simulates a plan."""
    blocks = lateness(arrivals, dice, service, slo, bounds)
    allowed = share * len(arrivals)
    aim, best, least = allowed, [bounds.high], (True, math.inf)
    for _ in range(CORRECTIONS):
        plan = [count for count in priced(blocks, aim, bounds) for _ in range(BLOCK)]
        trial = attempt(plan)
        # Within the allowance the cheaper is better, beyond it the one with fewer late requests.
        rank = (trial.late > allowed, trial.replica_seconds if trial.late <= allowed else float(trial.late))
        if rank < least:
            best, least = plan, rank
        if CLOSE * allowed <= trial.late <= allowed or trial.late == 0:
            break
        aim *= min(2.0, max(0.3, 0.97 * allowed / trial.late))
    return best


def lateness(arrivals: Sequence[float], dice: Sequence[float], service: Service, slo: float, bounds: Bounds
             ) -> list[list[float]]:
    """For each block the late requests with ``bounds.low``, ``bounds.low`` + 1, … replicas, up to where none is late;
    more replicas have none either."""
    blocks = []
    for start in range(0, int(arrivals[-1]) + 1, BLOCK):
        first, last = bisect_left(arrivals, start), bisect_left(arrivals, start + BLOCK)
        blocks.append(_block(arrivals[first:last], dice[first:last], service, slo, bounds))
    return blocks


def _block(arrivals: Sequence[float], dice: Sequence[float], service: Service, slo: float, bounds: Bounds
           ) -> list[float]:
    few = max(bounds.low, 1, math.ceil(len(arrivals) / BLOCK / service.capacity))
    # With too few the queue grows without end, into the blocks that follow: worse than that all here are late.
    late = [2.0 * len(arrivals) * (few - count) for count in range(bounds.low, min(few, bounds.high + 1))]
    count = few
    while count <= bounds.high and arrivals:
        found = _late(arrivals, dice, service, slo, count)
        if late and count > few:
            known, since = late[-1], bounds.low + len(late) - 1
            late.extend(known + (found - known) * (between - since) / (count - since)
                        for between in range(since + 1, count))
        late.append(float(found))
        if not found:
            break
        count = min(bounds.high, math.ceil(count * STEP)) if count < bounds.high else count + 1
    return late or [0.0]


def _late(arrivals: Sequence[float], dice: Sequence[float], service: Service, slo: float, count: int) -> int:
    ledger = Ledger(slo)
    replicas = [Replica("", service, ledger, 0.0, 0.0) for _ in range(count)]
    into = [one.queue.append for one in replicas]
    for came, die in zip(arrivals, dice, strict=True):
        into[int(die * count)](came)
    for one in replicas:
        one.advance(math.inf)
    return len(ledger.late)


def priced(blocks: Sequence[Sequence[float]], allowed: float, bounds: Bounds) -> list[int]:
    """Replicas for each block: the cheapest with at most ``allowed`` late requests, or the least late."""
    low, high = (math.log(price) for price in PRICES)
    best = cheapest(blocks, PRICES[1], bounds)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        plan = cheapest(blocks, math.exp(middle), bounds)
        if _sum_late(blocks, plan, bounds) <= allowed:
            best, high = plan, middle
        else:
            low = middle
    return best


def _sum_late(blocks: Sequence[Sequence[float]], plan: Sequence[int], bounds: Bounds) -> float:
    return sum(late[count - bounds.low] if count - bounds.low < len(late) else 0.0
               for late, count in zip(blocks, plan, strict=True))


def cheapest(blocks: Sequence[Sequence[float]], price: float, bounds: Bounds) -> list[int]:
    """Least sum of replica-seconds, cold starts and ``price`` for each late request."""
    width = min(bounds.high - bounds.low + 1, max(len(late) for late in blocks) + 1)
    costs = [0.0] * width  # of being at each count before the block; the first are there without a cold start
    came_from: list[list[int]] = []
    for late in blocks:
        reached, origin = _moved(costs, bounds.cold_start if came_from else 0.0)
        known = len(late)
        costs = [
            cost + BLOCK * (bounds.low + index) + (price * late[index] if index < known else 0.0)
            for index, cost in enumerate(reached)
        ]
        came_from.append(origin)
    index, plan = min(range(width), key=costs.__getitem__), []
    for origin in reversed(came_from):
        plan.append(bounds.low + index)
        index = origin[index]
    return plan[::-1]


def _moved(costs: Sequence[float], cold_start: float) -> tuple[list[float], list[int]]:
    """The least cost of reaching each count, and from which: up costs a cold start a replica, down nothing."""
    reached, origin = list(costs), list(range(len(costs)))
    for index in range(len(costs) - 2, -1, -1):
        if reached[index + 1] < reached[index]:
            reached[index], origin[index] = reached[index + 1], origin[index + 1]
    for index in range(1, len(costs)):
        up = reached[index - 1] + cold_start
        if up < reached[index]:
            reached[index], origin[index] = up, origin[index - 1]
    return reached, origin

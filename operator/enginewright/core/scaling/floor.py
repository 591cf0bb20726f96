"""The smallest fleet to fall back to: one that would have met the objective over what is remembered.

Arrivals are gone through again with a floor under the replicas, as this scaler would have acted: what came is a fluid,
replicas follow the need a cold start late, and go a cold start after they were needed last. The smallest floor is
taken with which the objective would have been met; where none would have met it, the smallest that would have lost
hardly more requests than the largest. Where more was lost than the objective allows over an hour, what would be lost
for lack of replicas, not by chance with as many as were needed, has to fit into what is left. So a load that only falls
is followed closely, and one whose bursts come back finds the replicas that it had, or as many as tide it over until
others start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from enginewright.core.scaling.arrivals import Interval

# A floor must save all but this share of the late requests that the largest floor would save.
SPARED = 0.05


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """``need`` gives replicas for a rate (requests a second) and a backlog (requests), ``late`` the share of requests
    that are late at a rate on so many replicas. Each serves ``throughput`` requests a second, and answers ``cold``
    seconds after it was asked for. A request may take ``patience`` seconds."""

    need: Callable[[float, float], int]
    late: Callable[[float, int], float]
    throughput: float
    cold: float
    patience: float


def least_floor(cells: Sequence[Interval], fleet: Fleet, low: int, high: int, allowed: float, left: float) -> int:
    """From ``low`` to ``high`` replicas. ``allowed`` is the share of requests that may be late, 0 to 1, and ``left``,
    at most as much, the share that may still be late for lack of replicas; where that is none, all but the share
    ``allowed`` of those that the lowest floor would lose are to be saved."""
    steps = _steps(cells, fleet)
    least, most = _shares(steps, high, fleet), _shares(steps, low, fleet)
    late = max(allowed, least.all + SPARED * (most.all - least.all))
    short = max(left, allowed * most.short)
    if low >= high or (most.all <= late and most.short <= short):
        return low
    while low < high:
        middle = (low + high) // 2
        found = _shares(steps, middle, fleet)
        if found.all <= late and found.short <= short:
            high = middle
        else:
            low = middle + 1
    return low


class Shares(NamedTuple):
    """Shares of requests that would have been late: ``short`` of those only that more replicas were needed for."""

    all: float
    short: float


class _Step(NamedTuple):
    """A cell with its ``rate`` and the replicas that are ``enough`` for it, which no floor changes."""

    cell: Interval
    rate: float
    enough: int


def _steps(cells: Sequence[Interval], fleet: Fleet) -> list[_Step]:
    rates = [cell.arrived / cell.seconds for cell in cells]
    return [_Step(cell, rate, fleet.need(rate, 0.0)) for cell, rate in zip(cells, rates, strict=True)]


def _shares(steps: Sequence[_Step], floor: int, fleet: Fleet) -> Shares:
    replay = _Replay(fleet, floor)
    for step in steps:
        replay.step(step)
    total = sum(step.cell.arrived for step in steps)
    return Shares(replay.late / total, replay.short / total) if total else Shares(0.0, 0.0)


class _Replay:
    def __init__(self, fleet: Fleet, floor: int) -> None:
        self._fleet = fleet
        self._floor = floor
        self._ready = floor
        self.late = self.short = 0.0
        self._backlog = 0.0
        # (time, replicas) that were asked for and are not ready yet.
        self._coming: deque[tuple[float, int]] = deque()
        # (time, need) of the last cold start, each larger than all after it: the first is the largest.
        self._needed: deque[tuple[float, int]] = deque()

    def step(self, step: _Step) -> None:
        cell, rate, enough = step
        if not self._needed:
            self._ready = max(self._floor, enough)
        self._scale(cell.time - cell.seconds)
        over = self._backlog + (rate - self._ready * self._fleet.throughput) * cell.seconds
        queued = _share_above(self._backlog, over, rate * self._fleet.patience)
        late = max(queued, self._fleet.late(rate, self._ready))
        self.late += cell.arrived * late
        if queued or self._ready < enough:
            self.short += cell.arrived * max(0.0, late - self._fleet.late(rate, enough))
        self._backlog = max(0.0, over)
        self._want(cell.time, self._fleet.need(rate, self._backlog) if self._backlog else enough)

    def _scale(self, now: float) -> None:
        while self._coming and self._coming[0][0] <= now:
            self._ready = max(self._ready, self._coming.popleft()[1])
        while len(self._needed) > 1 and self._needed[0][0] + self._fleet.cold < now:
            self._needed.popleft()
        if self._needed:
            self._ready = max(self._floor, min(self._ready, self._needed[0][1]))

    def _want(self, now: float, need: int) -> None:
        while self._needed and self._needed[-1][1] <= need:
            self._needed.pop()
        self._needed.append((now, need))
        if need > self._ready:
            self._coming.append((now + self._fleet.cold, need))


def _share_above(before: float, after: float, bound: float) -> float:
    """Of a straight line from ``before`` to ``after``, the share above ``bound``."""
    low, high = min(before, after), max(before, after)
    if low >= bound:
        return float(high > bound)
    return (high - bound) / (high - low) if high > bound else 0.0

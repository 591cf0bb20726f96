"""The search: few measurements, from a good start, one coordinate at a time. It knows nothing of servers.

1. One instance count and delay (the user's, or 1 and 0), concurrency climbed by factors of 4 until the score falls: the
knee. 2. At that concurrency, instances doubled while that is clearly better, or better twice.
3. At that concurrency, the queue delay: 500 µs first, then longer if it helped, else shorter.
4. Concurrency once more around the winner, since the configuration changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from enginewright_builder.contract import BatchingRequest, InstancesRequest, ObjectiveRequest, ServingChoice
from enginewright_builder.sweep.objective import clearly_better, met, replicas_needed, score
from enginewright_builder.sweep.result import Point

DELAYS_US = (0, 100, 500, 2000, 5000)
FIRST_DELAY_US = 500
CONCURRENCY_STEP = 4
# A gain of this much that is within noise is measured a second time.
PROMISING = 1.1

Coordinate = Literal["instance_count", "max_queue_delay_us"]
Measure = Callable[[ServingChoice, int, Point | None], Awaitable[Point]]


@dataclass(frozen=True, kw_only=True)
class Space:
    """What may vary. One value means that it is fixed."""

    max_batch_size: int
    preferred_batch_sizes: tuple[int, ...]
    instances: tuple[int, ...]
    delays_us: tuple[int, ...]
    max_concurrency: int

    @classmethod
    def of(cls, *, max_batch_size: int, batching: BatchingRequest, instances: InstancesRequest, cores: int,
           gpus: int) -> Space:
        """What the user fixed is honoured. Delays only where there is a batch to form."""
        counts = (instances.count,) if instances.count > 0 else _doublings(4 if gpus else cores)
        if batching.max_queue_delay_us >= 0:
            delays: tuple[int, ...] = (batching.max_queue_delay_us,)
        else:
            delays = DELAYS_US if max_batch_size > 1 else (0,)
        return cls(max_batch_size=max_batch_size, preferred_batch_sizes=batching.preferred_batch_sizes,
                   instances=counts, delays_us=delays, max_concurrency=max(4, 2 * max(1, max_batch_size) * counts[-1]))


@dataclass
class Search:
    """Holds the measured points. ``left`` counts measurements still allowed; ``time_left`` says whether time is."""

    space: Space
    objective: ObjectiveRequest
    measure: Measure
    left: int = 12
    time_left: Callable[[], bool] = lambda: True
    points: list[Point] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    async def run(self) -> Point:
        start = ServingChoice(max_batch_size=self.space.max_batch_size, instance_count=self.space.instances[0],
                              preferred_batch_sizes=self.space.preferred_batch_sizes,
                              max_queue_delay_us=self.space.delays_us[0])
        best = await self._knee(start)
        best = await self._climb(best, "instance_count", self.space.instances[1:])
        best = await self._delay(best)
        return await self._around(best)

    async def _knee(self, serving: ServingChoice) -> Point:
        best = await self._point(serving, 1)
        concurrency = CONCURRENCY_STEP
        while concurrency <= self.space.max_concurrency and self._may():
            point = await self._point(serving, concurrency)
            falling = score(point, self.objective) < score(best, self.objective)
            best = max(best, point, key=lambda p: score(p, self.objective))
            # Queueing only grows from here: past the objective or the knee no higher concurrency comes back.
            if falling:
                break
            concurrency *= CONCURRENCY_STEP
        return best

    async def _climb(self, best: Point, coordinate: Coordinate, values: Iterable[int]) -> Point:
        """Follows ``values`` from the incumbent on, until one is not clearly better at the same concurrency.

        One request in flight can use one instance only, so the comparison is made with at least two for each instance.
        """
        for value in values:
            if not self._may():
                break
            serving = _with(best.serving, coordinate, value)
            concurrency = max(best.concurrency, 2 * serving.instance_count)
            rival = best if concurrency == best.concurrency else await self._point(best.serving, concurrency)
            if not self._may():
                break
            point = await self._point(serving, concurrency, rival)
            best = max(best, rival, key=lambda p: score(p, self.objective))
            better = clearly_better(point, rival, self.objective)
            if not better and self._promising(point, rival):
                point, rival, better = await self._again(point, rival)
            self._note(coordinate, value, point, rival, better)
            if not better:
                break
            best = max(best, point, key=lambda p: score(p, self.objective))
        return best

    def _promising(self, point: Point, rival: Point) -> bool:
        """A gain that noise could hide, with measurements left to look again."""
        ahead = score(point, self.objective) > score(rival, self.objective)
        return ahead and point.throughput > PROMISING * rival.throughput and self.left >= 2 and self.time_left()

    async def _again(self, point: Point, rival: Point) -> tuple[Point, Point, bool]:
        """Measures both once more, in the other order, so that a machine that got slower meanwhile favours neither."""
        second = await self._measured(point.serving, point.concurrency, rival)
        second_rival = await self._measured(rival.serving, rival.concurrency, None)
        return second, second_rival, score(second, self.objective) > score(second_rival, self.objective)

    async def _delay(self, best: Point) -> Point:
        longer = [delay for delay in self.space.delays_us if delay > FIRST_DELAY_US]
        shorter = [delay for delay in self.space.delays_us if 0 < delay < FIRST_DELAY_US]
        if FIRST_DELAY_US not in self.space.delays_us or len(self.space.delays_us) < 2 or best.concurrency < 2:
            return best  # fixed, or nobody to wait for
        after = await self._climb(best, "max_queue_delay_us", (FIRST_DELAY_US,))
        helped = after.serving.max_queue_delay_us == FIRST_DELAY_US
        return await self._climb(after, "max_queue_delay_us", longer if helped else shorter[-1:])

    async def _around(self, best: Point) -> Point:
        """Half and double the concurrency: the last configuration may have moved the knee or the objective's edge."""
        for concurrency in (best.concurrency * 2, best.concurrency // 2):
            if 1 <= concurrency <= self.space.max_concurrency and self._may():
                point = await self._point(best.serving, concurrency)
                if score(point, self.objective) > score(best, self.objective):
                    best = point
        return best

    async def _point(self, serving: ServingChoice, concurrency: int, rival: Point | None = None) -> Point:
        for known in reversed(self.points):
            if known.serving == serving and known.concurrency == concurrency:
                return known
        return await self._measured(serving, concurrency, rival)

    async def _measured(self, serving: ServingChoice, concurrency: int, rival: Point | None) -> Point:
        self.left -= 1
        point = await self.measure(serving, concurrency, rival)
        self.points.append(point)
        return point

    def _may(self) -> bool:
        return self.left > 0 and self.time_left()

    def _note(self, coordinate: Coordinate, value: int, point: Point, rival: Point, better: bool) -> None:
        what = f"{value} instances" if coordinate == "instance_count" else f"A queue delay of {value} µs"
        verdict = "better" if better else "no clear gain"
        self.notes.append(f"{what}: {point.throughput:,.0f} against {rival.throughput:,.0f} inferences/s "
                          f"at {point.concurrency} in flight, {verdict}")


def reason(search: Search, best: Point, objective: ObjectiveRequest) -> str:
    """The choice in words."""
    chosen, threads = best.serving, f" of {best.threads} threads" if best.threads > 1 else ""
    text = (f"{_count(chosen.instance_count, 'instance')}{threads}, queue delay {chosen.max_queue_delay_us} µs, "
            f"batches of up to {chosen.max_batch_size}: {best.throughput:,.0f} inferences/s "
            f"with p{objective.latency_percentile:g} "
            f"{best.objective_ms:.1f} ms at {_count(best.concurrency, 'request')} in flight")
    if objective.latency_ms > 0:
        text += (f", within the objective of {objective.latency_ms:g} ms" if met(best, objective) else
                 f"; the objective of {objective.latency_ms:g} ms is missed, and nothing measured was faster")
    else:
        text += ", the knee of the latency–throughput curve (no latency objective was given)"
    if replicas := replicas_needed(best, objective):
        text += f". {objective.throughput:,.0f} inferences/s take {_count(replicas, 'replica')}"
    return ". ".join([text, *search.notes]) + f". {_count(len(search.points), 'measurement')}."


def _with(serving: ServingChoice, coordinate: Coordinate, value: int) -> ServingChoice:
    if coordinate == "instance_count":
        return dataclasses.replace(serving, instance_count=value)
    return dataclasses.replace(serving, max_queue_delay_us=value)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _doublings(limit: int) -> tuple[int, ...]:
    values = [1]
    while values[-1] * 2 <= limit:
        values.append(values[-1] * 2)
    if values[-1] != limit:
        values.append(limit)
    return tuple(values)

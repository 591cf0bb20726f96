"""Quick search as Triton Model Analyzer does it, on a recorded grid: a hill climb over (largest batch, instances), each
point loaded with ``2 · batch · instances`` requests, then a sweep of the load over the best three and the default.

Written from its documentation and behaviour (github.com/triton-inference-server/model_analyzer, version of April 2026:
``docs/config_search.md``, ``config/generate/{quick_run_config_generator,neighborhood}.py``,
``result/parameter_search.py``). It leaves the queue delay at Triton's default, 0. Steps go along the recorded values
of each axis, loads between recorded ones are rounded down, and what was measured once is not measured again.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from enginewright_builder.contract import ObjectiveRequest
from enginewright_builder.sweep.objective import met, score
from enginewright_builder.sweep.result import Point
from grids.grid import Axes, Cell, Config

Place = tuple[int, int]  # indices of largest batch and instances
# Its constants: neighbourhood, weights to steps, configurations swept, when a sweep of the load has saturated.
RADIUS, ENOUGH = 3, 3
STEPS = (0.09, 0.3, 1.0)
SWEPT = 3
LEAST_GAIN, TRIES = 0.05, 4


@dataclass
class QuickSearch:
    axes: Axes
    measure: Callable[[Cell], Point]
    objective: ObjectiveRequest
    points: dict[Cell, Point] = field(default_factory=dict)
    home: Place = (0, 0)
    slow: bool = False
    passed: bool = False

    def run(self) -> tuple[Cell, tuple[Cell, ...]]:
        """The best cell measured, and all of them in order."""
        default = self._cell((len(self.axes.max_batch_sizes) - 1, 0))
        self._see(default)
        self._climb()
        for config in self._to_sweep(default.config):
            self._sweep(config)
        return max(self.points, key=lambda cell: score(self.points[cell], self.objective)), tuple(self.points)

    def _climb(self) -> None:
        visits: Counter[Place] = Counter()
        climbed = {self.home: self._see(self._cell(self.home))}
        self.passed = met(climbed[self.home], self.objective)
        target = self.home
        while True:
            failing = not met(climbed[target], self.objective)
            if target == self.home and failing and self.passed:
                best = max(climbed, key=lambda place: score(climbed[place], self.objective))
                new = min(self._neighbours(), key=lambda place: math.dist(place, best))
                if new == self.home:
                    return
                self.home, self.slow = new, True
            elif self._enough(climbed):
                new = self._new_home(climbed)
                if new == self.home or visits[new] >= 2:
                    return
                self.home, self.slow = new, False
            else:
                unseen = self._next(climbed)
                if unseen is None:
                    return
                target = unseen
                climbed[target] = self._see(self._cell(target))
                continue
            visits[self.home] += 1
            target = self.home
            climbed[target] = self._see(self._cell(target))
            self.passed = self.passed or met(climbed[target], self.objective)

    def _neighbours(self) -> list[Place]:
        sizes = len(self.axes.max_batch_sizes), len(self.axes.instance_counts)
        return [place for place in itertools.product(range(sizes[0]), range(sizes[1]))
                if math.dist(place, self.home) <= RADIUS]

    def _adjacent(self) -> list[Place]:
        return [place for place in self._neighbours() if math.dist(place, self.home) == 1]

    def _is_slow(self, climbed: dict[Place, Point]) -> bool:
        """Near a constraint, where some pass and some fail, it goes one step at a time."""
        known = [climbed[place] for place in self._neighbours() if place in climbed]
        return self.slow or len({met(point, self.objective) for point in known}) == 2

    def _enough(self, climbed: dict[Place, Point]) -> bool:
        if self._is_slow(climbed):
            return all(place in climbed for place in self._adjacent())
        return sum(place in climbed for place in self._neighbours() if place != self.home) >= ENOUGH

    def _next(self, climbed: dict[Place, Point]) -> Place | None:
        """The neighbour with the most coordinates that no measured neighbour has."""
        near = self._adjacent() if self._is_slow(climbed) else self._neighbours()
        covered = [{place[axis] for place in climbed if place in near and place != self.home} for axis in (0, 1)]
        unseen = [place for place in near if place not in climbed]
        return max(unseen, key=lambda place: sum(place[axis] not in covered[axis] for axis in (0, 1)), default=None)

    def _new_home(self, climbed: dict[Place, Point]) -> Place:
        known = [place for place in self._neighbours() if place in climbed]
        if self._is_slow(climbed):
            passing = [place for place in known if met(climbed[place], self.objective)]
            return max(passing, key=lambda place: score(climbed[place], self.objective), default=self.home)
        limits = len(self.axes.max_batch_sizes) - 1, len(self.axes.instance_counts) - 1
        step = [self._step(climbed, known, axis) for axis in (0, 1)]
        return (max(0, min(limits[0], self.home[0] + step[0])), max(0, min(limits[1], self.home[1] + step[1])))

    def _step(self, climbed: dict[Place, Point], known: list[Place], axis: int) -> int:
        """Mean gain a unit of distance along the axis, made a step of 0 to 3."""
        weight, distance = 0.0, 0
        for place in known:
            apart = place[axis] - self.home[axis]
            if apart:
                weight += math.copysign(1, apart) * _gain(climbed[self.home], climbed[place], self.objective)
                distance += abs(apart)
        mean = weight / distance if distance else 0.0
        return int(math.copysign(sum(abs(mean) > bound for bound in STEPS), mean))

    def _to_sweep(self, default: Config) -> list[Config]:
        ranked = sorted(self.points, key=lambda cell: score(self.points[cell], self.objective), reverse=True)
        best = list(dict.fromkeys(cell.config for cell in ranked))[:SWEPT]
        return best if default in best else [*best, default]

    def _sweep(self, config: Config) -> None:
        """Loads of 1, 2, 4, … until the last four gained less than 5 %."""
        seen: list[Point] = []
        for concurrency in self.axes.concurrencies:
            if len(seen) >= TRIES:
                last = seen[-TRIES:]
                best = max(last, key=lambda point: score(point, self.objective))
                if _gain(last[0], best, self.objective) < LEAST_GAIN:
                    return
            seen.append(self._see(Cell(config=config, concurrency=concurrency)))

    def _cell(self, place: Place) -> Cell:
        batch, count = self.axes.max_batch_sizes[place[0]], self.axes.instance_counts[place[1]]
        delay = self.axes.max_queue_delays_us[0]
        load = [one for one in self.axes.concurrencies if one <= 2 * batch * count]
        return Cell(config=Config(max_batch_size=batch, max_queue_delay_us=delay, instance_count=count),
                    concurrency=load[-1] if load else self.axes.concurrencies[0])

    def _see(self, cell: Cell) -> Point:
        if cell not in self.points:
            self.points[cell] = self.measure(cell)
        return self.points[cell]


def _gain(base: Point, other: Point, objective: ObjectiveRequest) -> float:
    """Difference over the mean: of the objective where both keep the limit, else of how far each is from it."""
    if met(base, objective) and met(other, objective):
        own, its = score(base, objective)[1], score(other, objective)[1]
        return 2 * (its - own) / (its + own)
    return (base.objective_ms - other.objective_ms) / objective.latency_ms

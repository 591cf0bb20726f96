"""The optimum as an integer program, independent of how the planner counts room.

For each pattern of free slices it enumerates every set of instances that may lie there, start by start; the solver
chooses how many boards are cut which way, which replicas go where, and on which nodes whole GPUs are taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from enginewright.core.planner.fleet import GPU, Demand
from enginewright.core.planner.geometry import FULL, ONE, WHOLE, full, places, width
from enginewright.core.planner.pools import Choice, Pool, choices, pools

SCALE = 1000  # worths become integers
Sum = Mapping[int, int]  # variable → coefficient


@cache
def cuts(free: int, size: int) -> tuple[tuple[int, ...], ...]:
    """Every maximal choice of instances on a board with ``free`` slices, as counts of the shapes below WHOLE."""
    found: set[tuple[int, ...]] = set()

    def go(left: int, counts: tuple[int, ...], least: int) -> None:
        found.add(counts)
        for shape in range(ONE, FULL + 1):
            for start in places(shape, size, left):
                if start >= least:
                    more = tuple(n + (s == shape) for s, n in enumerate(counts))
                    go(left & ~(full(width(shape, size)) << start), more, start + 1)

    go(free, (0,) * WHOLE, 0)
    return tuple(c for c in sorted(found) if not any(
        other != c and all(a <= b for a, b in zip(c, other, strict=True)) for other in found))


@dataclass(kw_only=True)
class Model:
    """Integer variables from 0 to ``upper``; each of ``limits`` is a sum that is at most a number. ``worth`` is
    maximised (in 1/SCALE), ``opened`` the GPUs that were idle and are used."""

    upper: list[int] = field(default_factory=list)
    limits: list[tuple[Sum, int]] = field(default_factory=list)
    worth: dict[int, int] = field(default_factory=dict)
    opened: dict[int, int] = field(default_factory=dict)

    def variable(self, upper: int) -> int:
        self.upper.append(upper)
        return len(self.upper) - 1


def model(gpus: Sequence[GPU], demands: Sequence[Demand]) -> Model:
    """For GPUs whose slices are cut when they are claimed (layout dynamic)."""
    fleet = pools(gpus, demands, cut=True)
    ways = choices(demands, fleet)
    built = Model()
    taken = [built.variable(demands[way.demand].replicas) for way in ways]
    built.worth = {taken[way.number]: round(way.worth * SCALE) for way in ways}
    for d, demand in enumerate(demands):
        built.limits.append(({taken[way.number]: 1 for way in ways if way.demand == d}, demand.replicas))
    for p, pool in enumerate(fleet):
        mine = [way for way in ways if way.pool == p]
        whole = _whole(built, pool, mine, taken)
        _slices(built, pool, mine, taken, whole)
    return built


def _whole(built: Model, pool: Pool, mine: Sequence[Choice], taken: Sequence[int]) -> dict[int, int]:
    """Boards that are taken whole, as a sum over nodes."""
    total: dict[int, int] = {}
    on_node: dict[str, dict[int, int]] = {node: {} for node in pool.boards}
    for way in mine:
        if way.shape != WHOLE:
            continue
        places_of = {built.variable(boards // way.gpus): node for node, (_, boards) in pool.boards.items()}
        built.limits.append(({taken[way.number]: 1, **dict.fromkeys(places_of, -1)}, 0))
        for many, node in places_of.items():
            total[many] = on_node[node][many] = way.gpus
    for node, (_, boards) in pool.boards.items():
        built.limits.append((on_node[node], boards))
    return total


def _slices(built: Model, pool: Pool, mine: Sequence[Choice], taken: Sequence[int], whole: Mapping[int, int]) -> None:
    supply: list[dict[int, int]] = [{} for _ in range(WHOLE)]
    kinds = Counter(free for free in pool.free if free)
    empty = kinds.setdefault(full(pool.size), 0)
    for free, boards in kinds.items():
        used = {}
        for counts in cuts(free, pool.size):
            many = built.variable(boards)
            used[many] = 1
            for shape, n in enumerate(counts):
                if n:
                    supply[shape][many] = n
        if free == full(pool.size):
            opened = {**used, **whole}
            built.limits.append((opened, empty))
            built.opened.update(opened)
        else:
            built.limits.append((used, boards))
    for shape in range(WHOLE):
        wanted = {taken[way.number]: 1 for way in mine if way.shape == shape}
        if wanted:
            built.limits.append(({**wanted, **{many: -n for many, n in supply[shape].items()}}, 0))

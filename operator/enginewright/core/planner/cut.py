"""From how many to where: every chosen replica gets its node, its GPU and its first slice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from heapq import heapify, heappop, heappush

from enginewright.core.planner.fleet import Demand, Seat
from enginewright.core.planner.geometry import FOUR, FULL, ONE, THREE, TWO, WHOLE, WIDE, full, places, width
from enginewright.core.planner.pools import Choice, Pool
from enginewright.core.planner.selection import Selection, seat_groups

Spot = tuple[tuple[int, ...], int, bool]  # places of the GPUs in the pool, first slice, whether the slice exists
LARGEST_FIRST = (FOUR, THREE, WIDE, TWO, ONE)


def seats(demands: Sequence[Demand], fleet: Sequence[Pool], chosen: Selection, taken: Sequence[int]) -> list[Seat]:
    """``taken`` is how many replicas of each demand are placed already: numbers go on from there."""
    number = list(taken)
    found = []
    ways: list[list[Choice]] = [[] for _ in fleet]
    for way in chosen.ways:
        if chosen.taken[way.number]:
            ways[way.pool].append(way)
    for p, pool in enumerate(fleet):
        spots = _Layer(pool, chosen, p).spots()
        for way in ways[p]:
            kind = (way.shape, way.gpus)
            for _ in range(chosen.taken[way.number]):
                where, start, exists = next(spots[kind])
                gpus = [pool.gpus[place] for place in where]
                found.append(Seat(
                    demand=demands[way.demand].name, replica=number[way.demand], option=way.option, node=gpus[0].node,
                    gpus=tuple(sorted(gpu.index for gpu in gpus)), product=pool.product,
                    profile=demands[way.demand].options[way.option].profile, start=start, exists=exists))
                number[way.demand] += 1
    return found


@cache
def best_start(shape: int, size: int, free: int, tight: bool) -> tuple[tuple[int, ...], int] | None:
    """Where ``shape`` does the least harm on a board with ``free`` slices, and how much that is, to compare boards: the
    smallest free block is broken, of equal ones the upper, which is worth less to others, on the fullest board.

    Where it is ``tight``, the weak pair and the upper half go first, whatever they break: then what was counted to
    fit does fit.
    """
    found = []
    for start in places(shape, size, free):
        block = width(shape, size)
        while block < size and _free(free, start, block * 2):
            block *= 2
        weak = tight and start != {WIDE: 6, THREE: 4}.get(shape, start)
        found.append(((int(weak), block, -start, free.bit_count()), start))
    return min(found, default=None)


def _free(free: int, start: int, block: int) -> bool:
    mask = full(block) << (start // block * block)
    return mask & ~free == 0


class _Layer:
    def __init__(self, pool: Pool, chosen: Selection, number: int) -> None:
        self.pool = pool
        self.counts = chosen.counts[number]
        self.groups = chosen.groups[number]
        self.opened = chosen.opened(number)
        self.idle = list(pool.idle)
        self.many = Counter(pool.gpus[place].node for place in self.idle)

    def spots(self) -> dict[tuple[int, int], Iterator[Spot]]:
        """By shape and GPUs, as many as were chosen."""
        found: dict[tuple[int, int], list[Spot]] = self._groups()
        over = {}
        for shape, count in enumerate(self.counts):
            existing = sorted(self.pool.fixed[shape], key=self._fullest)[:count]
            found[shape, 1] = [((place,), start, True) for place, start in existing]
            over[shape] = count - len(existing)
        for shape in (WHOLE, FULL):
            for _ in range(over[shape]):
                board = self._board(shape == WHOLE)
                self.opened -= bool(self.pool.free[board])
                found[shape, 1].append(((board,), 0, shape == WHOLE))
        ready = [self._board(False) for _ in range(self.opened)]
        laid = self._lay(over, ready, tight=False) or self._lay(over, ready, tight=True)
        assert laid is not None, "a counted fit does not fit"
        for shape, more in laid.items():
            found[shape, 1] += more
        return {kind: iter(spots) for kind, spots in found.items()}

    def _fullest(self, seat: tuple[int, int]) -> tuple[bool, int, int]:
        """Free instances of GPUs that are used anyway go first."""
        return self.pool.gpus[seat[0]].idle, seat[0], seat[1]

    def _groups(self) -> dict[tuple[int, int], list[Spot]]:
        boards = self.pool.boards
        wanted = tuple(sorted(((gpus, n) for gpus, n in self.groups.items() if n), reverse=True))
        seated = seat_groups(tuple(boards.values()), wanted)
        assert seated is not None
        names = list(boards)
        found: dict[tuple[int, int], list[Spot]] = {}
        for (gpus, _), nodes in zip(wanted, seated[1], strict=True):
            for node in nodes:
                mine = [place for place in self.idle if self.pool.gpus[place].node == names[node]]
                mine.sort(key=lambda place: bool(self.pool.free[place]))
                for place in mine[:gpus]:
                    self._take(place)
                found.setdefault((WHOLE, gpus), []).append((tuple(mine[:gpus]), 0, True))
        return found

    def _board(self, whole: bool) -> int:
        """An idle board of the node that has the fewest, so that those with many stay free for replicas of several
        GPUs; for a whole GPU first one that cannot be cut."""
        fitting = [place for place in self.idle if whole or self.pool.free[place]]
        many, gpus, free = self.many, self.pool.gpus, self.pool.free
        best = min(fitting, key=lambda place: (bool(free[place]), many[gpus[place].node], place))
        self._take(best)
        return best

    def _take(self, place: int) -> None:
        self.idle.remove(place)
        self.many[self.pool.gpus[place].node] -= 1

    def _lay(self, over: dict[int, int], ready: Sequence[int], *, tight: bool) -> dict[int, list[Spot]] | None:
        """The slices, largest first, on boards that are broken and those that are opened. None where it did not
        work out."""
        size = self.pool.size
        boards: dict[int, list[int]] = {}  # by free slices
        for place, free in enumerate(self.pool.free):
            if free and free != full(size):
                boards.setdefault(free, []).append(place)
        if ready:
            boards[full(size)] = list(ready)
        found: dict[int, list[Spot]] = {}
        for shape in LARGEST_FIRST:
            spots = _cut(shape, size, over[shape], boards, tight)
            if spots is None:
                return None
            found[shape] = spots
        return found


def _cut(shape: int, size: int, count: int, boards: dict[int, list[int]], tight: bool) -> list[Spot] | None:
    """``count`` instances, each where it does the least harm; None where they do not fit. ``boards`` are places by free
    slices, and are changed. A heap has the best kind of board on top: each cut changes one of many kinds."""
    heap = [(best, free) for free in boards if (best := best_start(shape, size, free, tight))] if count else []
    heapify(heap)
    found: list[Spot] = []
    for _ in range(count):
        while heap and heap[0][1] not in boards:
            heappop(heap)
        if not heap:
            return None
        (_, start), free = heap[0]
        place = boards[free].pop(0)
        if not boards[free]:
            del boards[free]
        left = free & ~(full(width(shape, size)) << start)
        best = best_start(shape, size, left, tight)
        if best and left not in boards:
            heappush(heap, (best, left))
        boards.setdefault(left, []).append(place)
        found.append(((place,), start, False))
    return found

"""Which choices are taken how often, and whether there is room for more: a selection that stays feasible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from enginewright.core.planner.fleet import Demand
from enginewright.core.planner.geometry import WHOLE
from enginewright.core.planner.pools import Choice, Pool

Boards = tuple[tuple[int, int], ...]  # of each node: idle boards that can be taken only whole, those that can be cut


@lru_cache(maxsize=4096)
def seat_groups(
    boards: Boards, groups: tuple[tuple[int, int], ...]
) -> tuple[Boards, tuple[tuple[int, ...], ...]] | None:
    """For replicas of several GPUs each, ``groups`` as (GPUs, replicas) from large to small: the boards that are left,
    and for each group the node of each replica. None when they do not fit. Each takes the node on which the least is
    left over."""
    left = list(boards)
    taken = []
    for gpus, replicas in groups:
        nodes = []
        for _ in range(replicas):
            fitting = [n for n, (uncut, empty) in enumerate(left) if uncut + empty >= gpus]
            if not fitting:
                return None
            node = min(fitting, key=lambda n: (sum(left[n]), max(0, gpus - left[n][0]), n))
            nodes.append(node)
            uncut = min(gpus, left[node][0])
            left[node] = (left[node][0] - uncut, left[node][1] - (gpus - uncut))
        taken.append(tuple(nodes))
    return tuple(left), tuple(taken)


@lru_cache(maxsize=4096)
def boards_after(boards: Boards, groups: tuple[tuple[int, int], ...]) -> tuple[int, int] | None:
    """(empty, uncut) boards that are left when ``groups`` have theirs, or None: as :func:`seat_groups`, but nodes that
    are alike are taken together, since it is asked much more often."""
    left = Counter(boards)
    for gpus, replicas in groups:
        for _ in range(replicas):
            fitting = [(uncut + empty, max(0, gpus - uncut), uncut, empty) for uncut, empty in left
                       if uncut + empty >= gpus]
            if not fitting:
                return None
            _, cut, uncut, empty = min(fitting)
            left[uncut, empty] -= 1
            if not left[uncut, empty]:
                del left[uncut, empty]
            left[max(0, uncut - gpus), empty - cut] += 1
    return sum(empty * nodes for (_, empty), nodes in left.items()), sum(uncut * n for (uncut, _), n in left.items())


Saved = tuple[list[int], list[int], list[list[int]], list[dict[int, int]], list[tuple[int, int]], float]


class Selection:
    """Counts of each choice. Every change keeps it feasible."""

    def __init__(self, demands: Sequence[Demand], fleet: Sequence[Pool], ways: Sequence[Choice]) -> None:
        self.ways = ways
        self.rooms = [pool.room for pool in fleet]
        self.boards = [tuple(pool.boards.values()) for pool in fleet]
        self.taken = [0] * len(ways)
        self.left = [demand.replicas for demand in demands]
        self.counts = [[0] * len(room.fixed) for room in self.rooms]
        self.groups: list[dict[int, int]] = [{} for _ in fleet]
        self.free = [(room.empty, room.uncut) for room in self.rooms]
        self.worth = 0.0
        self.asked = 0

    def add(self, way: Choice, replicas: int) -> None:
        """May be negative. The caller has asked whether there is room."""
        self.taken[way.number] += replicas
        self.left[way.demand] -= replicas
        self.worth += replicas * way.worth
        if way.gpus > 1:
            group = self.groups[way.pool]
            group[way.gpus] = group.get(way.gpus, 0) + replicas
            free = self._after_groups(way.pool, group)
            assert free is not None
            self.free[way.pool] = free
        else:
            self.counts[way.pool][way.shape] += replicas

    def saved(self) -> Saved:
        return (self.taken[:], self.left[:], [counts[:] for counts in self.counts],
                [dict(group) for group in self.groups], self.free[:], self.worth)

    def restore(self, saved: Saved) -> None:
        self.taken, self.left, self.counts, self.groups, self.free, self.worth = saved

    def most(self, way: Choice, limit: int) -> int:
        """How many more replicas, up to ``limit``, have room."""
        self.asked += 1
        fits = self._fits_group if way.gpus > 1 else self._fits_slice
        if limit <= 0 or not fits(way, 1):
            return 0
        if limit == 1 or fits(way, limit):
            return limit
        low, high = 1, limit  # low fits, high does not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(way, middle) else (low, middle)
        return low

    def _fits_slice(self, way: Choice, replicas: int) -> bool:
        counts, room = self.counts[way.pool], self.rooms[way.pool]
        if way.shape > WHOLE:
            return counts[way.shape] + replicas <= room.fixed[way.shape]
        counts[way.shape] += replicas
        fits = room.fits(counts, *self.free[way.pool])
        counts[way.shape] -= replicas
        return fits

    def _fits_group(self, way: Choice, replicas: int) -> bool:
        group = dict(self.groups[way.pool])
        group[way.gpus] = group.get(way.gpus, 0) + replicas
        free = self._after_groups(way.pool, group)
        return free is not None and self.rooms[way.pool].fits(self.counts[way.pool], *free)

    def _after_groups(self, pool: int, group: dict[int, int]) -> tuple[int, int] | None:
        """(empty, uncut) boards that are left when replicas of several GPUs have theirs."""
        wanted = tuple(sorted(((gpus, n) for gpus, n in group.items() if n), reverse=True))
        return boards_after(self.boards[pool], wanted)

    def fill(self, order: Sequence[Choice]) -> None:
        """As much as there is room for, one way after another. Room only shrinks meanwhile: once a kind of slice has
        been refused in a pool, it is not asked for there again (but counted, so that budgets mean the same)."""
        refused = set()
        for way in order:
            wanted = self.left[way.demand]
            if not wanted:
                continue
            kind = (way.pool, way.shape, way.gpus)
            if kind in refused:
                self.asked += 1
                continue
            replicas = self.most(way, wanted)
            if replicas:
                self.add(way, replicas)
            if replicas < wanted:
                refused.add(kind)

    def opened(self, pool: int) -> int:
        """The fewest empty boards that hold what this pool holds, those of replicas of several GPUs not counted."""
        empty, uncut = self.free[pool]
        room, counts = self.rooms[pool], self.counts[pool]
        low, high = -1, empty  # high fits
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if room.fits(counts, middle, uncut) else (middle, high)
        return high

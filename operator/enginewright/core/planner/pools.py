"""GPUs that are alike, taken together: what each pool has free, and what a replica may take there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from enginewright.core.planner.fleet import GPU, Demand, Option
from enginewright.core.planner.geometry import SHAPES, WHOLE, can_be_cut, cells, full, shape_of, slices, width
from enginewright.core.planner.room import Room, blocks


@dataclass(kw_only=True)
class Pool:
    """GPUs of one product on nodes that the same demands may use. ``free`` are the slices of each GPU that may be cut,
    ``fixed`` the free instances by shape as (place in ``gpus``, start), ``idle`` the GPUs that may be taken whole.
    ``extra`` numbers profiles that cannot be cut (``+me``) after the shapes."""

    product: str
    size: int
    gpus: list[GPU] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    fixed: list[list[tuple[int, int]]] = field(default_factory=lambda: [[] for _ in range(SHAPES)])
    idle: list[int] = field(default_factory=list)
    extra: dict[str, int] = field(default_factory=dict)

    @cached_property
    def room(self) -> Room:
        """Asked for when all GPUs are in it."""
        total = [0, 0, 0, 0, 0]
        kinds = Counter(self.free)
        empty = kinds.pop(full(self.size), 0)
        for free, boards in kinds.items():
            total = [a + boards * b for a, b in zip(total, blocks(free, self.size), strict=True)]
        uncut = sum(not self.free[place] for place in self.idle)
        return Room(size=self.size, fixed=[len(seats) for seats in self.fixed], blocks=total, empty=empty, uncut=uncut)

    @cached_property
    def boards(self) -> dict[str, tuple[int, int]]:
        """Idle boards of each node: those that can be taken only whole, those that can be cut."""
        found: dict[str, tuple[int, int]] = {}
        for place in self.idle:
            uncut, empty = found.get(self.gpus[place].node, (0, 0))
            cut = bool(self.free[place])
            found[self.gpus[place].node] = (uncut + (not cut), empty + cut)
        return found

    def slices(self) -> int:
        """Roughly what is free, to compare with what is asked for."""
        return sum(free.bit_count() for free in self.free) + sum(map(len, self.fixed)) + len(self.idle)

    def shape(self, profile: str) -> int | None:
        known = shape_of(self.product, profile)
        return self.extra.get(profile) if known is None else known


def pools(gpus: Iterable[GPU], demands: Sequence[Demand], *, cut: bool) -> list[Pool]:
    """``cut`` also takes layouts that are only proposed: what is free there counts as slices, not as instances."""
    picky = [demand for demand in demands if demand.nodes is not None]
    found: dict[tuple[str, tuple[bool, ...]], Pool] = {}
    for gpu in gpus:
        allowed = tuple(gpu.node in (demand.nodes or ()) for demand in picky)
        pool = found.setdefault((gpu.product, allowed), Pool(product=gpu.product, size=slices(gpu.product)))
        _add(pool, gpu, gpu.layout == "dynamic" or (cut and gpu.layout == "proposal"))
    return list(found.values())


def _add(pool: Pool, gpu: GPU, cut: bool) -> None:
    place = len(pool.gpus)
    pool.gpus.append(gpu)
    cut = cut and can_be_cut(gpu.product)
    pool.free.append(free_slices(gpu) if cut else 0)
    if gpu.idle and (cut or not gpu.mig):
        pool.idle.append(place)
    if cut:
        return
    for instance in gpu.instances:
        if instance.used_by:
            continue
        shape = shape_of(gpu.product, instance.profile)
        if shape is None:
            shape = pool.extra.setdefault(instance.profile, len(pool.fixed))
            pool.fixed.extend([] for _ in range(len(pool.fixed), shape + 1))
        pool.fixed[shape].append((place, instance.start))


def free_slices(gpu: GPU) -> int:
    """The mask of free slices."""
    size = slices(gpu.product)
    if gpu.used_by:
        return 0
    taken = 0
    for instance in gpu.instances:
        if instance.used_by:
            taken |= cells(gpu.product, instance.profile, instance.start)
    return full(size) & ~taken


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """One way to place a replica: ``demand`` and ``option`` by number, in ``pool``, as ``shape`` on ``gpus`` boards."""

    number: int
    demand: int
    option: int
    pool: int
    shape: int
    gpus: int
    worth: float
    slices: int


def choices(demands: Sequence[Demand], fleet: Sequence[Pool]) -> list[Choice]:
    """All ways that exist at all, whatever is free."""
    found: list[Choice] = []
    for d, demand in enumerate(demands):
        for o, option in enumerate(demand.options):
            for p, pool in enumerate(fleet):
                shape = pool.shape(option.profile) if _suits(demand, option, pool) else None
                if shape is None or demand.worth(option) <= 0:
                    continue
                taken = option.gpus * width(shape, pool.size) if shape <= WHOLE else 1
                found.append(Choice(number=len(found), demand=d, option=o, pool=p, shape=shape,
                                    gpus=option.gpus if shape == WHOLE else 1, worth=demand.worth(option),
                                    slices=taken))
    return found


def _suits(demand: Demand, option: Option, pool: Pool) -> bool:
    if option.products and pool.product not in option.products:
        return False
    return demand.nodes is None or pool.gpus[0].node in demand.nodes

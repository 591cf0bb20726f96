"""What others do, one replica at a time in the order of arrival, on boards whose slices are cut when claimed.

first-fit and best-fit are the classic rules of bin packing (Johnson, Near-optimal bin packing algorithms, 1973): the
first board that fits, or of those that fit the one on which the fewest slices stay free; the first legal start.

FGD is Fragmentation Gradient Descent (Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent, USENIX ATC 2023). A node's fragmentation is what a task drawn from the usual workload
cannot use there, in expectation: F_n = Σ_m p_m F_n(m). If m does not fit the node, all that is free there counts; else
what is free on GPUs too full for m (its equations 1 and 2). Each task goes where F_n grows the least. The paper's tasks
take any share of a GPU; with MIG, "fits a GPU" means that a legal start is free, and each start is a choice of its own.
The usual workload is that of the instance itself, each model by its replicas: more than FGD would know in practice.

A replica takes the first of its options that fits (weighing all of them by fragmentation makes FGD waste large slices
on small models, which the paper, having no alternatives, never meant). ``… by size`` has the replicas sorted, the
largest first, which a scheduler that places them one by one cannot do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from enginewright.core.planner.fleet import GPU, Demand, Option, Seat
from enginewright.core.planner.geometry import WHOLE, full, places, shape_of, slices, width
from enginewright.core.planner.pools import free_slices

Rule = Callable[[Sequence[Demand], Sequence[GPU]], list[Seat]]
# What a replica asks for on a node of one product: shape and number of whole GPUs.
Task = tuple[int, int]
Workload = Sequence[tuple[Task, float]]


@dataclass(kw_only=True)
class Node:
    """``free`` slices of each GPU."""

    name: str
    product: str
    size: int
    gpus: list[int]
    free: list[int]


@dataclass(frozen=True, kw_only=True)
class Spot:
    node: Node
    gpus: tuple[int, ...]  # places in the node
    shape: int
    start: int
    option: int

    def after(self) -> list[int]:
        free = self.node.free[:]
        mask = full(width(self.shape, self.node.size)) << self.start
        for gpu in self.gpus:
            free[gpu] &= ~mask
        return free


def nodes(gpus: Sequence[GPU]) -> list[Node]:
    found: dict[str, Node] = {}
    for gpu in gpus:
        node = found.setdefault(gpu.node, Node(name=gpu.node, product=gpu.product, size=slices(gpu.product), gpus=[],
                                               free=[]))
        node.gpus.append(gpu.index)
        node.free.append(free_slices(gpu))
    return list(found.values())


def spots(demand: Demand, number: int, option: Option, fleet: Sequence[Node]) -> list[Spot]:
    """Every place for one replica. Whole GPUs are taken from the first of a node."""
    found = []
    for node in fleet:
        if (option.products and node.product not in option.products) or (
                demand.nodes is not None and node.name not in demand.nodes):
            continue
        shape = shape_of(node.product, option.profile)
        if shape is None:
            continue
        if shape == WHOLE:
            idle = [gpu for gpu, free in enumerate(node.free) if free == full(node.size)]
            if len(idle) >= option.gpus:
                found.append(Spot(node=node, gpus=tuple(idle[:option.gpus]), shape=shape, start=0, option=number))
            continue
        found += [Spot(node=node, gpus=(gpu,), shape=shape, start=start, option=number)
                  for gpu, free in enumerate(node.free) for start in places(shape, node.size, free)]
    return found


def one_by_one(demands: Sequence[Demand], gpus: Sequence[GPU], choose: Callable[[Demand, list[Node]], Spot | None],
               fleet: list[Node] | None = None) -> list[Seat]:
    fleet = nodes(gpus) if fleet is None else fleet
    seats = []
    for demand in demands:
        for replica in range(demand.replicas):
            spot = choose(demand, fleet)
            if spot is None:
                break
            spot.node.free = spot.after()
            seats.append(Seat(demand=demand.name, replica=replica, option=spot.option, node=spot.node.name,
                              gpus=tuple(spot.node.gpus[gpu] for gpu in spot.gpus), product=spot.node.product,
                              profile=demand.options[spot.option].profile, start=spot.start, exists=False))
    return seats


def first_fit(demands: Sequence[Demand], gpus: Sequence[GPU]) -> list[Seat]:
    def choose(demand: Demand, fleet: list[Node]) -> Spot | None:
        return next((spot for number, option in enumerate(demand.options)
                     for spot in spots(demand, number, option, fleet)[:1]), None)

    return one_by_one(demands, gpus, choose)


def best_fit(demands: Sequence[Demand], gpus: Sequence[GPU]) -> list[Seat]:
    """Of boards with as many free slices the first; whole GPUs from the node that has the fewest idle."""
    def left(spot: Spot) -> int:
        if spot.shape == WHOLE:
            return sum(free == full(spot.node.size) for free in spot.node.free)
        return spot.node.free[spot.gpus[0]].bit_count()

    def choose(demand: Demand, fleet: list[Node]) -> Spot | None:
        for number, option in enumerate(demand.options):
            if found := spots(demand, number, option, fleet):
                return min(found, key=left)
        return None

    return one_by_one(demands, gpus, choose)


def fragmentation(free: Sequence[int], size: int, workload: Workload) -> float:
    """F_n in slices: what a task of ``workload`` cannot use of a node with ``free``, in expectation."""
    return sum(share * _unusable(tuple(free), size, task) for task, share in workload)


@cache
def _unusable(free: tuple[int, ...], size: int, task: Task) -> int:
    shape, gpus = task
    total = sum(one.bit_count() for one in free)
    if shape == WHOLE:
        idle = sum(one == full(size) for one in free)
        return total - idle * size if idle >= gpus else total
    usable = sum(one.bit_count() for one in free if places(shape, size, one))
    return total - usable


def fgd(demands: Sequence[Demand], gpus: Sequence[GPU], known: Mapping[str, Workload] | None = None) -> list[Seat]:
    """``known`` is the usual workload by product, if it is not that of ``demands``."""
    usual = known or {product: workload(demands, product) for product in {gpu.product for gpu in gpus}}

    def growth(spot: Spot) -> float:
        node, tasks = spot.node, usual[spot.node.product]
        return fragmentation(spot.after(), node.size, tasks) - fragmentation(node.free, node.size, tasks)

    def choose(demand: Demand, fleet: list[Node]) -> Spot | None:
        for number, option in enumerate(demand.options):
            if found := spots(demand, number, option, fleet):
                return min(found, key=lambda spot: round(growth(spot), 9))
        return None

    return one_by_one(demands, gpus, choose)


def workload(demands: Sequence[Demand], product: str) -> Workload:
    """What is usually asked for on ``product``: tasks with their shares of all replicas. A model that cannot run there
    asks for nothing there."""
    counts: dict[Task, float] = {}
    for demand in demands:
        for option in demand.options:
            shape = shape_of(product, option.profile)
            if shape is not None and (not option.products or product in option.products):
                task = (shape, option.gpus)
                counts[task] = counts.get(task, 0) + demand.replicas
                break
    total = sum(counts.values())
    return [(task, count / total) for task, count in sorted(counts.items())] if total else []


def by_size(rule: Rule) -> Rule:
    """The largest replicas first, as bin packing has it (first-fit decreasing)."""
    def sized(demands: Sequence[Demand], gpus: Sequence[GPU]) -> list[Seat]:
        products = {gpu.product for gpu in gpus}

        def size(demand: Demand) -> int:
            option = demand.options[0]
            found = [option.gpus * width(shape, slices(product)) for product in sorted(products)
                     if (shape := shape_of(product, option.profile)) is not None
                     and (not option.products or product in option.products)]
            return max(found, default=0)

        return rule(sorted(demands, key=lambda demand: -size(demand)), gpus)

    return sized


BASELINES: dict[str, Rule] = {
    "first-fit": first_fit,
    "best-fit": best_fit,
    "FGD": fgd,
    "first-fit by size": by_size(first_fit),
    "best-fit by size": by_size(best_fit),
    "FGD by size": by_size(fgd),
}

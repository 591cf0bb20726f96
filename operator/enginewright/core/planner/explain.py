"""Why replicas have no place: not enough hardware, or enough of it in the wrong shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from enginewright.core.planner.cut import best_start
from enginewright.core.planner.fleet import GPU, Demand, Instance, Option, Seat, Unplaced, Why
from enginewright.core.planner.geometry import cells, full, shape_of, slices, starts, width
from enginewright.core.planner.pools import choices, free_slices, pools
from enginewright.core.planner.select import select

NAMED = 3  # GPUs or replicas that a message names before it counts; demands that get advice of their own
TRIED = 8  # boards, and moves, that are looked at for each of these


def explain(
    demands: Sequence[Demand], now: Sequence[Seat], proposed: Sequence[Seat], after: Sequence[GPU]
) -> list[Unplaced]:
    """``now`` are seats that can be taken, ``proposed`` those of the proposal; ``after`` is the fleet with both."""
    found = []
    rest = []
    placed = Counter(seat.demand for seat in now)
    coming: dict[str, list[Seat]] = {}
    for seat in proposed:
        coming.setdefault(seat.demand, []).append(seat)
    for demand in demands:
        seats = coming.get(demand.name, [])
        if seats:
            found.append(Unplaced(demand=demand.name, replicas=len(seats), why="layout", message=_layouts(seats)))
        missing = demand.replicas - len(seats) - placed[demand.name]
        if missing:
            rest.append(replace(demand, replicas=missing))
    return found + _missing(rest, after) if rest else found


def _missing(rest: Sequence[Demand], gpus: Sequence[GPU]) -> list[Unplaced]:
    """``rest`` has the replicas that not even the proposal places on ``gpus``."""
    known = {rest[way.demand].name for way in choices(rest, pools(gpus, rest, cut=True))}
    kept = any(gpu.layout == "kept" for gpu in gpus)
    uncut = _placed(rest, [replace(gpu, layout="proposal") for gpu in gpus]) if kept else {}
    repacked = packed(rest, gpus)
    moves, space = _Moves(gpus), _space(gpus)
    found = []
    for demand in rest:
        def note(why: Why, replicas: int, message: str, name: str = demand.name) -> None:
            found.append(Unplaced(demand=name, replicas=replicas, why=why, message=message))

        if demand.name not in known:
            note("hardware", demand.replicas, _no_hardware(demand, gpus))
            continue
        cut = uncut.get(demand.name, 0)
        if cut:
            note("kept", cut, "would fit if fixed layouts were changed")
        moved = max(0, repacked[demand.name] - cut)
        if moved:
            note("fragmentation", moved, moves.advice(demand))
        if demand.replicas > cut + moved:
            note("capacity", demand.replicas - cut - moved, _too_little(demand, space))
    return found


def _placed(demands: Sequence[Demand], gpus: Sequence[GPU]) -> dict[str, int]:
    """How many of each would be placed with layouts free to change."""
    fleet = pools(gpus, demands, cut=True)
    chosen = select(demands, fleet, choices(demands, fleet), budget=0)
    return {demand.name: demand.replicas - left for demand, left in zip(demands, chosen.left, strict=True)}


def packed(demands: Sequence[Demand], gpus: Sequence[GPU]) -> dict[str, int]:
    """How many of each would be placed if everything that runs on slices were repacked on the same kind of slice."""
    running: dict[tuple[str, str], int] = {}
    emptied = []
    for gpu in gpus:
        if gpu.layout == "kept" or gpu.used_by or any(shape_of(gpu.product, i.profile) is None for i in gpu.instances):
            emptied.append(gpu)
            continue
        for instance in gpu.instances:
            if instance.used_by:
                kind = (gpu.product, instance.profile)
                running[kind] = running.get(kind, 0) + 1
        emptied.append(replace(gpu, instances=()))
    worth = 1e6 * max(demand.weight for demand in demands)
    there = [Demand(name="", replicas=count, weight=worth * slices(product),
                    options=(Option(profile=profile, products=(product,)),))
             for (product, profile), count in sorted(running.items())]
    wanted = [*there, *demands]
    fleet = pools(emptied, wanted, cut=True)
    chosen = select(wanted, fleet, choices(wanted, fleet), budget=0)
    if any(chosen.left[:len(there)]):
        return {demand.name: 0 for demand in demands}
    return {demand.name: demand.replicas - left
            for demand, left in zip(demands, chosen.left[len(there):], strict=True)}


def _layouts(seats: Sequence[Seat]) -> str:
    places = sorted({f"{seat.node}/{gpu}" for seat in seats for gpu in seat.gpus})
    return f"would fit if {_list([f'GPU {place}' for place in places])} were cut as proposed"


class _Moves:
    """Which single moves would make room. Only for the first few demands: a look at all boards for each takes time."""

    def __init__(self, gpus: Sequence[GPU]) -> None:
        able = [(free_slices(gpu), gpu) for gpu in gpus if gpu.layout != "kept" and not gpu.used_by]
        able.sort(key=lambda one: -one[0].bit_count())
        self.gpus = [gpu for _, gpu in able]  # those with the most room first
        self.kinds: dict[str, Counter[int]] = {}  # boards of each product by their free slices
        for free, gpu in able:
            self.kinds.setdefault(gpu.product, Counter())[free] += 1
        self.looked = 0

    def advice(self, demand: Demand) -> str:
        """The fewest replicas of one GPU that would have to go elsewhere, where that is enough."""
        self.looked += 1
        for option in demand.options if self.looked <= NAMED else ():
            for blocking, gpu, start in self._blocked(demand, option):
                if self._fit_elsewhere(blocking, gpu):
                    names = _list([instance.used_by for instance in blocking])
                    them = "it" if len(blocking) == 1 else "them"
                    return (f"would fit on GPU {gpu.name} as {option} at slice {start} if {names} moved to another "
                            f"GPU; there is room for {them}")
        return "there is enough, but in pieces: would fit if the replicas that run were repacked"

    def _blocked(self, demand: Demand, option: Option) -> list[tuple[tuple[Instance, ...], GPU, int]]:
        """What lies where ``option`` could lie, on the boards with the most room, the fewest first."""
        found = []
        wanted = (gpu for gpu in self.gpus if option.gpus == 1 and shape_of(gpu.product, option.profile) is not None
                  and (demand.nodes is None or gpu.node in demand.nodes)
                  and (not option.products or gpu.product in option.products))
        for gpu in islice(wanted, TRIED):
            size = slices(gpu.product)
            shape = shape_of(gpu.product, option.profile)
            for start in starts(shape, size) if shape is not None else ():
                mask = full(width(shape or 0, size)) << start
                found.append((tuple(i for i in gpu.instances if i.used_by
                                    and cells(gpu.product, i.profile, i.start) & mask), gpu, start))
        found.sort(key=lambda one: (len(one[0]), one[1].node, one[1].index, one[2]))
        return found[:TRIED]

    def _fit_elsewhere(self, moving: Sequence[Instance], gpu: GPU) -> bool:
        """On boards of the same product, the largest first."""
        size = slices(gpu.product)
        kinds = self.kinds[gpu.product] - Counter((free_slices(gpu),))
        free = [left for left, boards in kinds.items() for _ in range(min(boards, len(moving)))]  # more are not needed
        for instance in sorted(moving, key=lambda i: -cells(gpu.product, i.profile, 0)):
            shape = shape_of(gpu.product, instance.profile)
            found = [(best, board) for board, left in enumerate(free)
                     if shape is not None and (best := best_start(shape, size, left, False))]
            if not found:
                return False
            (_, start), board = min(found)
            free[board] &= ~cells(gpu.product, instance.profile, start)
        return True


def _no_hardware(demand: Demand, gpus: Sequence[GPU]) -> str:
    there = sorted({gpu.product for gpu in gpus if demand.nodes is None or gpu.node in demand.nodes})
    wanted = _list([f"{option}{' of ' + _list(list(option.products)) if option.products else ''}"
                    for option in demand.options])
    if not there:
        return f"needs {wanted}, and no node that it may run on has a known GPU"
    return f"needs {wanted}, and the nodes that it may run on have {_list(there)}"


def _too_little(demand: Demand, space: Mapping[tuple[str, str], tuple[int, int]]) -> str:
    """``space`` has the (free, all) slices by node and product."""
    option = demand.options[0]
    there = [slices_there for (node, product), slices_there in space.items()
             if (demand.nodes is None or node in demand.nodes) and (not option.products or product in option.products)
             and shape_of(product, option.profile) is not None]
    free, total = sum(one[0] for one in there), sum(one[1] for one in there)
    return f"needs {option} each; {free} of {total} memory slices are free after this plan, too few or in use"


def _space(gpus: Sequence[GPU]) -> dict[tuple[str, str], tuple[int, int]]:
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for gpu in gpus:
        free, total = found.get((gpu.node, gpu.product), (0, 0))
        found[gpu.node, gpu.product] = (free + free_slices(gpu).bit_count(), total + slices(gpu.product))
    return found


def _list(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    shown = [*names[:NAMED], *([f"{more} more"] if more > 0 else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else "none"

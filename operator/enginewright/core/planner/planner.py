"""The plan: what can be placed now, which layout would place more, and why the rest does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from enginewright.core.planner.cut import seats
from enginewright.core.planner.explain import explain
from enginewright.core.planner.fleet import GPU, Demand, Instance, LayoutChange, Plan, Seat
from enginewright.core.planner.geometry import cells
from enginewright.core.planner.pools import choices, pools
from enginewright.core.planner.select import select


def plan(demands: Sequence[Demand], gpus: Sequence[GPU]) -> Plan:
    """Running replicas stay where they are. First what fits the layouts as they are (and those that the driver cuts by
    itself), then, for the rest, a proposal. The same input gives the same plan; no order of ``gpus`` is better."""
    ordered = sorted(gpus, key=lambda gpu: (gpu.node, gpu.index))
    now = place(demands, ordered, cut=False)
    rest = left_over(demands, now)
    proposed: list[Seat] = []
    after = occupied(ordered, now)
    if any(demand.replicas for demand in rest) and any(gpu.layout == "proposal" for gpu in ordered):
        proposed = _propose(rest, after)
    proposal = occupied(after, proposed)
    return Plan(seats=tuple(now), changes=tuple(_changes(after, proposal, proposed)),
                unplaced=tuple(explain(demands, now, proposed, proposal)))


def place(demands: Sequence[Demand], gpus: Sequence[GPU], *, cut: bool) -> list[Seat]:
    """Seats for as much worth as can be had; with ``cut`` also on GPUs whose layout is only to be proposed."""
    fleet = pools(gpus, demands, cut=cut)
    chosen = select(demands, fleet, choices(demands, fleet))
    return seats(demands, fleet, chosen, [0] * len(demands))


def _propose(rest: Sequence[Demand], gpus: Sequence[GPU]) -> list[Seat]:
    """Where that is enough, only what nothing is cut from yet; else free instances are repartitioned, too."""
    held = [replace(gpu, instances=tuple(replace(i, used_by=i.used_by or "free") for i in gpu.instances))
            for gpu in gpus]
    beside = place(rest, held, cut=True)
    return beside if len(beside) == sum(demand.replicas for demand in rest) else place(rest, gpus, cut=True)


def left_over(demands: Sequence[Demand], taken: Sequence[Seat]) -> list[Demand]:
    placed: dict[str, int] = {}
    for seat in taken:
        placed[seat.demand] = placed.get(seat.demand, 0) + 1
    return [replace(demand, replicas=demand.replicas - placed.get(demand.name, 0)) for demand in demands]


def occupied(gpus: Sequence[GPU], taken: Sequence[Seat]) -> list[GPU]:
    """``gpus`` as they are when the replicas of ``taken`` run. What is cut takes the place of free instances."""
    found = {(gpu.node, gpu.index): gpu for gpu in gpus}
    coming: dict[tuple[str, int], list[Seat]] = {}
    for seat in taken:
        for index in seat.gpus:
            coming.setdefault((seat.node, index), []).append(seat)
    for key, seats_there in coming.items():
        found[key] = _with(found[key], seats_there)
    return list(found.values())


def _with(gpu: GPU, coming: Sequence[Seat]) -> GPU:
    if not coming[0].profile:
        return replace(gpu, used_by=_user(coming[0]), mig=False, instances=())
    new = [Instance(profile=seat.profile, start=seat.start, used_by=_user(seat)) for seat in coming]
    mask = sum(cells(gpu.product, instance.profile, instance.start) for instance in new)
    kept = [i for i in gpu.instances if not cells(gpu.product, i.profile, i.start) & mask]
    return replace(gpu, mig=True, instances=tuple(sorted([*kept, *new], key=lambda i: i.start)))


def _user(seat: Seat) -> str:
    return f"{seat.demand}-{seat.replica}"


def _changes(gpus: Sequence[GPU], then: Sequence[GPU], proposed: Sequence[Seat]) -> list[LayoutChange]:
    found = []
    for gpu, after in zip(gpus, then, strict=True):
        mine = tuple(seat for seat in proposed if seat.node == gpu.node and gpu.index in seat.gpus)
        if mine and (_layout(gpu), gpu.mig) != (_layout(after), after.mig):
            found.append(LayoutChange(node=gpu.node, gpu=gpu.index, product=gpu.product, before=_layout(gpu),
                                      after=_layout(after), mig=after.mig, seats=mine))
    return found


def _layout(gpu: GPU) -> tuple[tuple[str, int], ...]:
    return tuple((instance.profile, instance.start) for instance in gpu.instances)

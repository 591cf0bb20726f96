"""Arrivals and departures over time: what each rule leaves behind, and what that costs later.

Models arrive one after the other, each with one to four replicas, and leave after a random time; what runs is never
moved. A replica that finds no place is turned away. All rules see the same arrivals and lifetimes. The share is that of
worth × time that ran, of all that was asked for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from enginewright.core.planner.fleet import GPU, Demand, Seat
from enginewright.core.planner.planner import occupied, plan
from planner_study.baselines import BASELINES, workload
from planner_study.instances import PRODUCTS, arrival, slices_of
from planner_study.optimum import Optimum

STAYS = 100.0  # more than all replicas that can arrive at once are worth

Place = Callable[[Sequence[Demand], Sequence[GPU]], Sequence[Seat]]


@dataclass(frozen=True, kw_only=True)
class Arrival:
    demand: Demand
    until: int


def arrivals(seed: int, gpus: Sequence[GPU], steps: int, load: float) -> list[Arrival]:
    """One at each step. In the long run ``load`` times the slices that there are would be in use at once."""
    draw = random.Random(seed)  # noqa: S311
    products = sorted({gpu.product for gpu in gpus})
    drawn = [arrival(draw, number, products) for number in range(steps)]
    mean = sum(demand.replicas * size for demand, size in drawn) / steps
    life = load * slices_of(gpus) / mean
    return [Arrival(demand=demand, until=step + max(1, round(draw.expovariate(1 / life))))
            for step, (demand, _) in enumerate(drawn)]


def fleet_of(seed: int, gpus: int) -> list[GPU]:
    draw = random.Random(seed)  # noqa: S311
    products = draw.sample(PRODUCTS, 2)
    return [GPU(node=f"node-{index // 4:03}", index=index % 4, product=products[index // 4 % 2], layout="dynamic")
            for index in range(gpus)]


def by_planner(demands: Sequence[Demand], gpus: Sequence[GPU]) -> Sequence[Seat]:
    return plan(demands, gpus).seats


def run(place: Place, fleet: Sequence[GPU], coming: Sequence[Arrival]) -> float:
    """The share of worth × time that ran."""
    gpus = list(fleet)
    ran = asked = 0.0
    leaving: dict[int, set[str]] = {}
    for step, one in enumerate(coming):
        gpus = _without(gpus, leaving.pop(step, set()))
        seats = place([one.demand], gpus)
        gpus = occupied(gpus, seats)
        leaving.setdefault(one.until, set()).update(f"{seat.demand}-{seat.replica}" for seat in seats)
        time = min(one.until, len(coming)) - step
        ran += sum(one.demand.worth(one.demand.options[seat.option]) for seat in seats) * time
        asked += one.demand.weight * one.demand.replicas * time
    return ran / asked


def _without(gpus: Sequence[GPU], gone: set[str]) -> list[GPU]:
    if not gone:
        return list(gpus)
    return [replace(gpu, used_by="" if gpu.used_by in gone else gpu.used_by,
                    instances=tuple(i for i in gpu.instances if i.used_by not in gone)) for gpu in gpus]


def churn(seed: int, *, gpus: int, steps: int, load: float = 0.8) -> dict[str, float]:
    """Share by rule. FGD knows the whole trace's workload."""
    fleet = fleet_of(seed, gpus)
    coming = arrivals(seed, fleet, steps, load)
    told = {"planner": run(by_planner, fleet, coming)}
    usual = [one.demand for one in coming]
    for name, rule in BASELINES.items():
        if "by size" in name:  # nothing to sort: one model arrives at a time
            continue
        told[name] = run(_knowing(name, rule, usual), fleet, coming)
    return told


def _knowing(name: str, rule: Place, usual: Sequence[Demand]) -> Place:
    if not name.startswith("FGD"):
        return rule
    from planner_study import baselines

    known = {product: workload(usual, product) for product in PRODUCTS}
    return lambda demands, gpus: baselines.fgd(demands, gpus, known)


def all_may_move(fleet: Sequence[GPU], coming: Sequence[Arrival], optimum: Callable[..., Optimum]) -> float:
    """The share if at each arrival everything that runs might be repacked, on any of its options: fragmentation
    costs nothing then. No scheduler can do this in a cluster; it bounds what any rule can reach that admits what
    fits."""
    running: list[tuple[Demand, int]] = []
    ran = asked = 0.0
    for step, one in enumerate(coming):
        running = [(demand, until) for demand, until in running if until > step]
        stay = [replace(demand, weight=STAYS) for demand, _ in running]
        there = STAYS * sum(demand.replicas for demand in stay)
        placed = round(optimum(fleet, [*stay, replace(one.demand, weight=1.0)]).worth - there)
        if placed > 0:
            running.append((replace(one.demand, replicas=placed), one.until))
        time = min(one.until, len(coming)) - step
        ran += one.demand.weight * placed * time
        asked += one.demand.weight * one.demand.replicas * time
    return ran / asked


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What waited at one moment: what the planner placed of it, and what could have been placed then."""

    placed: float
    optimum: float


def decisions(fleet: Sequence[GPU], coming: Sequence[Arrival], optimum: Callable[..., Optimum]) -> list[Decision]:
    """Of each moment at which not everything that waited was placed. What finds no place waits for one until its time
    is over."""
    gpus = list(fleet)
    waiting: list[Arrival] = []
    leaving: dict[int, set[str]] = {}
    found = []
    for step, one in enumerate(coming):
        gpus = _without(gpus, leaving.pop(step, set()))
        waiting = [other for other in (*waiting, one) if other.until > step]
        demands = [other.demand for other in waiting]
        seats = by_planner(demands, gpus)
        if len(seats) < sum(demand.replicas for demand in demands):
            worth = {demand.name: demand.weight for demand in demands}
            found.append(Decision(placed=sum(worth[seat.demand] for seat in seats),
                                  optimum=optimum(gpus, demands).worth))
        # Replicas are numbered again each time.
        seats = [replace(seat, demand=f"{seat.demand}@{step}") for seat in seats]
        gpus = occupied(gpus, seats)
        still = []
        for other in waiting:
            mine = {f"{seat.demand}-{seat.replica}" for seat in seats if seat.demand == f"{other.demand.name}@{step}"}
            leaving.setdefault(other.until, set()).update(mine)
            if len(mine) < other.demand.replicas:
                still.append(replace(other, demand=replace(other.demand, replicas=other.demand.replicas - len(mine))))
        waiting = still
    return found

"""Which replicas of which model are placed, by number: the most worth first, then the fewest boards opened.

The choice is a knapsack over several pools. It is made greedily by worth for each slice, in a few orders, and mended
by ruin and recreate: what stands in the way of a replica is taken out, the replica put in, and the gap filled again.
Trials are counted, not timed: the same input gives the same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from enginewright.core.planner.fleet import Demand
from enginewright.core.planner.pools import Choice, Pool
from enginewright.core.planner.selection import Selection

EPSILON = 1e-9
PRICE_ROUNDS = 6
# With what is left of the budget: prices that differ more between pools, where replicas may go to several.
SHAKES, SHAKE = 12, (1.0, 4.0, 0.25, 2.0, 0.5)
POWERS = (0.8, 1.25)  # of a replica's slices in the order's worth for each slice
# Of questions whether there is room, 2 µs each. A large fleet needs fewer: one replica more or less weighs less there.
MOST_BUDGET, LEAST_BUDGET, BUDGET_BY_GPUS_CUBED = 8000, 300, 150_000_000


def select(demands: Sequence[Demand], fleet: Sequence[Pool], ways: Sequence[Choice], *,
           budget: int | None = None) -> Selection:
    """``ways`` are all choices that there are, numbered from 0. ``budget`` is how often it may ask whether there is
    room when it mends what was made greedily."""
    pressure = _pressure(demands, fleet, ways)
    first = _order(ways, pressure)
    latest = _filled(demands, fleet, ways, first)
    if budget == 0 or not any(latest.left[way.demand] for way in ways):
        return latest
    made = {_key(first): latest}  # other powers and prices often lead to an order that was there before

    def filled(order: Sequence[Choice]) -> Selection:
        key = _key(order)
        if key not in made:
            made[key] = _filled(demands, fleet, ways, order)
        return made[key]

    for power in POWERS:
        filled(_order(ways, pressure, power=power))
    prices = [1.0] * len(fleet)
    for _ in range(PRICE_ROUNDS):
        prices = _prices(latest, prices)
        latest = filled(_order(ways, pressure, prices))
    starts = sorted(made.values(), key=lambda selection: -selection.worth)
    if budget is None:
        gpus = max(1, sum(len(pool.gpus) for pool in fleet))
        budget = max(LEAST_BUDGET, min(MOST_BUDGET, BUDGET_BY_GPUS_CUBED // gpus**3))
    indexed, best = _Ways(first), starts[0]
    shaken = (_order(ways, pressure, _shaken(prices, turn)) for turn in range(SHAKES if len(fleet) > 1 else 0))
    seen: set[tuple[int, ...]] = set()
    for tried in chain(starts, (_filled(demands, fleet, ways, order) for order in chain(shaken, _insisting(first)))):
        if budget <= 0:
            break
        budget -= tried.asked if tried not in starts else 0
        # Most orders fill as another did: mending that again would end where it ended.
        if (start := tuple(tried.taken)) not in seen:
            seen.add(start)
            budget = _mend(tried, indexed, budget)
            best = max(best, tried, key=lambda selection: selection.worth)
    return best


def _shaken(prices: Sequence[float], turn: int) -> list[float]:
    return [price * SHAKE[(turn * (2 * pool + 1) + pool) % len(SHAKE)] for pool, price in enumerate(prices)]


def _insisting(order: Sequence[Choice]) -> Iterator[list[Choice]]:
    """Each way first, then each one last, the largest replicas before: what stands in their way is more than exchanges
    of one replica move."""
    largest = sorted(order, key=lambda way: (-way.slices, way.number))
    for way in largest:
        others = [other for other in order if other is not way]
        yield [way, *others]
        yield [*others, way]


def _key(order: Sequence[Choice]) -> tuple[int, ...]:
    return tuple(way.number for way in order)


def _filled(
    demands: Sequence[Demand], fleet: Sequence[Pool], ways: Sequence[Choice], order: Sequence[Choice]
) -> Selection:
    selection = Selection(demands, fleet, ways)
    selection.fill(order)
    return selection


def _order(
    ways: Sequence[Choice], pressure: Sequence[float], prices: Sequence[float] = (), power: float = 1.0
) -> list[Choice]:
    """The most worth for each slice first, a slice counted at its pool's price; of equals those in the pool that the
    fewest want."""
    return sorted(ways, key=lambda way: (-way.worth / (way.slices**power * (prices[way.pool] if prices else 1.0)),
                                         pressure[way.pool], way.slices, way.shape, way.number))


def _prices(selection: Selection, prices: Sequence[float]) -> list[float]:
    """What a slice of each pool is worth at the margin: the least that one earns there now, half of that where no
    demand is turned away. Halfway (geometrically) from what it was, so that prices settle."""
    wanted = {way.pool for way in selection.ways if selection.left[way.demand]}
    found = []
    for pool, price in enumerate(prices):
        earned = [way.worth / way.slices for way in selection.ways if way.pool == pool and selection.taken[way.number]]
        now = min(earned, default=price) * (1.0 if pool in wanted else 0.25)
        found.append((price * now) ** 0.5)
    return found


def _pressure(demands: Sequence[Demand], fleet: Sequence[Pool], ways: Sequence[Choice]) -> list[float]:
    """Slices that are asked for of each pool for each that is there, a demand shared among the pools that it may
    use."""
    smallest: dict[int, dict[int, int]] = {}
    for way in ways:
        mine = smallest.setdefault(way.demand, {})
        mine[way.pool] = min(mine.get(way.pool, way.slices), way.slices)
    wanted = [0.0] * len(fleet)
    for demand, mine in smallest.items():
        for pool, slices in mine.items():
            wanted[pool] += demands[demand].replicas * slices / len(mine)
    return [want / max(1, pool.slices()) for want, pool in zip(wanted, fleet, strict=True)]


class _Ways:
    """All ways in one order, and those of each pool and each demand."""

    def __init__(self, order: Sequence[Choice]) -> None:
        self.order = order
        self.of_pool: dict[int, list[Choice]] = {}
        self.of_demand: dict[int, list[Choice]] = {}
        for way in order:
            self.of_pool.setdefault(way.pool, []).append(way)
            self.of_demand.setdefault(way.demand, []).append(way)


def _mend(chosen: Selection, ways: _Ways, budget: int) -> int:
    """Exchanges until none helps. What is left of ``budget``, in questions whether there is room."""
    exchange = _Exchange(chosen, ways)
    asked = chosen.asked
    better = True
    while better:
        better = False
        for way in ways.order:
            for other in reversed(ways.of_pool[way.pool]):
                if not chosen.left[way.demand]:
                    break
                if other.demand == way.demand or not chosen.taken[other.number]:
                    continue
                for all_of_it in (False, True):
                    if chosen.asked - asked > budget:
                        return 0
                    if exchange.helps(way, other, all_of_it):
                        better = True
                        break
    return budget - (chosen.asked - asked)


class _Exchange:
    def __init__(self, chosen: Selection, ways: _Ways) -> None:
        self.chosen = chosen
        self.ways = ways

    def helps(self, way: Choice, other: Choice, all_of_it: bool) -> bool:
        """Puts one replica in by ``way`` where those of ``other`` were (all of them, or as few as needed; then those
        worth least), moves those elsewhere, fills up again, and says whether that was worth more; else nothing has
        changed."""
        chosen = self.chosen
        before = chosen.saved()
        if all_of_it:
            chosen.add(other, -chosen.taken[other.number])
        moved = self._put(way, (other, *reversed(self.ways.of_pool[way.pool])))
        if moved is not None:
            moved |= {other.demand}
            pools = {way.pool}
            for demand in sorted(moved):
                touched, displaced = self._elsewhere(demand, way.pool)
                pools |= touched
                moved |= displaced
            # In other pools there was no room before, and nothing has changed but for what was taken out.
            chosen.fill([w for w in self.ways.order if (w.pool in pools or w.demand in moved) and w is not other])
            chosen.fill([other])
            if chosen.worth > before[-1] + EPSILON:
                return True
        chosen.restore(before)
        return False

    def _put(self, way: Choice, victims: Iterable[Choice]) -> set[int] | None:
        """One replica by ``way``, and as many of ``victims`` out as that needs: their demands, or None where even that
        does not make room."""
        chosen = self.chosen
        moved: set[int] = set()
        for victim in victims:
            if victim.demand == way.demand or not chosen.taken[victim.number]:
                continue
            if chosen.most(way, 1):
                break
            moved.add(victim.demand)
            while chosen.taken[victim.number]:
                chosen.add(victim, -1)
                if chosen.most(way, 1):
                    break
        if not chosen.most(way, 1):
            return None
        chosen.add(way, 1)
        return moved

    def _elsewhere(self, demand: int, pool: int) -> tuple[set[int], set[int]]:
        """Moves replicas that were taken out of ``pool`` to others, in place of what is worth no more there for each
        slice: the pools, and the demands that gave way."""
        chosen = self.chosen
        touched: set[int] = set()
        displaced: set[int] = set()
        for way in self.ways.of_demand[demand]:
            while way.pool != pool and chosen.left[demand]:
                before = chosen.saved()
                victims = [w for w in reversed(self.ways.of_pool[way.pool])
                           if w.worth / w.slices <= way.worth / way.slices]
                gone = self._put(way, victims)
                if gone is None or chosen.worth <= before[-1] + EPSILON:
                    chosen.restore(before)
                    break
                touched.add(way.pool)
                displaced |= gone
        return touched, displaced

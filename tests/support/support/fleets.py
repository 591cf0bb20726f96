"""Small fleets for tests, and what must hold for any plan."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from enginewright.core.planner.fleet import GPU, Demand, Instance, Layout, Option, Plan, Seat
from enginewright.core.planner.geometry import FULL, ONE, cells, full, name_of, places, slices

H100, A100, A30 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-40GB", "NVIDIA-A30"


def gpu(node: str = "n", index: int = 0, product: str = H100, *instances: Instance, **rest: object) -> GPU:
    return GPU(node=node, index=index, product=product, instances=instances, mig=bool(instances), **rest)  # type: ignore[arg-type]


def used(profile: str, start: int, by: str = "other-0") -> Instance:
    return Instance(profile=profile, start=start, used_by=by)


def free(profile: str, start: int) -> Instance:
    return Instance(profile=profile, start=start)


def wants(name: str, replicas: int, *profiles: str, **rest: object) -> Demand:
    """An empty profile is a whole GPU."""
    return Demand(name=name, replicas=replicas, options=tuple(Option(profile=p) for p in profiles), **rest)  # type: ignore[arg-type]


LAYOUTS: tuple[Layout, ...] = ("dynamic", "proposal", "proposal", "kept")


@st.composite
def boards(draw: st.DrawFn, node: str, index: int) -> GPU:
    product = draw(st.sampled_from((H100, H100, A100, A30)))
    layout = draw(st.sampled_from(LAYOUTS))
    if draw(st.integers(0, 9)) == 0:
        return GPU(node=node, index=index, product=product, used_by="other", layout=layout)
    size = slices(product)
    left, found = full(size), []
    for _ in range(draw(st.integers(0, 4))):
        spots = [(shape, start) for shape in range(ONE, FULL + 1) for start in places(shape, size, left)]
        if spots:
            shape, start = draw(st.sampled_from(spots))
            profile = name_of(product, shape)
            left &= ~cells(product, profile, start)
            found.append(Instance(profile=profile, start=start, used_by=draw(st.sampled_from(("", "other")))))
    return GPU(node=node, index=index, product=product, instances=tuple(found), mig=bool(found), layout=layout)


@st.composite
def fleets(draw: st.DrawFn) -> list[GPU]:
    nodes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    return [draw(boards(f"n{n}", index)) for n, count in enumerate(nodes) for index in range(count)]


PROFILES = tuple(name_of(product, shape) for product in (H100, A30) for shape in range(ONE, FULL + 1)
                 if name_of(product, shape))
OPTIONS = st.one_of(
    st.sampled_from(PROFILES).map(lambda profile: Option(profile=profile)),
    st.integers(1, 3).map(lambda gpus: Option(gpus=gpus)),
)


@st.composite
def demand_lists(draw: st.DrawFn) -> list[Demand]:
    return [
        Demand(name=f"m{number}", replicas=draw(st.integers(1, 6)),
               options=tuple(draw(st.lists(OPTIONS, min_size=1, max_size=3))),
               weight=draw(st.sampled_from((1.0, 2.0, 5.0))))
        for number in range(draw(st.integers(1, 4)))
    ]


def overlaps(gpus: Sequence[GPU], seats: Sequence[Seat], *, cut: bool) -> list[str]:
    """What is wrong with ``seats``; with ``cut`` free instances may have been dissolved where the layout allows it."""
    found = []
    taken = {(g.node, g.index): _taken(g) for g in gpus}
    by_key = {(g.node, g.index): g for g in gpus}
    for seat in seats:
        for index in seat.gpus:
            board = by_key[seat.node, index]
            size = slices(board.product)
            mask = cells(board.product, seat.profile, seat.start) if seat.profile else full(size)
            if taken[seat.node, index] & mask:
                found.append(f"{seat} lies on something")
            taken[seat.node, index] |= mask
            may = board.layout == "dynamic" or (cut and board.layout == "proposal")
            there = any((i.profile, i.start) == (seat.profile, seat.start) for i in board.instances)
            if not may and not (there if seat.profile else not board.mig):
                found.append(f"{seat} needs a change of layout")
    return found


def _taken(board: GPU) -> int:
    if board.used_by:
        return full(slices(board.product))
    mask = 0
    for instance in board.instances:
        if instance.used_by:
            mask |= cells(board.product, instance.profile, instance.start)
    return mask


def worth(demands: Sequence[Demand], seats: Sequence[Seat]) -> float:
    by_name = {demand.name: demand for demand in demands}
    return sum(by_name[seat.demand].worth(by_name[seat.demand].options[seat.option]) for seat in seats)


def proposed(plan: Plan) -> list[Seat]:
    """Each once: a replica of several GPUs stands with each of them."""
    return list(dict.fromkeys(seat for change in plan.changes for seat in change.seats))

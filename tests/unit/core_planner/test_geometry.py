"""Where slices may lie, and that counting room agrees with a search over positions."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core import mig
from enginewright.core.planner.geometry import (
    FOUR,
    FULL,
    ONE,
    SHAPES,
    THREE,
    TWO,
    WHOLE,
    WIDE,
    cells,
    full,
    name_of,
    places,
    shape_of,
    slices,
    starts,
    width,
)
from enginewright.core.planner.pools import pools
from enginewright.core.planner.selection import boards_after, seat_groups
from support.fleets import A30, A100, H100, gpu, used

COMPUTE = {ONE: 1, WIDE: 1, TWO: 2, THREE: 3, FOUR: 4, FULL: 7}
PRODUCTS = ("NVIDIA-H100-80GB-HBM3", "NVIDIA-H200", "NVIDIA-B200", "NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-40GB")


@pytest.mark.parametrize("product", [*PRODUCTS, A30])
def test_as_many_of_each_profile_fit_as_nvidia_says(product: str) -> None:
    size = slices(product)
    for profile in mig.profiles(product):
        shape = shape_of(product, profile.name)
        assert shape is not None
        assert name_of(product, shape) == profile.name
        assert width(shape, size) == profile.memory
        assert len(starts(shape, size)) == profile.count


# nvidia-smi mig -lgipp on an A100 40 GB, as the MIG User Guide prints it: starts and size.
@pytest.mark.parametrize(("profile", "at", "memory"), [
    ("1g.5gb", (0, 1, 2, 3, 4, 5, 6), 1), ("1g.10gb", (0, 2, 4, 6), 2), ("2g.10gb", (0, 2, 4), 2),
    ("3g.20gb", (0, 4), 4), ("4g.20gb", (0,), 4), ("7g.40gb", (0,), 8),
])
def test_starts_are_those_of_the_guide(profile: str, at: tuple[int, ...], memory: int) -> None:
    shape = shape_of(A100, profile)
    assert shape is not None
    assert (starts(shape, 8), width(shape, 8)) == (at, memory)


def test_no_layout_has_more_compute_than_the_board() -> None:
    @cache
    def most(free: int) -> int:
        return max((COMPUTE[shape] + most(free & ~(full(width(shape, 8)) << start))
                    for shape in COMPUTE for start in places(shape, 8, free)), default=0)

    assert most(full(8)) == 7


def test_a_profile_that_nobody_knows_takes_the_board() -> None:
    assert cells(H100, "5g.60gb", 0) == full(8)
    assert shape_of(H100, "1g.10gb+me") is None


@cache
def _fits(free: tuple[int, ...], size: int, wanted: tuple[int, ...]) -> bool:
    """By trying every position of the next slice on every board."""
    shape = next((s for s in reversed(range(FULL + 1)) if wanted[s]), None)
    if shape is None:
        return True
    less = tuple(n - (s == shape) for s, n in enumerate(wanted))
    mask = full(width(shape, size))
    return any(
        _fits(tuple(sorted((*free[:board], left & ~(mask << start), *free[board + 1:]))), size, less)
        for board, left in enumerate(free) for start in places(shape, size, left)
    )


@given(st.sampled_from((H100, A30)), st.lists(st.lists(st.integers(0, 6), max_size=3), min_size=1, max_size=3),
       st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_counting_room_is_as_good_as_a_search(product: str, busy: list[list[int]], wanted: list[int]) -> None:
    size = slices(product)
    fleet = []
    for index, at in enumerate(busy):
        ones = [used(name_of(product, ONE), start) for start in sorted(set(at)) if start < len(starts(ONE, size))]
        fleet.append(gpu("n", index, product, *ones, layout="dynamic"))
    counts = [n if starts(shape, size) else 0 for shape, n in enumerate(wanted)]
    (pool,) = pools(fleet, [], cut=True)
    room = pool.room
    counted = room.fits([*counts, *([0] * (SHAPES - len(counts)))], room.empty, room.uncut)
    assert counted == _fits(tuple(sorted(pool.free)), size, tuple(counts))
    assert len(counts) == WHOLE


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=5), st.lists(st.integers(0, 3), min_size=4,
                                                                                         max_size=4))
def test_counting_boards_is_as_seating_groups(boards: list[tuple[int, int]], replicas: list[int]) -> None:
    groups = tuple((gpus, n) for gpus, n in zip((8, 4, 3, 2), replicas, strict=True) if n)
    seated = seat_groups(tuple(boards), groups)
    left = boards_after(tuple(boards), groups)
    assert left == (seated and (sum(empty for _, empty in seated[0]), sum(uncut for uncut, _ in seated[0])))

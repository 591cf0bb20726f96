"""Where MIG instances may lie on a board.

A board has eight memory slices (A30: four). An instance takes as many of them as its profile says, side by side, from
one of a few starts. Sources: MIG User Guide (`nvidia-smi mig -lgipp` on A100); NVIDIA/go-nvml pkg/nvml/mock/gpus
(a100.go, a30.go); listings of `-lgipp` on H100. For H200, B200 and GB200 the same is assumed: their profiles have the
same counts and slices. NVML has the truth (nvmlDeviceGetGpuInstancePossiblePlacements), which only a process on the
node can ask.

Compute slices need no count of their own: no set of instances that lie apart has more than the board's seven (a test
goes through all of them).
"""

from __future__ import annotations

from functools import cache
from typing import Final

from enginewright.core import mig

# Shapes, from small to large; FULL is the profile of the whole board, WHOLE the board without MIG.
ONE, WIDE, TWO, THREE, FOUR, FULL, WHOLE = range(7)
SHAPES: Final = 7

_SEVEN: Final = {(1, 1): ONE, (1, 2): WIDE, (2, 2): TWO, (3, 4): THREE, (4, 4): FOUR, (7, 8): FULL}
_A30: Final = {(1, 1): ONE, (2, 2): TWO, (4, 4): FULL}
_STARTS: Final = {
    8: {ONE: range(7), WIDE: range(0, 8, 2), TWO: range(0, 6, 2), THREE: (0, 4), FOUR: (0,), FULL: (0,), WHOLE: (0,)},
    4: {ONE: range(4), TWO: (0, 2), FULL: (0,), WHOLE: (0,)},
}
_SIZES: Final = {ONE: 1, WIDE: 2, TWO: 2, THREE: 4, FOUR: 4}


@cache
def slices(product: str) -> int:
    """Memory slices of a board: 4 or 8. A board without known profiles counts as 8, which only whole GPUs take."""
    known = mig.profiles(product)
    return known[-1].memory if known else 8


@cache
def can_be_cut(product: str) -> bool:
    """Whether its profiles are known."""
    return bool(mig.profiles(product))


def full(size: int) -> int:
    """The mask of a board of ``size`` slices on which all are free."""
    return (1 << size) - 1


def width(shape: int, size: int) -> int:
    """Memory slices that ``shape`` takes on a board of ``size``."""
    return _SIZES.get(shape, size)


def starts(shape: int, size: int) -> tuple[int, ...]:
    """First memory slices where ``shape`` may begin; empty where the board has no such profile."""
    return tuple(_STARTS[size].get(shape, ()))


@cache
def shape_of(product: str, profile: str) -> int | None:
    """None for a profile that the product does not have, or that cannot be cut as often as there is room for it (with
    ``+me``: one on each board)."""
    if not profile:
        return WHOLE
    found = None if profile.endswith("+me") else mig.profile(product, profile)
    if found is None:
        return None
    return (_A30 if slices(product) == 4 else _SEVEN)[found.compute, found.memory]


@cache
def name_of(product: str, shape: int) -> str:
    """The profile's name on ``product``; empty for WHOLE."""
    return next((p.name for p in mig.profiles(product) if shape_of(product, p.name) == shape), "")


@cache
def cells(product: str, profile: str, start: int) -> int:
    """The mask of the slices under an instance. An unknown profile takes the board: nothing is put beside
    what is not understood."""
    size = slices(product)
    known = mig.profile(product, profile)
    return ((1 << known.memory) - 1) << start if known else full(size)


@cache
def places(shape: int, size: int, free: int) -> tuple[int, ...]:
    """Starts where ``shape`` fits on a board with ``free`` slices."""
    mask = (1 << width(shape, size)) - 1
    return tuple(start for start in starts(shape, size) if (mask << start) & ~free == 0)

"""Optimisation profiles: which shapes a TensorRT engine takes, and which it is tuned for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.engines.base import BatchRange, Joined, Rung
from enginewright_builder.shapes import UNBOUNDED, size_range
from enginewright_builder.tensors import Tensors

Shape = tuple[int, ...]
# What a size about which nothing is known may grow to, as a multiple of the typical one. Memory is planned for the
# largest shape, so it cannot be left open.
_HEADROOM = 2


@dataclass(frozen=True, kw_only=True)
class InputShapes:
    """One input's shapes in a profile, the batch first. Kernels are chosen at ``best``."""

    low: Shape
    best: Shape
    high: Shape


Profile = Mapping[str, InputShapes]


def wide_profile(interface: Interface, example: Tensors, max_batch_size: int) -> Profile:
    """Every batch, tuned for the largest, which a full queue fills."""
    return _profile(interface, example, BatchRange(low=1, best=max_batch_size, high=max_batch_size))


def profiles(rung: Rung, interface: Interface, example: Tensors, max_batch_size: int,
             joined: Joined | None = None) -> Sequence[Profile]:
    """The profiles of ``rung``, in the order in which equally good ones are taken.

    ``example`` is a batch of typical inputs. Where requests of different length are ``joined``, an engine for every
    batch has a profile for each bucket of lengths, tuned for its longest, which groups are filled up to. A rung tuned
    for one batch gets a profile of exactly this batch and the typical sizes, in which all shapes are constants, and
    where that is not all of its range another for the rest.
    """
    if not rung.ranges:
        wide = wide_profile(interface, example, max_batch_size)
        return [wide] if joined is None else by_length(wide, joined)
    ranged = [_profile(interface, example, batches) for batches in rung.ranges]
    if len(rung.ranges) > 1:
        return ranged
    exact = {name: InputShapes(low=shapes.best, best=shapes.best, high=shapes.best)
             for name, shapes in ranged[0].items()}
    return [exact] if exact == ranged[0] else [exact, *ranged]


def by_length(wide: Profile, joined: Joined) -> list[Profile]:
    """``wide`` cut into the buckets of lengths: 1 to 24, 25 to 128, and so on."""
    lows = (wide[joined.mask].low[1], *(length + 1 for length in joined.buckets[:-1]))
    return [{name: _of_length(shapes, low, high) if name in joined.fill else shapes for name, shapes in wide.items()}
            for low, high in zip(lows, joined.buckets, strict=True) if low <= high]


def _of_length(shapes: InputShapes, low: int, high: int) -> InputShapes:
    (first, _, *least), (batch, _, *usual), (last, _, *most) = shapes.low, shapes.best, shapes.high
    return InputShapes(low=(first, low, *least), best=(batch, high, *usual), high=(last, high, *most))


def fixed_sizes(interface: Interface) -> bool:
    """Whether the batch is the only free dimension of the inputs."""
    return all(low == high for spec in interface.inputs for low, high in map(size_range, spec.shape[1:]))


def _profile(interface: Interface, example: Tensors, batches: BatchRange) -> Profile:
    return {spec.name: _shapes(spec, example[spec.name].shape, batches) for spec in interface.inputs}


def _shapes(spec: TensorSpec, typical: Shape, batches: BatchRange) -> InputShapes:
    sizes = [_sizes(size, usual) for size, usual in zip(spec.shape[1:], typical[1:], strict=True)]
    return InputShapes(low=(batches.low, *(low for low, _, _ in sizes)),
                       best=(batches.best, *(best for _, best, _ in sizes)),
                       high=(batches.high, *(high for _, _, high in sizes)))


def _sizes(size: int | str, typical: int) -> tuple[int, int, int]:
    low, high = size_range(size)
    if high == UNBOUNDED:
        high = max(low, _HEADROOM * typical)
    return low, min(max(typical, low), high), high

"""Lengths to try where a model does not take texts of any length: some add what must be of one size, or cut texts into
parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from enginewright_builder.contract import TensorSpec
from enginewright_builder.shapes import size_range

# Longer texts are for the user to ask for: each request costs as much as one of this length.
_MOST, _LEAST = 512, 8
# Of a graph whose operators grow with the texts, as a loop over tokens is written out: PyTorch's exporter writes 50 to
# 100 of them a second on one core, and ONNX Runtime opens some thousands in seconds.
MOST_OPERATORS = 5000


def of_one_length(inputs: Sequence[TensorSpec]) -> Iterator[tuple[int, tuple[TensorSpec, ...]]]:
    """Lengths, with ``inputs`` of that length wherever they are free: the longest that serves most texts first, then
    half of it and so on. None where all sizes are fixed, or where fractions are of free size: how long a sound is
    depends on its rate."""
    free = [spec for spec in inputs if any(map(_free, spec.shape[1:]))]
    if not free or not all(spec.dtype.startswith("int") for spec in free):
        return
    longest = min(_MOST, *(size_range(size)[1] for spec in free for size in spec.shape[1:] if _free(size)))
    while longest >= _LEAST:
        yield longest, tuple(dataclasses.replace(spec, shape=(spec.shape[0], *(
            longest if _free(size) else size for size in spec.shape[1:]))) for spec in inputs)
        longest //= 2


def is_too_long(length: int, operators: Callable[[int], int]) -> bool:
    """``operators`` counts those of one call, by the length of its texts."""
    return (whole := operators(length)) > MOST_OPERATORS and whole > operators(length // 2)


def length_note(length: int, why: str) -> str:
    return (f"texts are of {length} tokens, to which clients fill up with padding, and longer ones are cut: {why}. "
            f"For another length write it into spec.interface.inputs, such as input_ids [batch, {length}]")


def _free(size: int | str) -> bool:
    low, high = size_range(size)
    return low != high

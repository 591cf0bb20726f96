"""What numbers of a file become in the type that the model takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from enginewright_builder.tensors import Array


def converted(array: Array, wanted: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):  # :func:`overflowing` tells it
        return array.astype(wanted, copy=False)


def infinite(array: Array) -> bool:
    return array.dtype.kind == "f" and bool(np.isinf(array).any())


def overflowing(before: Array, after: Array) -> int | float | None:
    """The first number of ``before`` that has become infinite; None where none has."""
    if before.dtype == after.dtype or after.dtype.kind != "f":
        return None
    found = before[np.isinf(after)] if before.dtype.kind != "f" else before[np.isinf(after) & np.isfinite(before)]
    return found.flat[0].item() if found.size else None


def rounded(before: Array, after: Array) -> tuple[int, float] | None:
    """The first whole number of ``before`` that is another in ``after``, and which; None where none is. Fractions are
    rounded by their nature, and not looked at."""
    if before.dtype.kind not in "iu" or after.dtype.kind != "f":
        return None
    exact = 2 ** (np.finfo(after.dtype).nmant + 1)  # up to here each whole number is one of the type
    large = (before > exact) | (before < -exact) if before.dtype.kind == "i" else before > exact
    for number, became in zip(before[large].ravel().tolist(), after[large].ravel().tolist(), strict=True):
        if int(became) != number:
            return number, became
    return None

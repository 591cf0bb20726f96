"""Answers that are no amounts but names: numbers of classes or tokens, yes and no. Between them there is no more or
less, so that they are compared by how many are equal. A cosine says nothing of them; of one number a sample it is 1,
whatever the number is.

By type alone: outputs of 32 or 64 bits that are whole numbers, booleans, and texts. Fewer bits are amounts, such as
pixels.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from enginewright_builder.tensors import Array

ID_TYPES = frozenset({"bool", "int32", "int64", "uint32", "uint64"})


def are_ids(array: Array) -> bool:
    return str(array.dtype) in ID_TYPES or array.dtype.kind == "O"


def equal_share(reference: Array, candidate: Array) -> npt.NDArray[np.float64]:
    """Of each sample's entries, ``[batch]``; 1 for a sample that has none."""
    same = (reference == candidate).reshape(len(reference), -1)
    if not same.shape[1]:
        return np.ones(len(reference))
    found: npt.NDArray[np.float64] = same.mean(axis=1)
    return found


def different_share(expected: Array, got: Array) -> float:
    """Of all entries; both of one size."""
    return float(np.mean(got.reshape(expected.shape) != expected)) if expected.size else 0.0

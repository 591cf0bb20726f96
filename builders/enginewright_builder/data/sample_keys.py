"""When two samples are the same: by what a model makes of them, not by the file, format or type they were written in.

* Texts are the same when they differ in white space or in Unicode's way to write a character.
* Numbers are the same when they are equal, as whole numbers where all of them are whole (JSON's ``1.0``, NumPy's ``1``,
  an ``int32`` and an ``int64``), else as float16 where that can tell arrays apart: a copy in half precision is a copy.
  A single float16 tells little, so short arrays are compared as float32.
* Padding, which an ``attention_mask`` marks at a sample's end, does not count.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Mapping

import numpy as np

from enginewright_builder.tensors import Array

# Beyond these the float16 of a number is infinite, or too coarse for its array.
_HALF_PRECISION = (1e-2, 6e4)
# So many rounded entries are equal in two samples by chance only where the samples are.
_ENOUGH_ENTRIES = 16
_WHOLE = 2.0 ** 53


def text_key(text: str) -> str:
    return hashlib.sha256(_plain(text).encode()).hexdigest()


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


def row_key(row: Mapping[str, Array]) -> str:
    """Of one sample's arrays, without the batch dimension."""
    digest = hashlib.sha256()
    for name, array in sorted(unpadded(row).items()):
        plain = _canonical(np.asarray(array))
        digest.update(f"{name}:{plain.dtype}:{plain.shape}\n".encode())
        digest.update(np.ascontiguousarray(plain).tobytes())
    return digest.hexdigest()


def unpadded(row: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays as long as the mask, up to the last position that it has."""
    mask = row.get("attention_mask")
    if mask is None or mask.ndim != 1 or not mask.any():
        return dict(row)
    length = int(np.flatnonzero(mask).max()) + 1
    return {name: array[:length] if array.shape[:1] == mask.shape else array for name, array in row.items()}


def _canonical(array: Array) -> Array:
    if array.dtype.kind in "OU":
        return np.frombuffer(json.dumps([_plain(str(text)) for text in array.ravel()]).encode(), np.uint8)
    if array.dtype.kind in "biu":
        return array.astype(np.int64)
    largest = float(np.abs(array).max(initial=0.0))
    if largest < _WHOLE and bool((array == np.trunc(array)).all()):
        return array.astype(np.int64)
    low, high = _HALF_PRECISION
    coarse = array.size >= _ENOUGH_ENTRIES and low <= largest <= high
    plain: Array = array.astype(np.float16 if coarse else np.float32)
    plain[plain == 0] = 0  # which has no sign here
    return plain

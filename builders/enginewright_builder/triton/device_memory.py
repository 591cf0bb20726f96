"""How much memory of its GPUs, or of its slice, is free: what a server took is the difference.

Triton's own metric is of a whole device and of all who use it: the builder beside the server, and the other slices of a
partitioned GPU, would be counted as the server's.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence


def free_bytes(gpus: Sequence[int]) -> int | None:
    """Of the GPUs with these CUDA ordinals, together. None where CUDA does not tell."""
    try:
        cuda = importlib.import_module("cuda.bindings.runtime")
    except (ImportError, OSError):
        return None
    done, total = cuda.cudaError_t.cudaSuccess, 0
    try:
        error, current = cuda.cudaGetDevice()
        if error != done:
            return None
        for ordinal in gpus:
            (error,) = cuda.cudaSetDevice(ordinal)
            busy, free, _ = cuda.cudaMemGetInfo() if error == done else (error, 0, 0)
            if busy != done:
                return None
            total += free
        cuda.cudaSetDevice(current)
    except RuntimeError:  # the driver's library is not there at all
        return None
    return total

"""Arrays in POSIX shared memory, as Triton hands them to its Python backend."""

from __future__ import annotations

import contextlib
import mmap
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


@contextlib.contextmanager
def in_shared_memory(array: NDArray[Any]) -> Iterator[tuple[NDArray[Any], int, int]]:
    """A copy of ``array``, and begin and size of the mapping that it lies in. The mapping goes with the last array in
    it."""
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.truncate(-(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE)
        memory = mmap.mmap(file.fileno(), 0)
        there = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
        there[...] = array
        yield there, int(there.__array_interface__["data"][0]), len(memory)

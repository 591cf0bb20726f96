"""Page-locks the memory in which Triton hands inputs to its Python backend.

Copied beside ``model.py`` into the version folder; it may import only the standard library and NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

# Of an input, in bytes. To copy less costs no more than to look where it lies.
WORTH_PINNING = 64 * 1024


class SharedMemory:
    """Lets the GPU read inputs where they lie: without, the processor copies each once more.

    Each of ``readers`` takes an address and a size, and raises ``RuntimeError`` where CUDA refuses. Triton's stub maps
    its region once more when it grows, and keeps the mappings that it had (``SharedMemoryManager`` of Triton's Python
    backend), so what is registered stays mapped.
    """

    def __init__(self, readers: Sequence[Callable[[int, int], None]], maps: Path = Path("/proc/self/maps")) -> None:
        self._readers, self._maps = readers, maps
        self._known: list[tuple[int, int]] = []
        self._works = True

    def pin(self, array: NDArray[Any]) -> None:
        """Does nothing where the array is small, lies in no shared memory, or CUDA has refused before."""
        if not self._works or array.nbytes < WORTH_PINNING:
            return
        address = int(array.__array_interface__["data"][0])
        if any(low <= address < high for low, high in self._known):
            return
        low, high, shared = mapping(address, self._maps.read_text(encoding="utf-8", errors="replace"))
        # Remembered in any case: to look through all mappings takes a millisecond.
        self._known.append((low, high))
        if shared:
            self._lock(low, high)

    def _lock(self, low: int, high: int) -> None:
        try:
            for register in self._readers:
                register(low, high - low)
        except RuntimeError as error:
            print(f"inputs are copied once more, as their memory cannot be page-locked: {error}", file=sys.stderr)
            self._works = False


def mapping(address: int, maps: str) -> tuple[int, int, bool]:
    """Begin and end of the mapping around ``address``, and whether it is of POSIX shared memory, from the text of
    ``/proc/PID/maps`` (proc(5)). The address alone where no mapping has it."""
    for line in maps.splitlines():
        span, _, rest = line.partition(" ")
        low, high = (int(part, 16) for part in span.split("-"))
        if low <= address < high:
            return low, high, "/dev/shm/" in rest  # noqa: S108 - where POSIX shared memory lives
    return address, address + 1, False

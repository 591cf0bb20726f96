"""The source model's answers, which every candidate is held against: in memory while they are small, else on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from enginewright_builder.tensors import Array, Tensors

# A segmentation's answers to a thousand samples are several gigabytes; an embedding's are megabytes.
MEMORY_BYTES = 1 << 30


def remembered(answers: Iterable[Tensors], folder: Path, memory_bytes: int = MEMORY_BYTES) -> list[Tensors]:
    """``answers`` in their order; what exceeds ``memory_bytes`` lies in ``folder`` and is read when it is looked at."""
    return list(_remembered(answers, folder, memory_bytes))


def _remembered(answers: Iterable[Tensors], folder: Path, memory_bytes: int) -> Iterator[Tensors]:
    held = 0
    for index, batch in enumerate(answers):
        held += sum(array.nbytes for array in batch.values())
        if held <= memory_bytes:
            yield batch
        else:
            folder.mkdir(parents=True, exist_ok=True)
            yield {name: _on_disk(array, folder / f"{index}-{place}.npy")
                   for place, (name, array) in enumerate(batch.items())}


def _on_disk(array: Array, path: Path) -> Array:
    np.save(path, array)
    found: Array = np.load(path, mmap_mode="r")
    return found

"""What goes into models and engines, and comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
# Named arrays with the samples in front: ``{"input_ids": int64[batch, sequence], …}``. A sample of a model that takes
# no batches is a whole call, whose shapes stand behind: ``{"state": float32[1, 2, 1, 128]}``.
Tensors = Mapping[str, Array]


class Steps(dict[str, Array]):
    """A sequence of whole calls, the steps in front: ``{"sound": float32[steps, 1, 512]}``. Each is a request of its
    own, which is sent once the one before is answered."""

    @property
    def calls(self) -> list[Tensors]:
        return [whole_call(self, step) for step in range(count(self))]


# Runs once on inputs bound before, and returns when the answer is complete.
Call = Callable[[], object]


def count(tensors: Tensors) -> int:
    """How many samples there are."""
    return len(next(iter(tensors.values())))


def whole_call(tensors: Tensors, index: int = 0) -> dict[str, Array]:
    """Sample number ``index`` as a model without a batch takes it."""
    return {name: np.ascontiguousarray(array[index]).reshape(array.shape[1:]) for name, array in tensors.items()}

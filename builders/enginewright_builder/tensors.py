"""What goes into models and engines, and comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
# Named arrays with the batch in front: ``{"input_ids": int64[batch, sequence], …}``.
Tensors = Mapping[str, Array]
# Runs once on inputs bound before, and returns when the answer is complete.
Call = Callable[[], object]

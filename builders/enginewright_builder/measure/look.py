"""What a model is made of, as far as it tells which engine and precision suit it. Pure; counted by ``work.look``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal, get_args

Kind = Literal["convolution", "depthwise", "product", "attention", "rest"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# FP16 operations that an H100 or H200 does while it reads a byte: 989 Tflop/s and 3.35 TB/s (NVIDIA's data sheet). Both
# reach about the same part of that, so their ratio holds.
OPERATIONS_PER_BYTE = 295.0
HALF_BYTES = 2.0


@dataclass(frozen=True, kw_only=True)
class Look:
    """Shares of the estimated time on a GPU in FP16, which add up to 1: ``convolution``, ``depthwise`` convolutions (a
    filter for each channel), ``product`` with weights, ``attention`` (products of two activations), and the ``rest``,
    which memory bounds. ``operators`` is how many there are, views and constants left out."""

    convolution: float = 0.0
    depthwise: float = 0.0
    product: float = 0.0
    attention: float = 0.0
    rest: float = 0.0
    operators: int = 0

    @classmethod
    def of(cls, seconds: Mapping[Kind, float], operators: int) -> Look:
        """From the time of each kind, in any unit."""
        total = math.fsum(seconds.values()) or 1.0
        return cls(**{kind: round(seconds.get(kind, 0.0) / total, 4) for kind in KINDS}, operators=operators)

    @property
    def shares(self) -> tuple[float, ...]:
        return tuple(getattr(self, one.name) for one in fields(self) if one.name != "operators")

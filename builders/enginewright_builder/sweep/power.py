"""What unmeasured configurations draw: idle power, and so many joules an inference, fitted to those that
were measured. It decides what is measured next, never what is shipped. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from enginewright_builder.sweep.queueing import Vector
from enginewright_builder.sweep.result import Point

# Of what is drawn on average: no device draws less than so much with no work, whatever a fit of noisy points says.
LEAST_IDLE = 0.05


@dataclass(frozen=True, kw_only=True)
class PowerLine:
    """Watts are ``idle`` and ``each`` (joules) for every inference a second."""

    idle: float
    each: float

    @classmethod
    def of(cls, points: Sequence[Point]) -> Self:
        """The line through ``points``, at least one of which has its device's power, by least squares."""
        seen = [(point.throughput, point.use.watts) for point in points if point.use and point.use.watts]
        rates, watts = (np.array(column) for column in zip(*seen, strict=True))
        mean, spread = float(watts.mean()), float(np.var(rates))
        slope = float(np.mean((rates - rates.mean()) * (watts - mean))) / spread if spread else 0.0
        most = (1 - LEAST_IDLE) * mean / float(rates.mean()) if rates.mean() else 0.0
        each = min(max(0.0, slope), most)
        return cls(idle=mean - each * float(rates.mean()), each=each)


def log_rate(idle: Vector, each: Vector, log_throughput: Vector) -> tuple[Vector, Vector]:
    """Logarithms of inferences a joule, and by what share of a change of throughput they change: as much as is drawn
    for being on."""
    watts = idle + each * np.exp(log_throughput)
    return log_throughput - np.log(watts), idle / watts

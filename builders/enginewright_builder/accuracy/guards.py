"""What no metric of the four may overlook, whatever it is blind to.

Cosine, top-1 and rank correlation do not see an engine whose answers are all twice as large. And every metric can be
high for an engine that answers the same to everything, or a neighbour's answer, where the reference's answers have much
in common. So two figures of each output are taken beside the metric, and have limits of their own:

* *magnitude*: a sample's score is ``1 − |‖candidate‖ − ‖reference‖| / max(both, the typical norm)``. The lower bound of
  its mean must reach ``1 − √(2·tolerance)``: an error *along* an answer may be as large as the error *across* it that a
  cosine of ``1 − tolerance`` allows. Never below 0.75, nor asked for above 0.9.
* *drowned*: the variance of the error among samples of a batch over the variance of the reference's answers there. An
  engine that ignores its inputs has 1, one that mixes up its samples 2; a sound one is far below 1. At most 0.5.
"""

from __future__ import annotations

import math

import numpy as np

from enginewright_builder.accuracy.scores import Floats, norms, rows
from enginewright_builder.tensors import Array

MAX_DROWNED = 0.5
_LARGEST, _SMALLEST = 0.25, 0.1
# Differences between samples below this share of the answers' size are rounding, not content.
_SAME_ANSWER = 1e-5


def magnitude_asked(tolerance: float) -> float:
    """What the lower bound of the magnitude's mean score must reach."""
    return 1 - min(_LARGEST, max(_SMALLEST, math.sqrt(2 * tolerance)))


class OutputGuard:
    """Both figures of one output, batch by batch. ``typical`` is the median norm of the reference's samples."""

    def __init__(self, typical: float) -> None:
        self._typical = typical
        self._error = self._spread = self._size = 0.0
        self._squares = np.zeros(2)

    def add(self, reference: Array, candidate: Array) -> Floats:
        """Magnitude scores of the batch's samples."""
        self._compare_spread(rows(reference), rows(candidate))
        here, there = norms(reference), norms(candidate)
        self._squares += [float((here ** 2).sum()), float((there ** 2).sum())]
        largest = np.maximum(np.maximum(here, there), self._typical)
        return np.where(largest == 0, 1.0, 1 - np.abs(there - here) / np.where(largest == 0, 1.0, largest))

    def _compare_spread(self, reference: Floats, candidate: Floats) -> None:
        """Within the batch alone: samples of other shapes cannot be compared, and need not be kept."""
        error = candidate - reference
        self._error += float(((error - error.mean(axis=0)) ** 2).sum())
        self._spread += float(((reference - reference.mean(axis=0)) ** 2).sum())
        self._size += float((reference ** 2).sum())

    @property
    def drowned(self) -> float:
        """0 where the reference answers the same to all: there is nothing to tell apart."""
        if self._spread <= _SAME_ANSWER ** 2 * self._size:
            return 0.0
        return self._error / self._spread

    @property
    def scale(self) -> float:
        """How large the candidate's answers are beside the reference's, over all samples."""
        here, there = self._squares
        return math.sqrt(there / here) if here else 1.0 if not there else math.inf

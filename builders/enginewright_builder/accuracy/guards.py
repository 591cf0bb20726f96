"""What no metric of the four may overlook, whatever it is blind to.

Cosine, top-1 and rank correlation do not see an engine whose answers are all twice as large. And every metric can be
high for an engine that answers the same to everything, or a neighbour's answer, where the reference's answers have much
in common. So two figures of each output are taken beside the metric, and have limits of their own:

* *magnitude*: a sample's score is ``1 − |‖candidate‖ − ‖reference‖| / max(both, the typical norm)``. The lower bound of
  its mean must reach ``1 − √(2·tolerance)``: an error *along* an answer may be as large as the error *across* it that a
  cosine of ``1 − tolerance`` allows. Never below 0.75, nor asked for above 0.9.
* *drowned*: the variance of the error among samples of a batch over the variance of the reference's answers there. An
  engine that ignores its inputs has 1, one that mixes up its samples 2; a sound one is far below 1. At most 0.5.
  Samples of varying shape come in small batches, of one at worst, where nothing varies: neighbours whose answers have
  one shape are taken together. Where there are none, nothing is known.
"""

from __future__ import annotations

import math

import numpy as np

from enginewright_builder.accuracy.scores import Floats, by_blocks, entries, norms
from enginewright_builder.tensors import Array

MAX_DROWNED = 0.5
_LARGEST, _SMALLEST = 0.25, 0.1
# Differences between samples below this share of the answers' size are rounding, not content.
_SAME_ANSWER = 1e-5
# Neighbours taken together: so many samples, or entries, as these are copied.
_SAMPLES, _ENTRIES = 16, 8_000_000


def magnitude_asked(tolerance: float) -> float:
    """What the lower bound of the magnitude's mean score must reach."""
    return 1 - min(_LARGEST, max(_SMALLEST, math.sqrt(2 * tolerance)))


class OutputGuard:
    """Both figures of one output, batch by batch. ``typical`` is the median norm of the reference's samples, of single
    numbers their level (:class:`~enginewright_builder.accuracy.scores.Usual`)."""

    def __init__(self, typical: float) -> None:
        self._typical = typical
        self._error = self._spread = self._size = 0.0
        self._contrasted, self._neighbours = 0, list[tuple[Array, Array]]()
        self._squares = np.zeros(2)

    def add(self, reference: Array, candidate: Array) -> Floats:
        """Magnitude scores of the batch's samples."""
        self._set_beside(reference, candidate)
        here, there = norms(reference), norms(candidate)
        self._squares += [float((here ** 2).sum()), float((there ** 2).sum())]
        largest = np.maximum(np.maximum(here, there), self._typical)
        return np.where(largest == 0, 1.0, 1 - np.abs(there - here) / np.where(largest == 0, 1.0, largest))

    def _set_beside(self, reference: Array, candidate: Array) -> None:
        """Samples of other shapes cannot be compared."""
        if self._neighbours and self._neighbours[0][0].shape[1:] != reference.shape[1:]:
            self._compare_spread()
        self._neighbours.append((reference, candidate))
        count = sum(len(batch) for batch, _ in self._neighbours)
        if count >= _SAMPLES or (count > 1 and count * entries(reference) >= _ENTRIES):
            self._compare_spread()

    def _compare_spread(self) -> None:
        """Within the neighbours alone: others need not be kept."""
        held, self._neighbours = self._neighbours, []
        if sum(len(batch) for batch, _ in held) < 2:
            return
        reference, candidate = (side[0] if len(side) == 1 else np.concatenate(side) for side in zip(*held, strict=True))
        for error, spread, size in by_blocks(_spreads, reference, candidate):
            self._error += error
            self._spread += spread
            self._size += size
        self._contrasted += len(reference)

    @property
    def contrasted(self) -> int:
        """How many samples had another beside them, so that ``drowned`` is of them."""
        self._compare_spread()
        return self._contrasted

    @property
    def drowned(self) -> float:
        """0 where the reference answers the same to all: there is nothing to tell apart."""
        self._compare_spread()
        if self._spread <= _SAME_ANSWER ** 2 * self._size:
            return 0.0
        return self._error / self._spread

    @property
    def scale(self) -> float:
        """How large the candidate's answers are beside the reference's, over all samples."""
        here, there = self._squares
        return math.sqrt(there / here) if here else 1.0 if not there else math.inf


def _spreads(reference: Array, candidate: Array) -> tuple[float, float, float]:
    """Of the error and of the reference, and the reference's squares, added up."""
    one, other = reference.astype(np.float64), candidate.astype(np.float64)
    return _spread(other - one), _spread(one), _squares(one)


def _spread(values: Floats) -> float:
    """Squares of what samples are off their mean, added up; ``[samples, entries]``."""
    return _squares(values - values.mean(axis=0))


def _squares(values: Floats) -> float:
    return float(np.einsum("ij,ij->", values, values))

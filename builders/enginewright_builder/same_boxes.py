"""Detections: outputs ``scores``, ``[batch, k]``, ``labels``, ``int32``, and ``boxes``, ``[batch, k, 4]`` with the
corners x_min, y_min, x_max, y_max. Rows of label -1 hold nothing.

Sound engines answer the same detections in another order where scores are close, and differ in those of low scores.
So detections are compared as sets, and each counts with its score: of two answers to one sample the agreement is
``2·Σ min(score, score′)·IoU / (Σ score + Σ score′)`` over pairs of the same label that overlap by half or more, paired
from the best on. It is 1 for equal answers, and for two that see nothing. A label that is wrong, a box that is moved or
scaled, a score that is given to another box, and a detection that is missing or made up all lower it.

By name, type and shape alone, as :mod:`enginewright_builder.ids` does.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from enginewright_builder.tensors import Array, Tensors

SCORES, LABELS, BOXES = "scores", "labels", "boxes"
NOTHING = -1
_TYPE = "int32"
# The least that COCO calls a find.
LEAST_OVERLAP = 0.5
# Corners this close, as a share of the sample's largest number, are the same: rounding, which would be much of the IoU
# of a box of a pixel.
_ROUNDING = 1e-4
# Pairs of boxes that are looked at together, so that thousands of boxes take no more memory than hundreds.
_AT_ONCE = 100_000

Floats = npt.NDArray[np.float64]


def are_detections(answers: Tensors) -> bool:
    scores, labels, boxes = (answers.get(name) for name in (SCORES, LABELS, BOXES))
    if scores is None or labels is None or boxes is None or str(labels.dtype) != _TYPE:
        return False
    return (scores.dtype.kind == boxes.dtype.kind == "f" and scores.ndim == 2 and scores.shape == labels.shape
            and boxes.shape == (*scores.shape, 4))


def are_boxes(name: str, answers: Tensors) -> bool:
    """Whether output ``name`` has labels or boxes of detections, which are compared together."""
    return name in (LABELS, BOXES) and are_detections(answers)


def agreements(reference: Tensors, candidate: Tensors) -> Floats:
    """Of each sample, ``[batch]``; 0 where the candidate's have other shapes or are missing."""
    shape = reference[SCORES].shape
    parts = []
    for name in (SCORES, LABELS, BOXES):
        got = candidate.get(name)
        if got is None or got.size != reference[name].size:
            return np.zeros(len(reference[SCORES]))
        parts.append(got.reshape(reference[name].shape))
    wanted = [reference[name] for name in (SCORES, LABELS, BOXES)]
    return np.array([_agreement([part[row] for part in wanted], [part[row] for part in parts])
                     for row in range(shape[0])], np.float64)


def overlaps(boxes: Array, others: Array) -> Floats:
    """IoU of ``boxes``, ``[n, 4]`` or one alone, with ``others``, ``[n, 4]``, each with its own. 0 for boxes without an
    area."""
    low, high = np.maximum(boxes[..., :2], others[:, :2]), np.minimum(boxes[..., 2:], others[:, 2:])
    common = _area(np.maximum(high - low, 0))
    total: Array = _area(boxes[..., 2:] - boxes[..., :2]) + _area(others[:, 2:] - others[:, :2]) - common
    found: Floats = np.divide(common, total, out=np.zeros(len(others)), where=total > 0)
    return found


def _area(sides: Array) -> Array:
    found: Array = sides[..., 0] * sides[..., 1]
    return found


def _agreement(wanted: list[Array], got: list[Array]) -> float:
    scores, labels, boxes = _there(*wanted)
    others, names, places = _there(*got)
    total = scores.sum() + others.sum()
    if not (np.isfinite(total) and np.isfinite(places).all()):
        return 0.0
    if not total > 0:
        return 1.0
    order, free, common = np.argsort(-scores, kind="stable"), np.ones(len(others)), 0.0
    for row, pairs in zip(order, _pairs(labels[order], boxes[order], names, places), strict=False):
        left = pairs * free
        best = int(left.argmax())
        if left[best] >= LEAST_OVERLAP:
            free[best] = 0.0
            common += min(scores[row], others[best]) * left[best]
    return float(min(1.0, 2 * common / total))


def _pairs(labels: Array, boxes: Floats, names: Array, places: Floats) -> Iterator[Floats]:
    """Of one box after the other how much it is each of ``places``, ``[places]``; 0 for those of another label. None
    where there are no places."""
    near = _ROUNDING * max(1e-9, float(np.abs(boxes).max(initial=0.0)))
    step = max(1, _AT_ONCE // max(1, len(places)))
    for first in range(0, len(boxes) if len(places) else 0, step):
        some = boxes[first:first + step]
        rows, columns = np.nonzero(labels[first:first + step, None] == names)
        one, other = some[rows], places[columns]
        same = np.abs(other - one).max(axis=1) <= near
        found = np.zeros((len(some), len(places)))
        found[rows, columns] = np.where(same, 1.0, overlaps(one, other))
        yield from found


def _there(scores: Array, labels: Array, boxes: Array) -> tuple[Floats, Array, Floats]:
    """Those that hold something; scores below 0 count as nothing."""
    kept = labels != NOTHING
    return np.maximum(scores[kept].astype(np.float64), 0), labels[kept], boxes[kept].astype(np.float64)

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


def overlaps(box: Array, others: Array) -> Floats:
    """IoU of ``box`` with each of ``others``, ``[n, 4]``. 0 for boxes without an area."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    common = np.prod(np.clip(high - low, 0, None), axis=1)
    total = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - common
    found: Floats = np.divide(common, total, out=np.zeros(len(others)), where=total > 0)
    return found


def _agreement(wanted: list[Array], got: list[Array]) -> float:
    scores, labels, boxes = _there(*wanted)
    others, names, places = _there(*got)
    total = scores.sum() + others.sum()
    if not (np.isfinite(total) and np.isfinite(places).all()):
        return 0.0
    if not total > 0:
        return 1.0
    near = _ROUNDING * max(1e-9, float(np.abs(boxes).max(initial=0.0)))
    free, common = np.ones(len(others), np.bool_), 0.0
    for row in np.argsort(-scores, kind="stable"):
        left = np.flatnonzero(free & (names == labels[row]))
        if not len(left):
            continue
        same = np.abs(places[left] - boxes[row]).max(axis=1) <= near
        overlap = np.where(same, 1.0, overlaps(boxes[row], places[left]))
        best = int(overlap.argmax())
        if overlap[best] >= LEAST_OVERLAP:
            free[left[best]] = False
            common += min(scores[row], others[left[best]]) * overlap[best]
    return float(min(1.0, 2 * common / total))


def _there(scores: Array, labels: Array, boxes: Array) -> tuple[Floats, Array, Floats]:
    """Those that hold something; scores below 0 count as nothing."""
    kept = labels != NOTHING
    return np.maximum(scores[kept].astype(np.float64), 0), labels[kept], boxes[kept].astype(np.float64)

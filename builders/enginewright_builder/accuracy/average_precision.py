"""Mean average precision of detections, as COCO defines it (Lin et al. 2014; the rules of ``pycocotools``'
``COCOeval``):

* In each image and class, detections from the best score on take the free object that they overlap most, if by the
  least IoU or more; the others are false.
* Precision at a recall is the best one at that recall or a higher one; its mean over the recalls 0, 0.01, …, 1 is the
  average precision of a class, and the mean of these over the classes that the labels have the figure.
* ``map`` is the mean over the least IoUs 0.5, 0.55, …, 0.95, ``map50`` the figure at 0.5.
* Of an image the 100 best detections count. There are no crowds and no classes of sizes.

``pycocotools`` has no weights of images, of which the bound draws two thousand, and would be a compiled package more in
the image. The tests hold this against figures by hand and against the definition without short cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from enginewright_builder.accuracy.bounds import Floats, draws
from enginewright_builder.same_boxes import BOXES, LABELS, NOTHING, SCORES, overlaps
from enginewright_builder.tensors import Array, Tensors

_MOST, _RECALLS = 100, 100
# So that 0.29 · 100 is 29.
_ROUNDING = 1e-9
_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Marked:
    """Of one image: classes and scores of its detections, whether each finds an object ``[least IoUs, detections]``,
    and the classes of its objects."""

    classes: Array
    scores: Array
    right: npt.NDArray[np.bool_]
    objects: Array


@dataclass(frozen=True, kw_only=True)
class AveragePrecision:
    """Of so few parts that it is no function of sums over images: detections of all images are ranked together."""

    overlaps: tuple[float, ...]

    def marks(self, batch: Tensors, labels: Sequence[Any]) -> Array:
        """``[samples]``, one :class:`Marked` each."""
        found = np.empty(len(labels), object)
        for row, wanted in enumerate(labels):
            kept = np.flatnonzero(batch[LABELS][row] != NOTHING)
            kept = kept[np.argsort(-batch[SCORES][row][kept].astype(np.float64), kind="stable")][:_MOST]
            found[row] = self._marked(batch[LABELS][row][kept], batch[SCORES][row][kept], batch[BOXES][row][kept],
                                      wanted)
        return found

    def value(self, marks: Array) -> float:
        return float(self._weighed(_Ranked(marks, len(self.overlaps)), np.ones((1, len(marks))))[0])

    def drawn(self, marks: Array) -> Floats:
        """``[draws]``: by the weights that sums have for as many samples."""
        ranked = _Ranked(marks, len(self.overlaps))
        return np.concatenate([self._weighed(ranked, weights) for weights in draws(len(marks))])

    def _marked(self, classes: Array, scores: Array, boxes: Array, wanted: Array) -> Marked:
        right = np.zeros((len(self.overlaps), len(classes)), np.bool_)
        objects, corners = wanted[:, 0].astype(np.int64), wanted[:, 1:]
        table = np.array([overlaps(box, corners) for box in boxes.astype(np.float64)])
        table = table.reshape(len(classes), len(objects))
        table = np.where(classes[:, None] == objects, table, -1.0)
        for place, least in enumerate(self.overlaps):
            free = table.copy()
            for row in range(len(classes) if len(objects) else 0):
                best = int(free[row].argmax())
                if free[row, best] >= least:
                    right[place, row] = True
                    free[:, best] = -1.0
        return Marked(classes, scores.astype(np.float64), right, objects)

    def _weighed(self, ranked: _Ranked, weights: Floats) -> Floats:
        """``[draws]``, of ``weights`` ``[draws, images]``."""
        found = [self._of_class(ranked, weights, number) for number in ranked.present]
        if not found:
            return np.zeros(len(weights))
        mean: Floats = np.mean(found, axis=0)
        return mean

    def _of_class(self, ranked: _Ranked, weights: Floats, number: int) -> Floats:
        rows = ranked.rows(number)
        size = max(1, _AT_ONCE // max(1, len(rows)))
        objects = ranked.objects(number)
        parts = []
        for start in range(0, len(weights), size):
            part = weights[start:start + size]
            answered, total = np.cumsum(part[:, ranked.images[rows]], axis=1), part @ objects
            each = [_area(part[:, ranked.images[rows[found]]], answered[:, found], total)
                    for found in map(np.flatnonzero, ranked.right[:, rows])]
            parts.append(np.mean(each, axis=0))
        return np.concatenate(parts)


class _Ranked:
    """Detections of all images."""

    def __init__(self, marks: Sequence[Marked] | Array, levels: int) -> None:
        self._objects = [one.objects for one in marks]
        self.present = np.unique(np.concatenate(self._objects))
        self.images = np.repeat(np.arange(len(marks)), [len(one.classes) for one in marks])
        self._classes = np.concatenate([one.classes for one in marks])
        self._scores = np.concatenate([one.scores for one in marks])
        self.right = np.concatenate([one.right for one in marks], axis=1).reshape(levels, -1)

    def rows(self, number: int) -> Array:
        """Of one class, from the best score on."""
        rows = np.flatnonzero(self._classes == number)
        return rows[np.argsort(-self._scores[rows], kind="stable")]

    def objects(self, number: int) -> Floats:
        """How many of one class each image has."""
        return np.array([np.count_nonzero(one == number) for one in self._objects], np.float64)


def _area(found: Floats, answered: Floats, total: Floats) -> Floats:
    """Average precision, ``[draws]``. Precision is highest at what is found, so that nothing else is looked at:
    ``found`` are the weights of these, ``answered`` those of all detections up to each, ``[draws, found]``."""
    summed = np.cumsum(found, axis=1)
    best = np.maximum.accumulate((summed / answered)[:, ::-1], axis=1)[:, ::-1]
    reached = np.floor(_RECALLS * summed / total[:, None] + _ROUNDING) + 1
    area: Floats = (best * np.diff(reached, axis=1, prepend=0)).sum(axis=1) / (_RECALLS + 1)
    return area

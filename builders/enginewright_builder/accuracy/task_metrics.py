"""Metrics on labels, each as a function of sums: ``marks`` gives figures of each sample, ``value`` makes the metric of
their sums over samples, of whatever weight. So the metric of any share of the samples, or of a draw of them, is as
quick as a sum.

* ``accuracy``, ``top5``: right positions over all that have a label.
* ``f1-macro``, ``f1-micro``: true and false positives and missed ones by class. Macro is the mean over the classes that
  the labels have. (van Rijsbergen 1979, "Information retrieval")
* ``ndcg``: normalised discounted cumulative gain of the first ten, gain ``2^relevance − 1``, discount ``log2(rank +
  1)`` (Järvelin and Kekäläinen 2002; the gain of Burges et al. 2005). What has no relevant entry counts as nothing
  asked.
* ``wer``: words to insert, delete or exchange over the label's words (Levenshtein 1966), of texts that are the most
  likely tokens with repeats and blanks left out (greedy decoding of CTC, Graves et al. 2006).
* ``mae``, ``rmse``: mean absolute error, root of the mean squared error, over all numbers of all samples.

scikit-learn has most of these, and would weigh 100 MB in the image; the tests hold ours against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from enginewright_builder.accuracy.bounds import Floats
from enginewright_builder.accuracy.scores import SIGN
from enginewright_builder.accuracy.task_rules import IGNORED
from enginewright_builder.accuracy.vocabulary import Vocabulary
from enginewright_builder.ids import are_ids
from enginewright_builder.tensors import Array

# How far down a ranking counts.
DEPTH = 10


class TaskMetric(Protocol):
    """``marks`` are ``[samples, figures]``; ``value`` takes sums ``[…, figures]`` and gives ``[…]``."""

    def marks(self, output: Array, labels: Sequence[Any]) -> Any: ...

    def value(self, sums: Floats) -> Floats: ...


@dataclass(frozen=True, kw_only=True)
class TopK:
    """Share of positions whose label is among the ``k`` largest of the last axis. ``threshold`` is for outputs of one
    number a position."""

    k: int = 1
    threshold: float = SIGN

    def marks(self, output: Array, labels: Sequence[Any]) -> Floats:
        wanted = np.stack([np.asarray(label) for label in labels])
        counted = wanted != IGNORED
        right = self._right(output, wanted) & counted
        return np.stack([_per_sample(right), _per_sample(counted)], axis=1)

    def _right(self, output: Array, wanted: Array) -> Array:
        if are_ids(output) and output.size == wanted.size:
            same: Array = output.reshape(wanted.shape) == wanted
            return same
        if output.shape == wanted.shape or output.shape[-1] == 1:
            answered = output.reshape(wanted.shape) > self.threshold
            right: Array = answered == (wanted == 1)
            return right
        if self.k == 1:
            first: Array = output.argmax(axis=-1) == wanted
            return first
        # The negative of a whole number may be beyond its type.
        best = np.argsort(-output.astype(np.float64), axis=-1, kind="stable")[..., :self.k]
        among: Array = (best == wanted[..., None]).any(axis=-1)
        return among

    def value(self, sums: Floats) -> Floats:
        return _ratio(sums[..., 0], sums[..., 1])


@dataclass(frozen=True, kw_only=True)
class Among:
    """Share of samples whose label is one of the first ``k`` classes that are answered, from the best on."""

    k: int

    def marks(self, output: Array, labels: Sequence[Any]) -> Floats:
        wanted = np.array([np.asarray(label).item() for label in labels])
        counted = wanted != IGNORED
        right = (output[:, :self.k] == wanted[:, None]).any(axis=1) & counted
        return np.stack([_per_sample(right), _per_sample(counted)], axis=1)

    def value(self, sums: Floats) -> Floats:
        return _ratio(sums[..., 0], sums[..., 1])


@dataclass(frozen=True, kw_only=True)
class F1:
    """``present`` are the classes that the labels have. With ``several`` a sample has any number of classes: labels
    are 0 or 1 for each, and answers above ``threshold`` mean yes."""

    classes: int
    present: tuple[int, ...]
    macro: bool
    several: bool = False
    threshold: float = SIGN

    def marks(self, output: Array, labels: Sequence[Any]) -> Any:
        """Sparse: of a thousand classes a sample has a few."""
        rows, wanted, answered = self._pairs(output, labels)
        figures = [_by_sample(positions, rows, len(labels))
                   for positions in (wanted & answered, answered & ~wanted, wanted & ~answered)]
        return sparse.csr_array(sparse.hstack(figures))

    def _pairs(self, output: Array, labels: Sequence[Any]) -> tuple[Array, Array, Array]:
        """Sample, and for each class whether the label and the answer have it, of all positions that have a label."""
        wanted = np.stack([np.asarray(label) for label in labels])
        if self.several:
            return np.arange(len(wanted)), wanted.astype(bool), output > self.threshold
        answered = self._answered(output, wanted)
        counted = wanted != IGNORED
        rows = np.broadcast_to(np.arange(len(wanted)).reshape(-1, *[1] * (wanted.ndim - 1)), wanted.shape)[counted]
        every = np.arange(self.classes)
        return rows, wanted[counted][:, None] == every, answered[counted][:, None] == every

    def _answered(self, output: Array, wanted: Array) -> Array:
        """The class of each position; of named ones the last stands for all that neither labels nor source know."""
        if are_ids(output) and output.size == wanted.size:
            known: Array = np.minimum(output.reshape(wanted.shape), self.classes - 1)
            return known
        if output.shape == wanted.shape or output.shape[-1] == 1:
            return (output.reshape(wanted.shape) > self.threshold).astype(np.int64)
        best: Array = output.argmax(axis=-1)
        return best

    def value(self, sums: Floats) -> Floats:
        right, wrong, missed = np.split(sums, 3, axis=-1)
        if not self.macro:
            right, wrong, missed = (part.sum(axis=-1) for part in (right, wrong, missed))
            return _ratio(2 * right, 2 * right + wrong + missed)
        each = _ratio(2 * right, 2 * right + wrong + missed)[..., list(self.present)]
        mean: Floats = each.mean(axis=-1)
        return mean


@dataclass(frozen=True, kw_only=True)
class Ndcg:
    """Of each sample's own list. :func:`by_query` makes lists of samples that answer one number."""

    depth: int = DEPTH

    def marks(self, output: Array, labels: Sequence[Any]) -> Floats:
        lists = output.reshape(len(labels), -1)
        found = [ndcg(scores, np.asarray(gains, np.float64).ravel(), self.depth)
                 for scores, gains in zip(lists, labels, strict=True)]
        return np.array(found, np.float64).reshape(-1, 2)

    def value(self, sums: Floats) -> Floats:
        return _ratio(sums[..., 0], sums[..., 1])


@dataclass(frozen=True, kw_only=True)
class Wer:
    vocabulary: Vocabulary

    def marks(self, output: Array, labels: Sequence[Any]) -> Floats:
        found = []
        for best, label in zip(output.argmax(axis=-1), labels, strict=True):
            wanted = str(label).split()
            found.append((word_errors(wanted, self.vocabulary.text(best).split()), len(wanted)))
        return np.array(found, np.float64).reshape(-1, 2)

    def value(self, sums: Floats) -> Floats:
        return _ratio(sums[..., 0], sums[..., 1])


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """Mean absolute error, or with ``squared`` the root of the mean squared one."""

    squared: bool

    def marks(self, output: Array, labels: Sequence[Any]) -> Floats:
        wanted = np.stack([np.asarray(label, np.float64) for label in labels]).reshape(len(labels), -1)
        off = np.abs(output.reshape(len(labels), -1).astype(np.float64) - wanted)
        return np.stack([(off ** 2 if self.squared else off).sum(axis=1), np.full(len(labels), off.shape[1], float)],
                        axis=1)

    def value(self, sums: Floats) -> Floats:
        mean = _ratio(sums[..., 0], sums[..., 1])
        return np.sqrt(mean) if self.squared else mean


def ndcg(scores: Array, gains: Floats, depth: int = DEPTH) -> tuple[float, float]:
    """Of one list, and 1; or two zeros where nothing is relevant. Entries of equal scores keep their order."""
    discounts = 1 / np.log2(np.arange(2, min(depth, len(gains)) + 2))
    worth = 2.0 ** gains - 1
    ideal = float((np.sort(worth)[::-1][:len(discounts)] * discounts).sum())
    if ideal <= 0:
        return 0.0, 0.0
    order = np.argsort(-scores.astype(np.float64), kind="stable")[:len(discounts)]
    return float((worth[order] * discounts).sum()) / ideal, 1.0


def word_errors(wanted: Sequence[str], heard: Sequence[str]) -> int:
    """Fewest words to insert, delete or exchange."""
    row = list(range(len(heard) + 1))
    for index, word in enumerate(wanted, start=1):
        before, row[0] = row[0], index
        for place, other in enumerate(heard, start=1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (word != other))
    return row[-1]


def _per_sample(positions: Array) -> Floats:
    summed: Floats = positions.reshape(len(positions), -1).sum(axis=1).astype(np.float64)
    return summed


def _by_sample(positions: Array, rows: Array, samples: int) -> Any:
    """Sums of ``[positions, classes]`` by the sample that each position is of."""
    where, classes = np.nonzero(positions)
    shape = (samples, positions.shape[1])
    return sparse.csr_array((np.ones(len(where)), (rows[where], classes)), shape=shape)


def _ratio(above: Floats, below: Floats) -> Floats:
    """0 where there is nothing to divide by."""
    found: Floats = np.divide(above, below, out=np.zeros_like(above, dtype=np.float64), where=below > 0)
    return found

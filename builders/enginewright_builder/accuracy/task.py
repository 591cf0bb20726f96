"""The gate on labels: is a candidate as good at its task as the source model, and how sure is that?

Both are marked on the same samples, and what the candidate *loses* against the source must be at most the tolerance
with 95 % confidence: a test of non-inferiority on pairs. Its bound is the one that the gate has for agreement (see
``bounds``): the metrics of both under the same Dirichlet(1, …, 1) weights over the samples, and one more sample, never
seen, on which everything is lost.

* For a metric that is a mean over samples, such as accuracy, that is Gaffke's bound (2005) on the mean of the paired
  differences; ``n`` samples on which both are equally right prove a loss of at most ``1 − α^(1/n)``, about ``3/n``.
* For others, such as F1, it is Rubin's (1981) Bayesian bootstrap of the pairs, with the same unseen sample.
* Average precision is no function of sums; its bound is the same bootstrap, of detections ranked by score under the
  same weights of images.
* The unit that is weighed is a sample, or a query with all its samples.
* A loss is in points: 0.01 is one of a hundred. Of ``mae`` and ``rmse``, which have no scale, it is a share of the
  source's own error. No bound assumes nothing of errors that have no limit (Bahadur and Savage 1956): what is unseen
  counts as twice the source's error there.

That the bound covers is measured in ``tests/unit/builder_core/test_task_bounds.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from enginewright_builder.accuracy import task_metrics
from enginewright_builder.accuracy.average_precision import AveragePrecision
from enginewright_builder.accuracy.bounds import Floats, drawn_lower_bound, drawn_sums
from enginewright_builder.accuracy.groups import places_of
from enginewright_builder.accuracy.label_fit import (
    BY_CLASS,
    TOP,
    check_best,
    check_detection,
    check_fit,
    check_no_detection,
    one_number,
    output_of,
    several,
)
from enginewright_builder.accuracy.rules import samples_needed
from enginewright_builder.accuracy.scores import usual_threshold
from enginewright_builder.accuracy.task_metrics import F1, Among, Deviation, Ndcg, TaskMetric, TopK, Wer
from enginewright_builder.accuracy.task_rules import (
    CLASSIFICATION,
    DETECTION,
    ERRORS,
    F1_METRICS,
    IGNORED,
    NDCG,
    RELATIVE,
    WER,
)
from enginewright_builder.accuracy.vocabulary import Vocabulary
from enginewright_builder.best_few import are_best, indices_of
from enginewright_builder.contract import TaskFigure, TaskRequest
from enginewright_builder.ids import are_ids
from enginewright_builder.same_boxes import BOXES, LABELS, SCORES, are_detections
from enginewright_builder.tensors import Array, Tensors

_SMALLEST = 1e-300
# Of COCO's mAP.
_OVERLAPS = tuple(0.5 + 0.05 * step for step in range(10))


@dataclass(frozen=True, kw_only=True)
class Labels:
    """One of each sample, in the order of the evaluation's batches; ``queries`` likewise, or empty."""

    request: TaskRequest
    values: tuple[Any, ...] = field(repr=False)
    queries: tuple[str, ...] = field(default=(), repr=False)
    vocabulary: Vocabulary | None = None


class Exam:
    """The source model's own marks, which candidates' are held against. Where an output has the scores of the best few
    classes, the classes beside it are what is marked."""

    def __init__(self, labels: Labels, references: Sequence[Tensors]) -> None:
        """Raises :class:`UserError` ``TaskInvalid`` or ``LabelsInvalid`` where metric, labels and answers do not
        fit."""
        self.request, self._labels = labels.request, labels
        named = output_of(labels.request, list(references[0]))
        self._detects = check_detection(labels.request, named, list(references[0]))
        if not self._detects and named in (SCORES, LABELS, BOXES) and are_detections(references[0]):
            check_no_detection(labels.request, named)
        best = next((name for name in (named, indices_of(named)) if are_best(name, references[0])), "")
        self.output, self._of_best = best or named, bool(best)
        whole = [batch[self.output] for batch in references]
        self._starts = [int(start) for start in np.cumsum([0, *(len(one) for one in whole)])]
        for index, one in enumerate(whole):
            if self._detects:
                continue
            if self._of_best:
                check_best(self.request, self.output, one.shape[1], self._part(index), self._starts[index])
            else:
                check_fit(self.request, self.output, one.shape[1:], self._part(index), self._starts[index],
                          whole=are_ids(one))
        self._metric = _metric(labels, list(map(self._marked, whole)), of_best=self._of_best)
        self.source = self.units([self.marks(index, batch) for index, batch in enumerate(references)])

    def marks(self, index: int, batch: Tensors) -> Any:
        """Of the batch of number ``index``."""
        if isinstance(self._metric, AveragePrecision):
            return self._metric.marks(batch, self._part(index))
        output = self._marked(batch[self.output])
        if self._labels.queries:  # ranked once all are there
            scores, relevance = output.reshape(len(output)), np.array(self._part(index), np.float64)
            return np.stack([scores.astype(np.float64), relevance.reshape(len(output))], axis=1)
        return self._metric.marks(output, self._part(index))

    def _marked(self, output: Array) -> Array:
        """Of the best few classes the best one, where the metric is of one."""
        return output[:, :1] if self._of_best and self.request.metric in BY_CLASS else output

    def units(self, parts: Sequence[Any]) -> Any:
        """``[units, figures]``, of what :meth:`marks` gave for each batch in turn."""
        marks = sparse.csr_array(sparse.vstack(parts)) if sparse.issparse(parts[0]) else np.concatenate(parts)
        if not self._labels.queries:
            return marks
        return np.array([task_metrics.ndcg(marks[rows, 0], marks[rows, 1]) for rows in self._lists.values()])

    def figure(self, candidate: Any, rows: Array | None = None) -> TaskFigure | None:
        """Of all samples, or those in ``rows``. None where these are too few to prove the tolerance."""
        tolerance = self.request.tolerance
        units = None if rows is None else self._units_of(rows)
        if units is not None and len(units) < samples_needed(tolerance):
            return None
        source = self.source if units is None else self.source[units]
        answered = candidate if units is None else candidate[units]
        both = [self._value(marks) for marks in (source, answered)]
        loss = float(self._loss(np.array(both[:1]), np.array(both[1:]))[0])
        high = max(loss, self._upper(source, answered))
        return TaskFigure(metric=self.request.metric, source=both[0], value=both[1], loss=loss, loss_high=high,
                          max_loss=tolerance)

    def _value(self, marks: Any) -> float:
        if isinstance(self._metric, AveragePrecision):
            return self._metric.value(marks)
        return float(self._metric.value(_summed(marks)))

    def _upper(self, source: Any, answered: Any) -> float:
        """The bound: what is kept is 1 − loss, and nothing of what is unseen."""
        if isinstance(self._metric, AveragePrecision):
            kept = 1 - self._loss(self._metric.drawn(source), self._metric.drawn(answered))
            return 1 - drawn_lower_bound(np.maximum(kept, _SMALLEST)[:, None], len(source))
        both = sparse.csr_array(sparse.hstack([source, answered])) if sparse.issparse(source) else np.hstack(
            [source, answered])
        sums = drawn_sums(both)
        figures = source.shape[1]
        kept = 1 - self._loss(self._metric.value(sums[:, :figures]), self._metric.value(sums[:, figures:]))
        return 1 - drawn_lower_bound(np.maximum(kept, _SMALLEST)[:, None], source.shape[0])

    def _loss(self, source: Floats, answered: Floats) -> Floats:
        if self.request.metric not in ERRORS:
            return source - answered
        worse = answered - source
        if self.request.metric in RELATIVE:
            worse = worse / np.maximum(source, _SMALLEST)
        lost: Floats = np.minimum(worse, 1 / _SMALLEST)
        return lost

    @cached_property
    def _lists(self) -> dict[str, Array]:
        """Places of each query's samples."""
        return places_of(self._labels.queries)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Of each query among the units."""
        return {query: number for number, query in enumerate(self._lists)}

    def _units_of(self, rows: Array) -> Array:
        """A query counts to the group of its samples, which all are of one."""
        if not self._labels.queries:
            return rows
        return np.unique([self._numbers[self._labels.queries[row]] for row in rows])

    def _part(self, index: int) -> Sequence[Any]:
        return self._labels.values[self._starts[index]:self._starts[index + 1]]


def excessive_loss(figure: TaskFigure) -> str:
    """Why it does not pass, in words for a verdict; empty if it does."""
    if figure.loss_high <= figure.max_loss:
        return ""
    kind = " of it" if figure.metric in RELATIVE else ""
    return (f"{figure.metric} on the labels {figure.value:.4f}, the source's {figure.source:.4f}: a loss of "
            f"{figure.loss:.4f}{kind}, at most {figure.loss_high:.4f} with 95 % confidence, and {figure.max_loss:g} is "
            "allowed")


def _summed(marks: Any) -> Floats:
    return np.asarray(marks.sum(axis=0), np.float64).ravel()


def _metric(labels: Labels, answers: Sequence[Array], *, of_best: bool) -> TaskMetric | AveragePrecision:
    task = labels.request
    if task.metric in DETECTION:
        return AveragePrecision(overlaps=(0.5,) if task.metric == "map50" else _OVERLAPS)
    if of_best and task.metric not in BY_CLASS:
        return Among(k=TOP)
    if task.metric == WER:
        assert labels.vocabulary is not None  # the resolve step has looked
        return Wer(vocabulary=labels.vocabulary)
    if task.metric == NDCG:
        return Ndcg()
    if task.metric not in CLASSIFICATION:
        return Deviation(squared=task.metric == "rmse")
    threshold = usual_threshold(answers) if task.threshold is None else task.threshold
    if task.metric not in F1_METRICS:
        return TopK(k=5 if task.metric == "top5" else 1, threshold=threshold)
    shape, label = answers[0].shape[1:], labels.values[0]
    named = are_ids(answers[0]) and answers[0][0].size == np.size(label)
    many = not named and several(task, shape, label)
    classes = _named_classes(labels, answers) if named else _classes(shape, label, many)
    return F1(classes=classes, macro=task.metric == "f1-macro", several=many, threshold=threshold,
              present=_present(labels.values, many))


def _classes(shape: tuple[int, ...], label: Any, several: bool) -> int:
    return 2 if one_number(shape, label) and not several else shape[-1]


def _named_classes(labels: Labels, answers: Sequence[Array]) -> int:
    """As many as labels or source name, and one more: what a candidate names besides is wrong."""
    return 2 + max(*(int(np.max(label, initial=0)) for label in labels.values), *(int(one.max()) for one in answers))


def _present(values: Sequence[Any], several: bool) -> tuple[int, ...]:
    """Classes that the labels have."""
    found = np.concatenate([np.flatnonzero(value) if several else np.ravel(value) for value in values])
    return tuple(int(one) for one in np.unique(found[found != IGNORED]))

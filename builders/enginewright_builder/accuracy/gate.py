"""How close a candidate's answers are to the unquantised reference's, and how sure that is.

Every metric is one score a sample between 0 and 1, 1 for equal answers. A model with several outputs scores by its
worst.

* ``cosine``: of the sample's output, flattened; 0 where it is negative. Of a single number its relative error, where
  one that is smaller than usual is held against the root of the mean square of all.
* ``relative-error``: ``1 − ‖candidate − reference‖ / ‖reference‖``, 0 at the lowest.
* ``top1``: share of positions whose largest entry along the last axis is the same; of a single number, that lie on the
  same side of the threshold (``scores.usual_threshold``).
* ``spearman``: rank correlation of the output's entries, 0 where it is negative; where an output has fewer than three,
  of each entry over the samples instead. Where its size varies, samples with fewer have no score.
* a metric of the user's (``accuracy_metrics.py``).

Outputs that are numbers of classes or tokens are compared by how many are equal, whatever the metric of the four, and
have no guards (``enginewright_builder.ids``). Of the best few classes beside their scores those count that are found
again, but for near ties (``enginewright_builder.best_few``). Of detections labels and boxes are compared together
(``enginewright_builder.same_boxes``).

The gate asks that the *lower bound* of the mean (``accuracy_bounds.py``), not the mean, reaches ``1 − tolerance``: few
samples prove little. It also asks for what a metric may be blind to: answers of the same names and shapes, no NaN or
infinity, and for the four metrics the guards of ``accuracy_guards.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from enginewright_builder.accuracy.bounds import mean_lower_bound, rank_correlation_lower_bound
from enginewright_builder.accuracy.groups import Groups
from enginewright_builder.accuracy.guards import MAX_DROWNED, OutputGuard, magnitude_asked
from enginewright_builder.accuracy.rules import samples_needed
from enginewright_builder.accuracy.scores import (
    MIN_RANKS,
    SCORES,
    Floats,
    Usual,
    across_samples,
    entries,
    norms,
    rows,
    usual_of,
)
from enginewright_builder.accuracy.task import Exam, excessive_loss
from enginewright_builder.contract import GroupFigure, TaskFigure
from enginewright_builder.errors import UserError
from enginewright_builder.names import have_guards, share_of_names
from enginewright_builder.tensors import Array, Tensors

_ENTRIES_AT_ONCE = 8_000_000


class Metric(Protocol):
    """A metric of the user's: scores ``[batch]`` of a batch's answers, 1 for equal ones."""

    @property
    def name(self) -> str: ...

    def __call__(self, reference: Tensors, candidate: Tensors) -> Array: ...


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What is asked beside agreement over all samples. ``tolerance`` is agreement's, for groups."""

    exam: Exam | None = None
    groups: Groups | None = None
    tolerance: float = 0.0


_NOTHING = Beside()


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """``value`` is the mean score, ``low`` its one-sided 95 % lower bound. ``finite`` is False where the candidate
    answered NaN or infinity; ``mismatch`` says where its answers have another name or shape than the reference's.

    ``broken`` is then the batch and the sample in it, and ``layer`` the first layer that shows it, where known.

    ``magnitude_low`` and ``drowned`` are the worst output's guards, ``scale`` the size of that output's answers beside
    the reference's. ``untold`` is what no guard could tell from these samples, in words for a verdict. ``task`` and
    ``groups`` are there where they were asked for; ``by`` is what the groups have in common. ``batch`` is how many
    samples each call held, 0 where the engine is one for every batch.
    """

    metric: str
    value: float
    low: float
    samples: int
    finite: bool = True
    mismatch: str = ""
    broken: tuple[int, int] = (0, 0)
    layer: str = ""
    magnitude_low: float = 1.0
    scale: float = 1.0
    drowned: float = 0.0
    untold: str = ""
    scores: tuple[float, ...] = field(default=(), repr=False)
    task: TaskFigure | None = None
    groups: tuple[GroupFigure, ...] = ()
    by: str = ""
    batch: int = 0

    def passes(self, tolerance: float) -> bool:
        return not self.refusal(tolerance)

    def refusal(self, tolerance: float) -> str:
        """Why it does not pass, in words for a verdict; empty if it does."""
        why = self._refusal(tolerance)
        return f"in batches of {self.batch} {why}" if why and self.batch else why

    def _refusal(self, tolerance: float) -> str:
        if self.mismatch:
            return self.mismatch
        if not self.finite:
            where = f"; the first layer that does is {self.layer}" if self.layer else ""
            return f"answers NaN or infinity where the source does not{where}"
        if not self.low >= 1.0 - tolerance:
            return f"mean {self.metric} {self.value:.4f}, lower bound {self.low:.4f} < {1 - tolerance:.4g}"
        if not self.magnitude_low >= magnitude_asked(tolerance):
            return (f"its answers are of another size than the source's ({self.scale:.3g} times over all), to which "
                    f"{self.metric} is blind")
        if not self.drowned <= MAX_DROWNED:
            return (f"its error is {self.drowned:.2g} of what sets samples apart (at most {MAX_DROWNED:g}): it hardly "
                    "tells one sample from another")
        return (excessive_loss(self.task) if self.task else "") or self._refusing_group(tolerance)

    def _refusing_group(self, tolerance: float) -> str:
        """What fails in the first group that does; empty where none does."""
        for one in self.groups:
            differs = ""
            if one.accuracy_low is not None and not one.accuracy_low >= 1.0 - tolerance:
                differs = (f"mean {self.metric} {one.accuracy:.4f}, lower bound {one.accuracy_low:.4f} < "
                           f"{1 - tolerance:.4g}")
            if why := "; ".join(filter(None, (differs, excessive_loss(one.task) if one.task else ""))):
                return f"in the group {self.by}={one.group} ({one.samples} samples) {why}"
        return ""


def least(accuracies: Sequence[Accuracy]) -> Accuracy:
    """Of engines that serve together, or of one in batches of several sizes: the lowest agreement, with the largest
    loss on labels. At least one."""
    lowest = min(accuracies, key=lambda one: one.low)
    worst = max(accuracies, key=lambda one: one.task.loss_high if one.task else 0.0)
    return replace(lowest, task=worst.task)


def compare(metric: str | Metric, references: Sequence[Tensors], candidates: Iterable[Tensors],
            beside: Beside = _NOTHING) -> Accuracy:
    """Both in batches of the same samples in the same order; candidates are looked at one batch at a time.

    Raises :class:`UserError` ``ReferenceNotFinite``, ``EvaluationEmpty``, or what a user's metric raises.
    """
    comparison, marks = _Comparison(metric, references), list[Any]()
    for index, (reference, candidate) in enumerate(zip(references, candidates, strict=True)):
        nothing = Accuracy(metric=comparison.name, value=0.0, low=0.0, samples=comparison.count)
        if mismatch := _mismatch(reference, candidate):
            return replace(nothing, mismatch=mismatch)
        if len(broken := _not_finite(candidate)):
            return replace(nothing, finite=False, broken=(index, int(broken[0])))
        for part, other in _parts(reference, candidate):
            comparison.add(part, other)
        if beside.exam:
            marks.append(beside.exam.marks(index, candidate))
    return _with(beside, comparison, beside.exam.units(marks) if beside.exam else None)


def _with(beside: Beside, comparison: _Comparison, marks: Any) -> Accuracy:
    """``marks`` are None without labels."""
    figure = beside.exam.figure(marks) if beside.exam else None
    found = replace(comparison.result(), task=figure)
    if beside.groups is None:
        return found
    groups = tuple(_group(beside, comparison, marks, name, places) for name, places in beside.groups.rows.items())
    return replace(found, groups=groups, by=beside.groups.by)


def _group(beside: Beside, comparison: _Comparison, marks: Any, name: str, places: Array) -> GroupFigure:
    figures = comparison.figures(places) if len(places) >= samples_needed(beside.tolerance) else []
    on_labels = beside.exam.figure(marks, places) if beside.exam else None
    return GroupFigure(group=name, samples=len(places), task=on_labels,
                       accuracy=min((value for value, _ in figures), default=None),
                       accuracy_low=min((low for _, low in figures), default=None),
                       too_small=not figures or (beside.exam is not None and on_labels is None))


class _Comparison:
    def __init__(self, metric: str | Metric, references: Sequence[Tensors]) -> None:
        usual = usual_answers(references)
        self.count = sum(_samples(batch) for batch in references)
        self.name = metric if isinstance(metric, str) else metric.name
        self._metric, self._usual = metric, usual
        amounts = {name: one for name, one in usual.items() if have_guards(name, references[0])}
        self._guards = {name: OutputGuard(one.of(references[0][name])) for name, one in amounts.items()
                        } if isinstance(metric, str) else {}
        # Spearman alone: outputs too narrow to have ranks within a sample.
        self._narrow = [name for name in amounts if metric == "spearman" and all(
            entries(batch[name]) < MIN_RANKS for batch in references)]
        # With the places of the samples that they are of, counted through all batches.
        self._scores: list[tuple[Array, Array]] = []
        self._columns: dict[tuple[str, int], list[tuple[Array, Floats, Floats]]] = {}
        self._magnitudes: dict[str, list[Floats]] = {name: [] for name in self._guards}
        self._seen = 0

    def add(self, reference: Tensors, candidate: Tensors) -> None:
        places = np.arange(self._seen, self._seen + _samples(reference))
        self._seen += len(places)
        if self._metric in SCORES:
            each = [found for name in self._usual
                    if (found := self._output(name, reference, candidate)) is not None]
            if each:
                self._scores.append((places, np.min(each, axis=0)))
        elif not isinstance(self._metric, str):
            self._scores.append((places, self._metric(reference, candidate)))
        for name, guard in self._guards.items():
            self._magnitudes[name].append(guard.add(reference[name], candidate[name]))
        for name in self._narrow:
            for column, pair in enumerate(zip(rows(reference[name]).T, rows(candidate[name]).T, strict=True)):
                self._columns.setdefault((name, column), []).append((places, *pair))

    def _output(self, name: str, reference: Tensors, candidate: Tensors) -> Floats | None:
        """None where it is ranked across samples instead."""
        one, other = reference[name], candidate[name]
        if (share := share_of_names(name, reference, candidate)) is not None:
            return share
        if self._metric == "spearman" and entries(one) < MIN_RANKS:
            return None
        return SCORES[str(self._metric)](one, other, self._usual[name])

    def figures(self, of: Array | None = None) -> list[tuple[float, float]]:
        """Mean score and its bound, and of Spearman those of each narrow output; of all samples, or of those at the
        places ``of``."""
        scores = _picked(self._scores, of)[0] if self._scores else np.zeros(0)
        figures = [(float(scores.mean()), mean_lower_bound(scores))] if len(scores) else []
        return figures + [_correlation(*_picked(parts, of)) for parts in self._columns.values()]

    def result(self) -> Accuracy:
        scores = _picked(self._scores, None)[0] if self._scores else np.zeros(0)
        figures = self.figures()
        magnitudes = {name: mean_lower_bound(np.concatenate(parts)) for name, parts in self._magnitudes.items()}
        worst = min(magnitudes, key=lambda name: magnitudes[name], default="")
        return Accuracy(
            metric=self.name, value=min(value for value, _ in figures), low=min(low for _, low in figures),
            samples=self.count, scores=tuple(map(float, scores)), magnitude_low=magnitudes.get(worst, 1.0),
            scale=self._guards[worst].scale if worst else 1.0,
            drowned=max((guard.drowned for guard in self._guards.values()), default=0.0), untold=self._untold())

    def _untold(self) -> str:
        names = ", ".join(sorted(name for name, guard in self._guards.items() if not guard.contrasted))
        return names and f"contrast of {names} unknown: no two samples beside each other are of one shape"


def _picked(parts: Sequence[tuple[Array, ...]], of: Array | None) -> list[Array]:
    """Each value of all samples, or of those at the places ``of``; places come first in each part."""
    places, *values = (np.concatenate(side) for side in zip(*parts, strict=True))
    if of is None:
        return values
    wanted = np.isin(places, of)
    return [value[wanted] for value in values]


def _correlation(reference: Array, candidate: Array) -> tuple[float, float]:
    """Coefficient and bound of one entry over all samples that have it."""
    value = across_samples(reference, candidate)
    return value, rank_correlation_lower_bound(value, len(reference))


def usual_answers(references: Sequence[Tensors]) -> dict[str, Usual]:
    """Of each output that has entries. Raises :class:`UserError` ``ReferenceNotFinite`` or
    ``EvaluationEmpty``."""
    for batch in references:
        if len(_not_finite(batch)):
            raise UserError("ReferenceNotFinite", "the source model itself answers NaN or infinity on the evaluation "
                            "data",
                            field="spec.accuracy.evaluation.uri", value="NaN",
                            remedy="give inputs like production's, or mend the model")
    filled = [name for name in (references[0] if references else ())
              if all(entries(batch[name]) for batch in references)]
    if not filled or not any(_samples(batch) for batch in references):
        raise UserError("EvaluationEmpty", "there is no answer to compare", field="spec.accuracy.evaluation.uri",
                        value=len(references), remedy="give samples to which the model answers something")
    return {name: usual_of(batch[name] for batch in references) for name in filled}


def _parts(reference: Tensors, candidate: Tensors) -> Iterator[tuple[Tensors, Tensors]]:
    """A batch in pieces that are compared at once: answers such as a segmentation's are large, and scores take copies
    in float64. Two samples at least, or there is no difference between samples to look at."""
    size = max(2, _ENTRIES_AT_ONCE // max(1, *(entries(array) for array in reference.values())))
    for start in range(0, _samples(reference), size):
        yield ({name: array[start:start + size] for name, array in reference.items()},
               {name: candidate[name][start:start + size] for name in reference})


def _samples(batch: Tensors) -> int:
    return len(next(iter(batch.values())))


def _mismatch(reference: Tensors, candidate: Tensors) -> str:
    """NumPy would broadcast a wrong shape, and judge something else."""
    for name, array in reference.items():
        if name not in candidate:
            return f"does not answer {name}, which the source does"
        if candidate[name].shape != array.shape:
            return f"answers {name} as {list(candidate[name].shape)}, the source as {list(array.shape)}"
    return ""


def _not_finite(batch: Tensors) -> Array:
    """Places of the samples that hold NaN or infinity. Whole numbers never do. Sums and products of a NaN or an
    infinity are one, too: no copy is needed."""
    wrong = [~np.isfinite(norms(array)) for array in batch.values() if array.size and array.dtype.kind not in "iubO"]
    return np.flatnonzero(np.any(wrong, axis=0)) if wrong else np.zeros(0, np.intp)

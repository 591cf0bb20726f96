"""How close a candidate's answers are to the unquantised reference's, and how sure that is.

Every metric is one score a sample, 1 for equal answers. A model with several outputs scores by its worst.

* ``cosine``: of the sample's output, flattened.
* ``relative-error``: ``1 − ‖candidate − reference‖ / ‖reference‖``, 0 at the lowest.
* ``top1``: share of positions whose largest entry along the last axis is the same.
* ``spearman``: rank correlation of the output's entries; where an output has fewer than three, of the samples' values
  instead.

The gate asks that the *lower bound* of the mean, not the mean, reaches ``1 − tolerance``: few samples prove little.

* Agreement (every score 0 or 1): Clopper–Pearson, exact for proportions.
* Other scores pile up near 1 with a tail to the left, where Student's t alone promises too much. So the bound is the
  lower of Student's t and a percentile bootstrap (seeded, 2,000 resamplings); both hold for a mean, and each covers a
  weakness of the other: t knows that few samples hide the tail, the bootstrap sees its shape.
* Correlation over samples: Fisher's z with the variance 1.06 / (n − 3) of Spearman's coefficient (Fieller, Hartley and
  Pearson, 1957).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from enginewright_builder.accuracy_rules import CONFIDENCE, MIN_SAMPLES
from enginewright_builder.engines.base import Array, Tensors
from enginewright_builder.errors import UserError

_RESAMPLES = 2_000
_MATRIX_ENTRIES = 1_000_000
_MIN_RANKS = 3


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """``value`` is the mean score, ``low`` its one-sided 95 % lower bound; ``finite`` is False where the candidate
    answered NaN or infinity to what the reference answers with a number."""

    metric: str
    value: float
    low: float
    samples: int
    finite: bool = True
    scores: tuple[float, ...] = ()

    def passes(self, tolerance: float) -> bool:
        return self.finite and self.low >= 1.0 - tolerance


def compare(metric: str, references: Sequence[Tensors], candidates: Iterable[Tensors]) -> Accuracy:
    """Both in batches of the same samples in the same order. Raises :class:`UserError` ``ReferenceNotFinite``."""
    pairs = list(zip(references, candidates, strict=True))
    _check_reference(references)
    count = sum(len(next(iter(batch.values()))) for batch in references)
    if not all(_finite(batch) for _, batch in pairs):
        return Accuracy(metric=metric, value=0.0, low=0.0, samples=count, finite=False)
    names = list(references[0])
    if metric == "spearman" and any(_entries(references[0][name]) < _MIN_RANKS for name in names):
        return _across_samples(pairs, names)
    score = _SCORES[metric]
    scores = np.concatenate([np.min([score(reference[name], candidate[name]) for name in names], axis=0)
                             for reference, candidate in pairs])
    return Accuracy(metric=metric, value=float(scores.mean()), low=lower_bound(metric, scores), samples=len(scores),
                    scores=tuple(map(float, scores)))


def lower_bound(metric: str, scores: Array) -> float:
    """One-sided 95 % lower bound of the mean of ``scores``; see the module's text for which and why."""
    if metric == "top1" and bool(np.isin(scores, (0.0, 1.0)).all()):
        return clopper_pearson(int(scores.sum()), len(scores))
    return mean_lower_bound(scores)


def clopper_pearson(successes: int, trials: int) -> float:
    """``BetaInv(α; k, n − k + 1)``; with all right it is ``α^(1/n)``."""
    if successes == 0:
        return 0.0
    return float(stats.beta.ppf(1 - CONFIDENCE, successes, trials - successes + 1))


def mean_lower_bound(scores: Array) -> float:
    count = len(scores)
    if count < 2:
        return 0.0
    mean, error = float(scores.mean()), float(scores.std(ddof=1)) / math.sqrt(count)
    student = mean - float(stats.t.ppf(CONFIDENCE, count - 1)) * error
    rng = np.random.default_rng(0)
    # In parts: thousands of samples would otherwise take a matrix of gigabytes.
    at_once = max(1, _MATRIX_ENTRIES // count)
    means = np.concatenate([scores[rng.integers(0, count, (min(at_once, _RESAMPLES - start), count))].mean(axis=1)
                            for start in range(0, _RESAMPLES, at_once)])
    return min(student, float(np.quantile(means, 1 - CONFIDENCE)))


def _across_samples(pairs: Sequence[tuple[Tensors, Tensors]], names: Sequence[str]) -> Accuracy:
    worst = 1.0
    for name in names:
        reference = np.concatenate([_rows(one[name])[:, 0] for one, _ in pairs])
        candidate = np.concatenate([_rows(other[name])[:, 0] for _, other in pairs])
        worst = min(worst, _correlation(reference, candidate))
    count = len(reference)
    if count <= _MIN_RANKS or abs(worst) >= 1:
        low = worst if count >= MIN_SAMPLES else 0.0
    else:
        spread = float(stats.norm.ppf(CONFIDENCE)) * math.sqrt(1.06 / (count - 3))
        low = math.tanh(math.atanh(worst) - spread)
    return Accuracy(metric="spearman", value=worst, low=low, samples=count)


def _check_reference(references: Sequence[Tensors]) -> None:
    for batch in references:
        if not _finite(batch):
            raise UserError("ReferenceNotFinite", "the source model itself answers NaN or infinity on the evaluation "
                            "data",
                            field="spec.accuracy.evaluation.uri", value="NaN",
                            remedy="give inputs like production's, or mend the model")


def _finite(batch: Tensors) -> bool:
    return all(bool(np.isfinite(array).all()) for array in batch.values() if array.dtype.kind == "f")


def _rows(array: Array) -> Array:
    return array.reshape(len(array), -1).astype(np.float64)


def _entries(array: Array) -> int:
    return int(np.prod(array.shape[1:]))


def _cosine(reference: Array, candidate: Array) -> Array:
    one, other = _rows(reference), _rows(candidate)
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    both_zero = ~one.any(axis=1) & ~other.any(axis=1)
    cosine = np.einsum("ij,ij->i", one, other) / np.where(norms == 0, 1.0, norms)
    return np.where(both_zero, 1.0, np.clip(cosine, -1.0, 1.0))


def _relative(reference: Array, candidate: Array) -> Array:
    one, other = _rows(reference), _rows(candidate)
    distance, size = np.linalg.norm(other - one, axis=1), np.linalg.norm(one, axis=1)
    error = np.where(distance == 0, 0.0, distance / np.where(size == 0, 1e-12, size))
    return np.clip(1.0 - error, 0.0, 1.0)


def _top1(reference: Array, candidate: Array) -> Array:
    if reference.ndim == 1 or reference.shape[-1] == 1:
        # One number a sample: its sign is the class.
        same = (reference > 0) == (candidate > 0)
    else:
        same = reference.argmax(axis=-1) == candidate.argmax(axis=-1)
    shares: Array = same.reshape(len(same), -1).mean(axis=1)
    return shares


def _spearman(reference: Array, candidate: Array) -> Array:
    return np.array([_correlation(one, other) for one, other in zip(_rows(reference), _rows(candidate), strict=True)])


def _correlation(one: Array, other: Array) -> float:
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        # Ranks of a constant say nothing: only another constant agrees.
        return 1.0 if np.ptp(one) == np.ptp(other) else 0.0
    return float(stats.spearmanr(one, other).statistic)


_SCORES: dict[str, Callable[[Array, Array], Array]] = {
    "cosine": _cosine, "relative-error": _relative, "top1": _top1, "spearman": _spearman,
}

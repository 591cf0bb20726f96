"""How sure a mean score is: lower confidence bounds that assume nothing of how scores are spread.

Scores lie between 0 and 1. They pile up near 1, with a tail to the left that few samples do not show: a classifier
whose probabilities are saturated scores 1 or 0 by any metric. Student's t and the bootstrap promise too much there:
both say 1 when all samples that were seen score 1, and with 64 samples of an engine that fails on 1 % of inputs
Student's "95 %" bound held in 49 %. What is used instead is Gaffke's bound, the α-quantile of ``Σ wᵢ xᵢ`` with
Dirichlet(1, …, 1) weights over the samples *and one more at 0*: what the unseen may be.

* For agreement (scores of 0 and 1) the weighted mean of ``k`` ones is Beta(k, n − k + 1), so it is the Clopper–Pearson
  bound, and computed as such: by simulation it would be off by what one answer more or less does not change.
* For equal scores it is ``score · α^(1/n)``: about ``3/n`` below. So ``n`` samples never prove more than that.
* For many samples it is as close as Student's t.

Gaffke (2005), "Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative variable";
Learned-Miller and Thomas (2019), "A new confidence interval for the mean of a bounded random variable". That it covers
for every distribution is proven for some and a conjecture for the rest: ``tests/unit/builder_core/
test_accuracy_bounds.py`` measures it for the kinds that matter here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from enginewright_builder.accuracy.rules import CONFIDENCE
from enginewright_builder.tensors import Array

Floats = npt.NDArray[np.float64]

_ALPHA = 1 - CONFIDENCE
_DRAWS = 2_000
# Up to this many samples the draws are kept: candidates of one build are all judged on the same number.
_KEPT_SAMPLES = 4_096
_DRAWS_AT_ONCE = 4_000_000
_HALVINGS = 50
_SMALLEST = 1e-300


def mean_lower_bound(scores: Array) -> float:
    """One-sided 95 % lower bound of the mean of ``scores`` (``[n]``, clipped to 0…1); 0 without samples."""
    clipped = np.clip(np.asarray(scores, np.float64), 0.0, 1.0)
    if not clipped.any():
        return 0.0
    if _right_or_wrong(clipped):
        return float(special.betaincinv(clipped.sum(), len(clipped) - clipped.sum() + 1, _ALPHA))
    return drawn_lower_bound(_shared_out(clipped[None, :]), len(clipped))


def drawn_lower_bound(means: Floats, count: int) -> float:
    """The same of figures that were drawn (``[draws, 1]``, of weights as :func:`drawn_sums` has them) from ``count``
    samples and are 0 of what is unseen."""
    low, high = 0.0, float(means.max())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _chance(means, middle, count)[0] < _ALPHA else (low, middle)
    return low


def _right_or_wrong(scores: Floats) -> bool:
    return bool(np.isin(scores, (0.0, 1.0)).all())


def _chance(means: Floats, mean: float, count: int) -> Floats:
    """How likely the weighted mean is at most ``mean``, by set.

    The weight of the sample at 0 is independent of how the rest is shared out, and ``1 − w₀`` is Beta(n, 1). So, of
    each draw ``M`` of the shared-out mean, ``P((1 − w₀) M ≤ m) = min(1, (m / M)ⁿ)`` exactly, and only ``M`` is
    simulated.
    """
    share = np.minimum(1.0, max(mean, _SMALLEST) / np.maximum(means, _SMALLEST))
    chance: Floats = (share ** count).mean(axis=0)
    return chance


def _shared_out(scores: Floats) -> Floats:
    """``[draws, sets]``: means of ``scores`` by weights drawn from Dirichlet(1, …, 1). Seeded: equal scores, equal
    bounds."""
    return drawn_sums(scores.T)


def drawn_sums(values: Any) -> Floats:
    """``[draws, figures]``: sums of each figure of ``values`` (``[samples, figures]``, an array or a sparse one) by the
    same draws of weights for equal numbers of samples."""
    return np.concatenate([weights @ values for weights in draws(values.shape[0])])


def draws(count: int) -> Iterator[Floats]:
    """Weights of ``count`` samples, ``[draws, count]`` in parts; the same for equal numbers."""
    if count <= _KEPT_SAMPLES:
        yield _weights(count)
        return
    rng, at_once = np.random.default_rng(0), max(1, _DRAWS_AT_ONCE // count)
    for start in range(0, _DRAWS, at_once):
        yield _normalised(rng.standard_exponential((min(at_once, _DRAWS - start), count)))


@functools.lru_cache(maxsize=8)
def _weights(count: int) -> Floats:
    return _normalised(np.random.default_rng(0).standard_exponential((_DRAWS, count)))


def _normalised(draws: Floats) -> Floats:
    weights: Floats = draws / draws.sum(axis=1, keepdims=True)
    return weights


def rank_correlation_lower_bound(coefficient: float, count: int) -> float:
    """For Spearman's coefficient over ``count`` samples: Fisher's z with Bonett and Wright's (2000) variance
    ``(1 + ρ²/2) / (n − 3)``, and never more than ``n`` samples prove of any score."""
    most = _ALPHA ** (1 / count) if count else 0.0
    if count <= 3:
        return min(coefficient, 0.0)
    if abs(coefficient) >= 1:
        return min(coefficient, most)
    spread = float(special.ndtri(CONFIDENCE)) * math.sqrt((1 + coefficient ** 2 / 2) / (count - 3))
    return min(math.tanh(math.atanh(coefficient) - spread), most)

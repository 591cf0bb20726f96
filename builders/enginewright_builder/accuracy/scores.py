"""One score a sample between 0 and 1, 1 for equal answers: what the metrics' names mean.

Arrays are ``[batch, …]``; every function takes the reference's, the candidate's, and what the output usually is, and
gives ``[batch]``. A sample that is zero, or next to it, has no direction and no relative error: it is held against the
typical size instead.

A single number has no direction: the cosine of two is 1 whatever they are, as long as their signs agree. So ``cosine``
takes the relative error of it, where one that is below its usual level is held against that level: of probabilities
most may be next to 0, and what counts is how far off they are of all that the model says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from enginewright_builder.system import available_cpus
from enginewright_builder.tensors import Array

T = TypeVar("T")
Floats = npt.NDArray[np.float64]



@dataclass(frozen=True, kw_only=True)
class Usual:
    """Of one output over the reference's samples: ``size`` is the median of their norms that are not 0, ``level`` the
    root of their norms' mean square. Where an answer is one number, ``threshold`` divides yes from no."""

    size: float = 0.0
    level: float = 0.0
    threshold: float = 0.0

    def of(self, answers: Array) -> float:
        """What ``answers`` are at least held against as a size: of single numbers, most of which may be next to
        nothing, the level."""
        return self.level if entries(answers) == 1 else self.size


Score = Callable[[Array, Array, Usual], Floats]

# Of numbers between 0 and 1, and of any other.
_HALF, SIGN = 0.5, 0.0
# Below this share of the typical size an answer counts as zero.
NEXT_TO_ZERO = 1e-3
_SMALLEST = 1e-300
# Fewer entries than this have no ranks worth comparing: they are ranked across the samples instead.
MIN_RANKS = 3
# Entries of one block: 256 KiB in float64. Of larger ones the allocator gives each block's memory back, to be faulted
# in again by the next: twice the time.
_BLOCK = 1 << 15
# More threads than this wait for memory.
_THREADS = 8


def of_one_number(array: Array) -> bool:
    """Whether each position, or each sample, has one number instead of one for each class."""
    return array.ndim == 1 or array.shape[-1] == 1


def usual_threshold(answers: Iterable[Array]) -> float:
    """0.5 where all answers lie between 0 and 1, as probabilities do, else 0."""
    return _HALF if all(array.size == 0 or (array.min() >= 0 and array.max() <= 1) for array in answers) else SIGN


class Seen:
    """One output's answers, batch by batch, of which it keeps the norms alone: what they usually are, by those that
    are finite. Texts have no size."""

    def __init__(self) -> None:
        self._sizes, self._thresholds = list[Floats](), list[float]()

    def add(self, answers: Array) -> None:
        if answers.dtype.kind == "O":
            return
        sizes = norms(answers)
        self._sizes.append(sizes[np.isfinite(sizes)])
        finite = answers[np.isfinite(answers)]
        self._thresholds.append(usual_threshold([finite]) if of_one_number(answers) else SIGN)

    @property
    def usual(self) -> Usual:
        sizes = np.concatenate(self._sizes) if self._sizes else np.zeros(0)
        return Usual(size=typical_norm(sizes), level=root_mean_square(sizes),
                     threshold=min(self._thresholds, default=SIGN))


def usual_of(answers: Iterable[Array]) -> Usual:
    """Of one output's batches."""
    seen = Seen()
    for batch in answers:
        seen.add(batch)
    return seen.usual


def typical_norm(sizes: Floats) -> float:
    """Median of the norms that are not 0; 0 where all are."""
    some = sizes[sizes > 0]
    return float(np.median(some)) if len(some) else 0.0


def root_mean_square(sizes: Floats) -> float:
    """0 of none."""
    return float(np.sqrt(np.mean(np.square(sizes)))) if len(sizes) else 0.0


def rows(array: Array) -> Floats:
    """``[batch, entries]`` in float64."""
    flat: Floats = array.reshape(len(array), -1).astype(np.float64)
    return flat


def entries(array: Array) -> int:
    return int(np.prod(array.shape[1:]))


def by_blocks(work: Callable[[Array, Array], T], one: Array, other: Array) -> list[T]:
    """What ``work`` makes of each block of entries of both, ``[batch, entries]``, in their order. Blocks are so small
    that the processor's cache holds them: fresh memory for whole answers, such as a segmentation's, takes ten times as
    long as the arithmetic. Several are shared out among threads, as NumPy lets go of the interpreter's lock."""
    one, other = (array.reshape(len(array), -1) for array in (one, other))
    size = max(1, _BLOCK // max(1, len(one)))
    starts = range(0, one.shape[1], size)

    def some(part: range) -> list[T]:
        return [work(one[:, start:start + size], other[:, start:start + size]) for start in part]

    # To ask for processors reads files, which takes longer than most answers' only block.
    threads = min(len(starts), _THREADS, available_cpus()) if len(starts) > 1 else 1
    if threads < 2:
        return some(starts)
    each = -(-len(starts) // threads)
    parts = [starts[place:place + each] for place in range(0, len(starts), each)]
    return [made for found in _threads().map(some, parts) for made in found]


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(_THREADS, available_cpus()), thread_name_prefix="scores")


def products(one: Array, other: Array) -> Floats:
    """Of each sample's two answers, summed in float64 without a copy in it."""
    parts = by_blocks(_products, one, other)
    found: Floats = np.sum(parts, axis=0) if parts else np.zeros(len(one))
    return found


def _products(one: Array, other: Array) -> Floats:
    found: Floats = np.einsum("ij,ij->i", one, other, dtype=np.float64, casting="unsafe")
    return found


def norms(array: Array) -> Floats:
    """Of each sample."""
    found: Floats = np.sqrt(products(array, array))
    return found


def cosine(reference: Array, candidate: Array, usual: Usual) -> Floats:
    if entries(reference) == 1:
        return _relative(reference, candidate, usual.level)
    here, there = norms(reference), norms(candidate)
    zero = NEXT_TO_ZERO * usual.size
    product = here * there
    found = products(reference, candidate) / np.where(product == 0, 1.0, product)
    return np.where((here <= zero) & (there <= zero), 1.0, np.clip(found, 0.0, 1.0))


def relative_error(reference: Array, candidate: Array, usual: Usual) -> Floats:
    return _relative(reference, candidate, NEXT_TO_ZERO * usual.size)


def _relative(reference: Array, candidate: Array, least: float) -> Floats:
    """An answer below ``least`` is held against that."""
    parts = by_blocks(_squared_error, reference, candidate)
    distance = np.sqrt(np.sum(parts, axis=0) if parts else np.zeros(len(reference)))
    size = np.maximum(norms(reference), max(least, _SMALLEST))
    scores: Floats = np.clip(1.0 - distance / size, 0.0, 1.0)
    return scores


def _squared_error(reference: Array, candidate: Array) -> Floats:
    error = candidate.astype(np.float64) - reference.astype(np.float64)
    return _products(error, error)


def top1(reference: Array, candidate: Array, usual: Usual) -> Floats:
    if of_one_number(reference):
        same = (reference > usual.threshold) == (candidate > usual.threshold)
    else:
        same = reference.argmax(axis=-1) == candidate.argmax(axis=-1)
    shares: Floats = same.reshape(len(same), -1).mean(axis=1)
    return shares


def spearman(reference: Array, candidate: Array, usual: Usual) -> Floats:
    """Rank correlation of a sample's entries, of which there must be at least :data:`MIN_RANKS`."""
    from scipy import stats  # takes half a second, which only this metric needs

    one, other = (_centred(stats.rankdata(rows(array), axis=1)) for array in (reference, candidate))
    flat, also_flat = ~one.any(axis=1), ~other.any(axis=1)
    spread = np.sqrt((one ** 2).sum(axis=1) * (other ** 2).sum(axis=1))
    found = (one * other).sum(axis=1) / np.where(spread == 0, 1.0, spread)
    # Ranks of a constant say nothing: only another constant agrees.
    return np.where(flat | also_flat, (flat & also_flat).astype(np.float64), np.clip(found, 0.0, 1.0))


def across_samples(reference: Array, candidate: Array) -> float:
    """Spearman's coefficient of one number over all samples; both ``[samples]``."""
    return float(spearman(reference[None, :], candidate[None, :], Usual())[0])


def _centred(ranks: Array) -> Floats:
    centred: Floats = ranks - ranks.mean(axis=1, keepdims=True)
    return centred


SCORES: dict[str, Score] = {"cosine": cosine, "relative-error": relative_error, "top1": top1, "spearman": spearman}

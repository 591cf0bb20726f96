"""The best few classes beside their scores: outputs ``NAME``, ``[batch, k]`` from the best on, and ``NAME_indices``,
``int32``, the classes that these scores are of.

In lower precision scores that lie close together change places, so that a comparison place by place is too harsh; and
a comparison of scores alone is blind to wrong classes. So a class is found where it stands at a place to which the
source gives as good a score as to the class itself, but for a near tie. What the source has not among its best few is
never found: there is no score of it to hold it against. With ``k`` of 1 this is how many are equal, as for ``argMax``.
The scores are compared as any output is.

By name and type alone, as :mod:`enginewright_builder.ids` does.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from enginewright_builder.contract import INDICES
from enginewright_builder.tensors import Array, Tensors

_TYPE = "int32"
# Of the largest score of an answer: what a served answer, too, may be off by from the engine's (``triton/prove.py``).
NEAR_TIE = 0.01


def indices_of(output: str) -> str:
    """How the output is called that has the classes of the scores ``output``."""
    return f"{output}{INDICES}"


def are_best(name: str, answers: Tensors) -> bool:
    """Whether output ``name`` has the classes of scores beside it."""
    classes, scores = answers.get(name), answers.get(name.removesuffix(INDICES))
    if classes is None or scores is None or not name.endswith(INDICES) or str(classes.dtype) != _TYPE:
        return False
    return scores.dtype.kind == "f" and scores.ndim == 2 and scores.shape == classes.shape


def found_share(name: str, reference: Tensors, got: Array) -> npt.NDArray[np.float64]:
    """Of each sample's classes ``reference[name]`` that ``got`` has as well, in as good a place; ``[batch]``."""
    wanted = reference[name]
    scores = reference[name.removesuffix(INDICES)].astype(np.float64)
    each = zip(wanted, scores, got.reshape(wanted.shape), strict=True)
    return np.array([_found(*row) for row in each], np.float64)


def _found(wanted: Array, scores: Array, got: Array) -> float:
    order = np.argsort(got, kind="stable")
    at = np.searchsorted(got, wanted, sorter=order)
    place = order[np.minimum(at, len(order) - 1)]
    there = scores[place]
    largest = np.abs(scores).max(where=np.isfinite(scores), initial=0.0)
    with np.errstate(invalid="ignore"):  # infinity less infinity
        near = (there == scores) | (np.abs(there - scores) <= NEAR_TIE * largest)
    return float(np.mean((got[place] == wanted) & near))

"""Scores of the newest sampled requests by the accuracy gate's own metric, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from enginewright_builder.accuracy.gate import Metric
from enginewright_builder.accuracy.guards import magnitude_asked
from enginewright_builder.accuracy.scores import (
    MIN_RANKS,
    NEXT_TO_ZERO,
    SCORES,
    Floats,
    Usual,
    entries,
    norms,
    root_mean_square,
    rows,
    typical_norm,
)
from enginewright_builder.names import share_of_names
from enginewright_builder.tensors import Array, Tensors

# The gate holds the mean of its magnitudes to a limit, of which this is the laxest: one answer may be further out.
LEAST_MAGNITUDE = magnitude_asked(1.0)


class Window:
    """The last ``length`` scores, each the mean of one request's rows: rows of a request have too much in common to
    count as several. ``typical`` is the norm of each output on the evaluation data, where that is known.

    A row that is NaN or, for the gate's four metrics, of another size than the source's scores 0, as does a request
    whose tensors have other names or shapes. A row to which the source answers next to nothing has no direction, class
    or ranks: it is held against the typical norm. Spearman leaves out outputs that are too narrow for ranks of their
    own, and the gate's guard of contrast is left out: both look at how samples differ, and live requests may be all
    alike, where small noise drowns that. Of a model that is not ``batched`` a request is one row."""

    def __init__(self, metric: str | Metric, length: int, usual: Mapping[str, Usual] | None = None, *,
                 batched: bool = True) -> None:
        self._metric, self._usual, self._batched = metric, usual or {}, batched
        self.scores: deque[float] = deque(maxlen=length)

    def add(self, reference: Tensors, answer: Tensors) -> bool:
        """The source model's answers and the engine's to the same request; whether there was anything to compare.
        Raises what a user's metric raises."""
        score = self.score(reference, answer)
        if score is not None:
            self.scores.append(score)
        return score is not None

    def score(self, reference: Tensors, answer: Tensors) -> float | None:
        """Of one request, 0 to 1, which is not kept; None where there is nothing to compare."""
        if not self._batched:
            reference, answer = ({name: array[None] for name, array in one.items()} for one in (reference, answer))
        sound = _finite(reference)  # where the source itself answers NaN there is nothing to hold anything against
        if not sound.any():
            return None
        if any(name not in answer or answer[name].shape != array.shape for name, array in reference.items()):
            return 0.0
        kept = sound & _finite({name: answer[name] for name in reference})
        if not kept.any():
            return 0.0
        of_kept = self._rows({name: array[kept] for name, array in reference.items()},
                             {name: answer[name][kept] for name in reference})
        return None if of_kept is None else float(of_kept.sum() / sound.sum())

    def _rows(self, reference: Tensors, answer: Tensors) -> Array | None:
        """``[batch]``; of several outputs the worst counts."""
        if not isinstance(self._metric, str):
            return np.clip(self._metric(reference, answer), 0.0, 1.0)
        each = [found for name in reference
                if (found := self._output(name, reference, answer)) is not None]
        return np.min(each, axis=0) if each else None

    def _output(self, name: str, references: Tensors, answers: Tensors) -> Floats | None:
        reference, answer = references[name], answers[name]
        if (share := share_of_names(name, references, answers)) is not None:
            return share
        metric, here, there = str(self._metric), norms(reference), norms(answer)
        usual = self._usual.get(name, Usual())
        usual = usual if usual.size else replace(usual, size=typical_norm(here), level=root_mean_square(here))
        typical = usual.of(reference)
        if not typical or (metric == "spearman" and entries(reference) < MIN_RANKS):
            return None
        magnitude = 1 - np.abs(there - here) / np.maximum(np.maximum(here, there), typical)
        scores = np.where(magnitude < LEAST_MAGNITUDE, 0.0, SCORES[metric](reference, answer, usual))
        nothing = here <= NEXT_TO_ZERO * typical
        away = np.linalg.norm(rows(answer) - rows(reference), axis=1) / typical
        found: Floats = np.clip(np.where(nothing, 1 - away, scores), 0.0, 1.0)
        return found


def _finite(tensors: Tensors) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """``[batch]``."""
    count = len(next(iter(tensors.values())))
    every = [np.isfinite(array.reshape(count, -1)).all(axis=1) if array.dtype.kind == "f" else np.ones(count, np.bool_)
             for array in tensors.values()]
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.logical_and.reduce(every)
    return found

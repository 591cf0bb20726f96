"""Scores of the newest sampled answers by the accuracy gate's own metric, in bounded memory."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from enginewright_builder.accuracy.gate import Metric, compare
from enginewright_builder.accuracy.guards import magnitude_asked
from enginewright_builder.engines.base import Tensors
from enginewright_builder.errors import UserError

# Rows that are scored together: next to nothing is judged by the others' size, ranks over samples need some.
BLOCK: Final = 16
# Answers that wait for others of their shape. The largest group is scored as it is where they are more.
MOST_WAITING: Final = 16 << 20
Shape = tuple[tuple[str, tuple[int, ...]], ...]


class _Group:
    """Answers of one shape that wait."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Tensors, Tensors]] = []
        self.rows = self.size = 0

    def add(self, reference: Tensors, answer: Tensors) -> None:
        self.pairs.append((reference, answer))
        self.rows += len(next(iter(reference.values())))
        self.size += sum(array.nbytes for one in (reference, answer) for array in one.values())


class Window:
    """The last ``length`` scores. An answer that is NaN, of another shape, or of a size that the gate would refuse,
    scores 0: such are wrong whatever the metric is blind to. The gate's guard of contrast is left out: live requests
    may be all alike, and small noise would then drown what sets them apart."""

    def __init__(self, metric: str | Metric, tolerance: float, length: int) -> None:
        self._metric, self._tolerance = metric, tolerance
        self.scores: deque[float] = deque(maxlen=length)
        self._waiting: dict[Shape, _Group] = {}

    def add(self, reference: Tensors, answer: Tensors) -> None:
        """The source model's answers and the engine's to the same request. Raises what a user's metric raises."""
        shape: Shape = tuple((name, array.shape[1:]) for name, array in sorted(reference.items()))
        if any(name not in answer or answer[name].shape != array.shape for name, array in reference.items()):
            self.scores.extend([0.0] * len(next(iter(reference.values()))))
            return
        group = self._waiting.setdefault(shape, _Group())
        group.add(reference, {name: answer[name] for name in reference})
        if group.rows >= BLOCK:
            self._score(shape)
        while sum(one.size for one in self._waiting.values()) > MOST_WAITING:
            self._score(max(self._waiting, key=lambda one: self._waiting[one].size))

    def _score(self, shape: Shape) -> None:
        group = self._waiting.pop(shape)
        reference, answer = ({name: np.concatenate([pair[side][name] for pair in group.pairs])
                              for name, _ in shape} for side in (0, 1))
        sound = _finite(reference)  # where the source itself answers NaN there is nothing to hold anything against
        kept = sound & _finite(answer)
        self.scores.extend([0.0] * int((sound & ~kept).sum()))
        if kept.any():
            self.scores.extend(self._block({name: array[kept] for name, array in reference.items()},
                                           {name: array[kept] for name, array in answer.items()}))

    def _block(self, reference: Tensors, answer: Tensors) -> list[float]:
        rows = len(next(iter(reference.values())))
        try:
            found = compare(self._metric, [reference], [answer])
        except UserError as error:
            if error.reason == "EvaluationEmpty":
                return []
            raise
        if isinstance(self._metric, str) and abs(found.scale - 1) > 1 - magnitude_asked(self._tolerance):
            return [0.0] * rows
        # Spearman of outputs that are too narrow for ranks of their own has one value for all.
        return [min(max(score, 0.0), 1.0) for score in found.scores or [found.value] * rows]


def _finite(tensors: Tensors) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """``[batch]``."""
    rows = len(next(iter(tensors.values())))
    every = [np.isfinite(array.reshape(rows, -1)).all(axis=1) if array.dtype.kind == "f" else np.ones(rows, np.bool_)
             for array in tensors.values()]
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.logical_and.reduce(every)
    return found

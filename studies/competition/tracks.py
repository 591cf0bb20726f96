"""Where arms run in a replay: made-up machines with the noise of real ones, and recorded times drawn again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from enginewright_builder.tensors import Array

# Milliseconds measured on an H200 (DESIGN: eager and compiled PyTorch, TensorRT with one wide profile and with one for
# the batch), and rivals close to the best, which real ladders have: the next precision, the same with another profile.
MEASURED = {
    "ResNet-50 @1": (2.35, 2.78, 1.42, 0.466, 0.572, 0.533, 0.369),
    "ResNet-50 @32": (5.29, 4.01, 1.69, 1.502, 1.140, 1.097),
    "ViT-B/16 @1": (2.62, 0.666, 0.756, 0.685),
    "ViT-B/16 @32": (4.75, 3.381, 3.298, 3.259),
    "BERT-base @1": (3.32, 3.32, 1.92, 0.592, 0.826, 0.748),
    "BERT-base @32": (18.90, 3.20, 1.98, 1.875, 2.022, 1.960),
}
RIVALS = (1.01, 1.02, 1.04, 1.06)
# Slow patches: how often one begins, how many rounds it lasts on average, how much slower all are meanwhile; an arm
# feels more or less of it, as memory and arithmetic do not suffer alike.
PATCH_BEGINS, PATCH_ROUNDS, PATCH_FACTOR, PATCH_SHARES = 0.03, 8, (1.3, 3.0), (0.85, 1.15)
# An arm's own calls that take longer: how many, and by which factor at most.
OUTLIERS, OUTLIER_FACTOR = 0.03, 2.0
# Recorded rounds are drawn in runs of this length, so that a slow patch stays one.
RUN = 20


class Track(Protocol):
    """``true`` milliseconds by arm; ``rounds`` are the next ones, all arms in each."""

    @property
    def true(self) -> Mapping[str, float]: ...

    def rounds(self, names: Sequence[str], count: int) -> dict[str, Array]: ...


class MadeUp:
    """``noise`` is the standard deviation of the logarithm of an arm's own time."""

    def __init__(self, name: str, noise: float, seed: int) -> None:
        best = min(MEASURED[name])
        times = [*MEASURED[name], *(best * factor for factor in RIVALS)]
        self.true: Mapping[str, float] = {f"arm {index}": value for index, value in enumerate(times)}
        self._noise, self._rng, self._patch = noise, np.random.default_rng([seed, len(name)]), 1.0
        self._share = {arm: float(self._rng.uniform(*PATCH_SHARES)) for arm in self.true}

    def rounds(self, names: Sequence[str], count: int) -> dict[str, Array]:
        patches = np.array([self._next_patch() for _ in range(count)])
        times = {}
        for name in names:
            own = self._rng.lognormal(0.0, self._noise, count)
            late = np.where(self._rng.random(count) < OUTLIERS, self._rng.uniform(1.0, OUTLIER_FACTOR, count), 1.0)
            times[name] = self.true[name] * own * late * patches ** self._share[name]
        return times

    def _next_patch(self) -> float:
        if self._patch > 1.0:
            self._patch = 1.0 if self._rng.random() < 1 / PATCH_ROUNDS else self._patch
        elif self._rng.random() < PATCH_BEGINS:
            self._patch = float(self._rng.uniform(*PATCH_FACTOR))
        return self._patch


class Recorded:
    """What a machine really took, at one batch; the truth is the median over all recorded rounds of an arm's share of
    its round."""

    def __init__(self, times: Mapping[str, Sequence[float]], seed: int) -> None:
        self._times = {name: np.array(values) for name, values in times.items()}
        logs = {name: np.log(values) for name, values in self._times.items()}
        shared = np.median(list(logs.values()), axis=0)
        scale = float(np.exp(np.median(shared)))
        self.true: Mapping[str, float] = {name: scale * float(np.exp(np.median(values - shared)))
                                          for name, values in logs.items()}
        self._rng = np.random.default_rng(seed)
        self._picks: list[int] = []

    def rounds(self, names: Sequence[str], count: int) -> dict[str, Array]:
        recorded = len(next(iter(self._times.values())))
        while len(self._picks) < count:
            begin = int(self._rng.integers(recorded))
            self._picks += [(begin + offset) % recorded for offset in range(RUN)]
        picks, self._picks = self._picks[:count], self._picks[count:]
        return {name: self._times[name][picks] for name in names}


def recorded(path: Path) -> dict[str, Mapping[str, Sequence[float]]]:
    document = json.loads(path.read_text())
    return {f"MiniLM @{batch}": arms for batch, arms in document["times"].items()}

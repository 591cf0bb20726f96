"""One model at one batch: every candidate once a round, in random order; medians with intervals over the rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from enginewright_builder.competition.measure import measure
from enginewright_builder.tensors import Call

BATCHES = (1, 8, 32)
RESAMPLES = 1000
# A lower and an upper 95 % bound of the median.
QUANTILES = (0.025, 0.975)


def timed(calls: Mapping[str, Call], batch: int, seconds: float) -> dict[str, dict[str, float]]:
    """``{candidate: {"ms", "ms_low", "ms_high"}}``: the median of the rounds and its bootstrapped 95 % interval."""
    return {name: figures(timing.times_ms) for name, timing in measure(calls, batch, seconds).items()}


def figures(times_ms: tuple[float, ...]) -> dict[str, float]:
    times = np.asarray(times_ms)
    draws = np.random.default_rng(0).integers(0, len(times), (RESAMPLES, len(times)))
    low, high = np.quantile(np.median(times[draws], axis=1), QUANTILES)
    return {"ms": round(float(np.median(times)), 5), "ms_low": round(float(low), 5), "ms_high": round(float(high), 5)}


def best(candidates: Mapping[str, Mapping[str, Any]]) -> str:
    """The fastest that passes and could be shipped. Raises ``ValueError`` where none does."""
    passing = {name: one["ms"] for name, one in candidates.items() if one["passes"] and one["ships"]}
    return min(passing, key=lambda name: passing[name])


def regret(cell: Mapping[str, Any]) -> float:
    """How many times the best candidate's time the shipped one takes; 1 where it is the best."""
    candidates = cell["candidates"]
    return float(candidates[cell["shipped"]]["ms"] / candidates[best(candidates)]["ms"])


def geometric_mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))

"""Latency of runners in this process: warmed up apart, and interleaved so that a noisy machine hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from enginewright_builder.engines.base import Tensors

Run = Callable[[Tensors], object]
WARMUP_CALLS = 3
MIN_ROUNDS = 7
MAX_ROUNDS = 200
# Idle time before a timed call, in which the thread pools of the one before stop spinning.
SETTLE_SECONDS = 0.002
_RESAMPLES = 1_000


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Milliseconds for one batch. ``throughput`` is the batch divided by the median time, in inferences a second: a
    mean would tell about the machine's other work. ``cold_ms`` is the very first call."""

    batch: int
    times_ms: tuple[float, ...] = field(repr=False)
    cold_ms: float

    def percentile(self, percent: float) -> float:
        return float(np.percentile(self.times_ms, percent))

    @property
    def throughput(self) -> float:
        return self.batch / self.percentile(50) * 1e3


def measure(runners: Mapping[str, Run], inputs: Tensors, budget_seconds: float, *, seed: int = 0,
            clock: Callable[[], float] = time.perf_counter, pause: Callable[[float], None] = time.sleep,
            progress: Callable[[float, str], None] = lambda fraction, detail: None) -> dict[str, Timing]:
    """Every runner once a round, in random order, until the budget or ``MAX_ROUNDS`` is spent, and ``MIN_ROUNDS`` at
    least.

    Times with equal index in two timings are of one round, so their ratio is free of what slowed both down.
    """
    batch = len(next(iter(inputs.values())))
    cold = {name: _timed(run, inputs, clock) for name, run in runners.items()}
    for run in runners.values():
        for _ in range(WARMUP_CALLS - 1):
            run(inputs)
    times: dict[str, list[float]] = {name: [] for name in runners}
    rng = np.random.default_rng(seed)
    begin = clock()
    for rounds in range(MAX_ROUNDS):
        spent = clock() - begin
        if rounds >= MIN_ROUNDS and spent >= budget_seconds:
            break
        for name in rng.permutation(list(runners)):
            pause(SETTLE_SECONDS)
            times[name].append(_timed(runners[name], inputs, clock))
        progress(min(1.0, max(rounds / MAX_ROUNDS, spent / budget_seconds if budget_seconds > 0 else 1.0)),
                 f"measured {rounds + 1} rounds at batch {batch}")
    return {name: Timing(batch=batch, times_ms=tuple(times[name]), cold_ms=cold[name]) for name in runners}


def _timed(run: Run, inputs: Tensors, clock: Callable[[], float]) -> float:
    begin = clock()
    run(inputs)
    return (clock() - begin) * 1e3


def speedup(reference: Timing, candidate: Timing) -> float:
    """How many times the reference's throughput: the median over rounds of the ratio within a round."""
    return float(np.median(np.divide(reference.times_ms, candidate.times_ms)))


def speedup_high(reference: Timing, candidate: Timing, seed: int = 0) -> float:
    """One-sided 95 % upper bound of :func:`speedup`, by bootstrap over rounds."""
    ratios = np.divide(reference.times_ms, candidate.times_ms)
    draws = np.random.default_rng(seed).integers(0, len(ratios), (_RESAMPLES, len(ratios)))
    return float(np.quantile(np.median(ratios[draws], axis=1), 0.95))

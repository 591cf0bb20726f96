"""Latency of runners in this process: warmed up apart, and interleaved so that a noisy machine hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import special

from enginewright_builder.tensors import Call

# Before the first timed call: as many calls, or as many seconds, whichever is sooner, and two calls at least.
WARMUP_CALLS = 3
WARMUP_SECONDS = 0.2
MIN_ROUNDS = 7
MAX_ROUNDS = 200
# Idle time before a timed call, in which the thread pools of the one before stop spinning.
SETTLE_SECONDS = 0.002
_CONFIDENCE = 0.95


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

    @property
    def interval(self) -> tuple[float, float]:
        """Of the median, 95 %, by order statistics (David and Nagaraja, Order Statistics, 2003, section 7.1); of fewer
        than six times all that was seen."""
        ordered = sorted(self.times_ms)
        below = special.bdtr(np.arange(len(ordered) + 1), len(ordered), 0.5)  # each time is as likely on either side
        outside = max(0, int(np.searchsorted(below, (1 - _CONFIDENCE) / 2)) - 1)
        return ordered[outside], ordered[-1 - outside]


@dataclass
class Stopwatch:
    """Times calls that are bound to their inputs once, warmed up apart, then interleaved: each once a round, in random
    order. ``bind`` gives the call of an arm at a batch; ``cold_ms`` keeps the first call of each."""

    bind: Callable[[str, int], Call]
    seed: int = 0
    clock: Callable[[], float] = time.perf_counter
    pause: Callable[[float], None] = time.sleep
    cold_ms: dict[tuple[str, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._calls: dict[tuple[str, int], Call] = {}
        self._rng = np.random.default_rng(self.seed)

    def rounds(self, names: Sequence[str], batch: int, count: int) -> dict[str, list[float]]:
        """Milliseconds by name; times with equal index are of one round, so their ratio is free of what slowed both
        down."""
        calls = {name: self.warm(name, batch) for name in names}
        times: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(count):
            for name in self._rng.permutation(list(calls)):
                self.pause(SETTLE_SECONDS)
                times[name].append(self._timed(calls[name]))
        return times

    def timing(self, name: str, batch: int, times_ms: Sequence[float]) -> Timing:
        return Timing(batch=batch, times_ms=tuple(times_ms), cold_ms=self.cold_ms[name, batch])

    def warm(self, name: str, batch: int) -> Call:
        """Bound and called until it is warm, the first time that it is asked for."""
        key = name, batch
        if key not in self._calls:
            call = self._calls[key] = self.bind(name, batch)
            begin = self.clock()
            self.cold_ms[key] = self._timed(call)
            for number in range(1, WARMUP_CALLS):
                if number > 1 and self.clock() - begin > WARMUP_SECONDS:
                    break
                call()
        return self._calls[key]

    def forget(self, name: str) -> None:
        """What is bound of an arm, whose runner is another one now."""
        self._calls = {key: call for key, call in self._calls.items() if key[0] != name}

    def _timed(self, call: Call) -> float:
        begin = self.clock()
        call()
        return (self.clock() - begin) * 1e3


def measure(calls: Mapping[str, Call], batch: int, budget_seconds: float, *, seed: int = 0,
            clock: Callable[[], float] = time.perf_counter,
            pause: Callable[[float], None] = time.sleep) -> dict[str, Timing]:
    """All calls, bound to a batch of ``batch``, until the budget or ``MAX_ROUNDS`` is spent, and ``MIN_ROUNDS`` at
    least."""
    watch = Stopwatch(bind=lambda name, size: calls[name], seed=seed, clock=clock, pause=pause)
    watch.rounds(list(calls), batch, 0)
    times: dict[str, list[float]] = {name: [] for name in calls}
    begin = clock()
    for done in range(MAX_ROUNDS):
        if done >= MIN_ROUNDS and clock() - begin >= budget_seconds:
            break
        for name, taken in watch.rounds(list(calls), batch, 1).items():
            times[name].extend(taken)
    return {name: watch.timing(name, batch, times[name]) for name in calls}

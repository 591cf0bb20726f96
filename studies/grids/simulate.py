"""Grids of servers that do not exist: Triton's dynamic batcher in closed loop, event by event, with random machines.

The search must not be fitted to the few grids that were recorded. These come from another model than its own: requests
queue one by one, times vary, batches form as they do in Triton (at once when full or when the oldest has waited for the
delay, as soon as an instance is idle), and the machine's curve has corners that the search's formula lacks.
"""

from __future__ import annotations

import functools
import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grids.grid import FIGURES, Axes, Cell, Grid

# Requests that are answered before and while it is measured, at least and for each in flight.
WARM, MEASURED, MEASURED_EACH = 4, 300, 8
ROUNDING = 1e-9
AXES = (
    Axes(max_batch_sizes=(1, 4, 16), max_queue_delays_us=(0, 200, 1000, 5000), instance_counts=(1, 2),
         concurrencies=(1, 2, 4, 8, 16)),
    Axes(max_batch_sizes=(1, 8, 32), max_queue_delays_us=(0, 200, 1000, 5000), instance_counts=(1, 2),
         concurrencies=(1, 4, 16, 64)),
    # As a build on a GPU has it.
    Axes(max_batch_sizes=(32,), max_queue_delays_us=(0, 200, 1000, 5000), instance_counts=(1, 2, 4),
         concurrencies=(1, 2, 4, 8, 16, 32, 64, 128, 256)))


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Milliseconds. A batch takes ``fixed + each · (size − free)``, times ``busy ** sharing``, and instances beyond
    ``cores`` share those. ``serial`` is what each request takes on a path that all share, ``outside`` the rest of its
    way; ``jitter`` the spread of each time's logarithm; ``first_use`` what half of all batch sizes take extra, once."""

    fixed: float
    each: float
    free: int = 0
    sharing: float
    cores: int = 64
    outside: float
    serial: float
    jitter: float
    first_use: float = 0.0

    def service(self, size: int, busy: int) -> float:
        alone = self.fixed + self.each * max(0, size - self.free)
        return float(alone * busy**self.sharing * max(1.0, busy / self.cores))


def _cpu(rng: random.Random) -> Machine:
    """A second request costs nearly as much as the first, and one or two cores do the work."""
    one = _between(rng, 2, 60)
    return Machine(fixed=one * rng.uniform(0, 0.3), each=one * rng.uniform(0.6, 1), sharing=rng.uniform(0, 0.6),
                   cores=rng.choice([1, 2]), outside=_between(rng, 0.1, 0.8), serial=_between(rng, 0.01, 0.1),
                   jitter=rng.uniform(0.02, 0.12))


def _gpu(rng: random.Random) -> Machine:
    """A batch hardly takes longer than one request, and the way there takes as long as the work."""
    one = _between(rng, 0.3, 8)
    return Machine(fixed=one, each=one * _between(rng, 0.003, 0.1), free=rng.choice([0, 1, 4, 8]),
                   sharing=rng.uniform(0.1, 0.95), outside=_between(rng, 0.2, 0.9), serial=_between(rng, 0.02, 0.15),
                   jitter=rng.uniform(0.01, 0.08))


def _contended(rng: random.Random) -> Machine:
    """Instances hold one another up, and times vary much."""
    one = _between(rng, 1, 20)
    return Machine(fixed=one * rng.uniform(0.2, 0.6), each=one * _between(rng, 0.05, 0.5),
                   sharing=rng.uniform(0.8, 1.25), outside=_between(rng, 0.1, 1), serial=_between(rng, 0.01, 0.3),
                   jitter=rng.uniform(0.05, 0.2))


def _cold_gpu(rng: random.Random) -> Machine:
    """Windows too short for what a batch size costs at its first use, as in the grid recorded on the H200."""
    one = _between(rng, 0.3, 3)
    return Machine(fixed=one, each=one * _between(rng, 0.003, 0.1), sharing=rng.uniform(0.1, 0.95),
                   outside=_between(rng, 0.2, 0.9), serial=_between(rng, 0.02, 0.15), jitter=rng.uniform(0.01, 0.08),
                   first_use=rng.uniform(20, 80))


MACHINES: dict[str, Callable[[random.Random], Machine]] = {
    "cpu": _cpu, "gpu": _gpu, "contended": _contended, "cold gpu": _cold_gpu}


def simulated(kind: str, seed: int) -> Grid:
    """One grid: machine, axes and times follow from ``kind`` and ``seed``."""
    machine, axes = MACHINES[kind](_random(kind, seed)), AXES[seed % len(AXES)]
    return Grid(name=f"{kind} {seed}", model=str(machine), hardware={}, versions={}, command="", recorded="", notes=(),
                seconds_per_point=0.0, axes=axes,
                repeats={cell: [_Loop(machine, cell, _random(kind, seed, cell)).figures()] for cell in axes.cells()})


class _Loop:
    """A configuration under its load; every client sends again as soon as it is answered."""

    def __init__(self, machine: Machine, cell: Cell, rng: random.Random) -> None:
        self.machine, self.load, self.rng = machine, cell.concurrency, rng
        self.most = max(1, cell.config.max_batch_size)
        self.delay = cell.config.max_queue_delay_us / 1e3 if self.most > 1 else 0.0
        self.idle, self.busy, self.now, self.path_free = cell.config.instance_count, 0, 0.0, 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.number, self.wakes = 0, -1.0
        self.queue: list[tuple[float, float]] = []  # arrived, sent
        self.known: set[int] = set()
        self.latencies: list[float] = []
        self.sizes: list[int] = []

    def figures(self) -> dict[str, float]:
        for _ in range(self.load):
            self._later(self.rng.random() * self.machine.fixed, self._send)
        warm = WARM * self.load
        while len(self.latencies) < warm + max(MEASURED, MEASURED_EACH * self.load):
            self.now, _, act = heapq.heappop(self.events)
            act()
            self._dispatch()
        seen = np.array(self.latencies[warm:])
        mean, rate = float(seen.mean()), self.load / float(seen.mean()) * 1e3
        percentiles = {f"p{share}_ms": float(np.percentile(seen, share)) for share in (50, 90, 95, 99)}
        return {**dict.fromkeys(FIGURES, 0.0), "throughput": rate, "throughput_low": rate, "throughput_high": rate,
                "mean_ms": mean, **percentiles, "mean_batch": float(np.mean(self.sizes)),
                "transport_ms": self.machine.outside + self.machine.serial}

    def _send(self) -> None:
        sent = self.now
        self.path_free = max(self.path_free, sent) + self._about(self.machine.serial)
        self._later(self.path_free - self.now + self._about(self.machine.outside / 2),
                    lambda: self.queue.append((self.now, sent)))

    def _dispatch(self) -> None:
        while self.idle and self.queue and (
                len(self.queue) >= self.most or self.now >= self.queue[0][0] + self.delay - ROUNDING):
            batch, self.queue = self.queue[:self.most], self.queue[self.most:]
            self.idle, self.busy = self.idle - 1, self.busy + 1
            self.sizes.append(len(batch))
            self._later(self._first_use(len(batch)) + self._about(self.machine.service(len(batch), self.busy)),
                        functools.partial(self._answer, batch))
        if self.idle and self.queue and self.wakes != (wakes := self.queue[0][0] + self.delay):
            self.wakes = wakes
            self._later(wakes - self.now, lambda: None)

    def _answer(self, batch: list[tuple[float, float]]) -> None:
        self.idle, self.busy = self.idle + 1, self.busy - 1
        for _, sent in batch:
            self._later(self._about(self.machine.outside / 2), functools.partial(self._receive, sent))

    def _receive(self, sent: float) -> None:
        self.latencies.append(self.now - sent)
        self._send()

    def _first_use(self, size: int) -> float:
        if not self.machine.first_use or size in self.known:
            return 0.0
        self.known.add(size)
        return self.machine.first_use if self.rng.random() < 0.5 else 0.0

    def _later(self, after: float, act: Callable[[], None]) -> None:
        self.number += 1
        heapq.heappush(self.events, (self.now + max(0.0, after), self.number, act))

    def _about(self, mean: float) -> float:
        return mean * math.exp(self.rng.gauss(0, self.machine.jitter))


def _between(rng: random.Random, low: float, high: float) -> float:
    """Evenly spread on a logarithmic scale."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _random(*parts: object) -> random.Random:
    """Seeded by text, as Python's own hashes differ from run to run."""
    return random.Random(" ".join(map(str, parts)))  # noqa: S311 - not a secret

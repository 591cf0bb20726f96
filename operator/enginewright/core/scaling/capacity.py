"""What one replica can do, as the build measured it, and how much of that may be used within the objective.

The wait of a request is the tail of a queue with Poisson arrivals and constant service::

    P(wait > t) ≈ C · exp(-θ t)              θ > 0 solves  λ (exp(θ / μ) - 1) = θ
    C = ρ ** (√(2 (instances + 1)) - 1)      ρ = λ / μ

λ is the rate that reaches one replica, μ the rate at which it serves. θ is the exact decay for constant service
(Cramér-Lundberg; Takahashi, "Asymptotic exponentiality of the tail of the waiting-time distribution in a PH/PH/c
queue", 1981), C Sakasegawa's probability of having to wait (1977). Arrivals that come in clumps, with an index of
dispersion I, shrink θ to θ / I (heavy traffic: Fendick and Whitt, 1989). With a dynamic batcher all that waits is taken
at once, up to a batch of b: a request waits for the rest of the batch under way and is then served with its own, 2 s(b)
at worst, and what is too much for one batch waits as above at the rate of whole batches, b / s(b) for each instance
(the batch-service queue of Inoue, "Queueing analysis of GPU-based inference servers with dynamic batching", 2021,
arXiv:1912.06322, with the percentile in place of its mean). Every batch size gives a rate that is safe; the largest of
them counts.

Replicas do not share a queue: kube-proxy sends each connection to any of them, so that ``n`` replicas carry ``n`` times
what one does, and clumps are thinned out between them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from enginewright_builder.contract import TokenWork

# An index of dispersion is rounded up to multiples of this, so that what was computed for it can be kept.
DISPERSION_STEP = 0.1
HALVINGS = 30
PRECISION = 1e-9
# Loads for which the share of late requests is tabulated.
LOADS = 64


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """``throughput`` is requests a second that one replica does within the objective. ``curve`` holds (batch, seconds
    from a batch's start to its answer) by rising batch, as one of ``instances`` does it; it may be empty.
    ``objective_seconds`` at ``percentile`` (50 to 99.99) is None when the spec has no latency objective.
    ``cold_start_seconds`` is the time from the write of a scale-up until the new replica answers, ``delay_seconds`` the
    longest that the batcher holds a request back for others. Of a language model ``work`` says of which size its
    requests are, ``instances`` how many it answers at once, and the curve has the time until the first token."""

    throughput: float
    curve: tuple[tuple[int, float], ...] = ()
    instances: int = 1
    objective_seconds: float | None = None
    percentile: float = 99.0
    cold_start_seconds: float = 0.0
    delay_seconds: float = 0.0
    work: TokenWork | None = None

    def slowed(self, share: float) -> Capacity:
        """One that does ``share`` of it, above 0: each batch takes so much longer."""
        if share == 1:
            return self
        curve = tuple((batch, seconds / share) for batch, seconds in self.curve)
        return replace(self, throughput=self.throughput * share, curve=curve)

    @property
    def points(self) -> tuple[tuple[int, float], ...]:
        """The curve; without one, requests are served one by one at the measured throughput."""
        return self.curve or ((1, self.instances / self.throughput),)

    @property
    def allowed(self) -> float:
        """Share of requests that may be late."""
        return 1 - self.percentile / 100

    @property
    def compute_seconds(self) -> float:
        """One request alone."""
        return self.points[0][1] + self.delay_seconds

    def patience(self, queued_each: float) -> float:
        """Seconds within which a request is to be answered: the objective; without one, the time that it takes with
        ``queued_each`` requests before it, in batches of the size that is done with them soonest. An objective that no
        request can meet is taken as no wait longer than the compute time: the best there is."""
        if self.objective_seconds is None:
            return self.delay_seconds + min(_unqueued(point) + queued_each / self.served(point)
                                            for point in self.points)
        return max(self.objective_seconds, 2 * self.compute_seconds if self.shortfall_seconds else 0.0)

    def served(self, point: tuple[int, float]) -> float:
        """Requests a second while no instance is idle, in batches of one size."""
        batch, seconds = point
        return min(self.throughput, self.instances * batch / seconds)

    @property
    def shortfall_seconds(self) -> float:
        """By how much the engine's own compute time exceeds the objective; 0 where it does not. Without a curve nothing
        can be said."""
        if not self.curve or self.objective_seconds is None:
            return 0.0
        return max(0.0, self.compute_seconds - self.objective_seconds)


def replicas_for(rate: float, capacity: Capacity, patience: float, dispersion: float, most: int) -> int:
    """The fewest replicas that serve ``rate`` requests a second within ``patience`` seconds at the percentile, from 1
    to ``most`` + 1, which says that more are needed. ``dispersion`` is the index of dispersion of arrivals over such a
    time."""
    low, high = 1, most + 1
    while low < high:
        middle = (low + high) // 2
        if middle * largest_rate(capacity, patience, thinned(dispersion, middle)) >= rate:
            high = middle
        else:
            low = middle + 1
    return low


def thinned(dispersion: float, replicas: int) -> float:
    """The index of dispersion of what reaches one of ``replicas``, rounded up."""
    each = 1.0 + (max(1.0, dispersion) - 1.0) / replicas
    return math.ceil(each / DISPERSION_STEP) * DISPERSION_STEP


@lru_cache(maxsize=4096)
def largest_rate(capacity: Capacity, patience: float, dispersion: float = 1.0) -> float:
    """Requests a second that one replica serves so that the percentile of their latency stays within ``patience``
    seconds; 0 where it never does."""
    return max(_largest_at(point, capacity, patience, dispersion) for point in capacity.points)


def _largest_at(point: tuple[int, float], capacity: Capacity, patience: float, dispersion: float) -> float:
    """With batches of one size, by halving: the more come, the more are late."""
    served, spare = _batches(point, capacity, patience)
    if spare <= 0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        load = (low + high) / 2
        if _late(load, served * spare / dispersion, capacity.instances) <= capacity.allowed:
            low = load
        else:
            high = load
    return low * served


@lru_cache(maxsize=256)
def late_shares(capacity: Capacity, patience: float, dispersion: float = 1.0) -> tuple[float, ...]:
    """:func:`late_share` at loads from 0 to 1 of the throughput, in equal steps."""
    steps = range(1, LOADS)
    shares = (late_share(step / LOADS * capacity.throughput, capacity, patience, dispersion) for step in steps)
    return (0.0, *shares, 1.0)


def late_share(rate: float, capacity: Capacity, patience: float, dispersion: float = 1.0) -> float:
    """Share of the ``rate`` requests a second, above 0, that one replica answers after ``patience`` seconds."""
    return min(_late_at(point, rate, capacity, patience, dispersion) for point in capacity.points)


def _late_at(point: tuple[int, float], rate: float, capacity: Capacity, patience: float, dispersion: float) -> float:
    served, spare = _batches(point, capacity, patience)
    load = rate / served
    return 1.0 if spare <= 0 or load >= 1 - PRECISION else _late(load, served * spare / dispersion, capacity.instances)


def _late(load: float, spare: float, instances: int) -> float:
    """P(wait > ``spare``) at ``load``, above 0 and below 1; ``spare`` in times between answers of the busy replica."""
    return math.pow(load, math.sqrt(2 * (instances + 1)) - 1) * math.exp(-_decay(load) * spare)


def _batches(point: tuple[int, float], capacity: Capacity, patience: float) -> tuple[float, float]:
    """Requests a second of one busy replica with batches of one size, and how long a request may then wait."""
    return capacity.served(point), patience - capacity.delay_seconds - _unqueued(point)


def _unqueued(point: tuple[int, float]) -> float:
    """Seconds that a request takes at worst which goes with the next batch, of at most that size."""
    batch, seconds = point
    return seconds if batch == 1 else 2 * seconds


def _decay(load: float) -> float:
    """x > 0 with load (exp(x) - 1) = x, by Newton's method from -2 log(load), which is above it, on a convex
    function."""
    x = -2 * math.log(load)
    for _ in range(HALVINGS):
        step = (load * math.expm1(x) - x) / (load * math.exp(x) - 1)
        x -= step
        if abs(step) < PRECISION * x:
            break
    return x

"""A batch server in closed loop, in closed form: what throughput a configuration should have.

Five parameters, fitted to the points measured so far: a batch of 1 takes ``single``, and each further request adds the
``share`` of it (0.9 on a CPU's core, 0.01 on a GPU that one request leaves idle); instances that work at the same time
slow one another by ``busy ** sharing`` (0: not at all, 1: they share one machine fully); a request spends ``outside``
between two visits (client, wire, copies); and the path outside the instances carries at most ``ceiling`` requests a
millisecond, one after the other. Throughput is then bounded by the load and by each station (asymptotic bounds of
closed networks: Denning and Buzen, "The operational analysis of queueing network models", ACM Computing Surveys 10(3),
1978).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from enginewright_builder.sweep.space import Trial

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
# How sharp the corner between two bounds is: the p-norm that joins them.
SHARPNESS = 8.0
# Prior of log single, logit share, sharing, log outside and log ceiling. Single and outside are in units of what one
# request alone was measured to spend in each, and the ceiling of one over both together: only that is known beforehand.
# Shares from 0.007 to 0.95 lie within two spreads: GPUs as well as CPUs.
PRIOR_MEAN = np.array([0.0, -1.0, 0.5, 0.0, np.log(20.0)])
PRIOR_SPREAD = np.array([0.3, 2.0, 0.4, 0.5, 1.2])
# One request alone is neither outside all the time nor never, whatever clocks say.
OUTSIDE_SHARE = (0.03, 0.9)


@dataclass(frozen=True, kw_only=True)
class Coordinates:
    """Trials as columns: one number each, ``delay_ms`` 0 where no batch forms."""

    batch: Vector
    delay_ms: Vector
    instances: Vector
    concurrency: Vector

    @classmethod
    def of(cls, trials: Sequence[Trial]) -> Coordinates:
        rows = np.array([(max(1, trial.serving.max_batch_size), trial.serving.max_queue_delay_us / 1e3,
                          trial.serving.instance_count, trial.concurrency) for trial in trials], float)
        batch, delay, instances, concurrency = rows.T
        return cls(batch=batch, delay_ms=np.where(batch > 1, delay, 0.0), instances=instances,
                   concurrency=concurrency)


def log_throughput(parameters: Vector, at: Coordinates) -> Vector:
    """Logarithm of requests a millisecond, ``[..., trials]``. ``parameters`` as in :func:`prior_mean`, ``[..., 5]``."""
    level, odds, sharing, away, most = np.moveaxis(parameters, -1, 0)[..., None]
    single, outside, ceiling = np.exp(level), np.exp(away), np.exp(most)
    share = special.expit(odds)
    # While one batch runs the others gather: in a closed loop the load splits over the instances and the queue.
    gathered = np.clip(at.concurrency / (at.instances + 1), 1, at.batch)
    # A delay longer than a round trip outside lets all that return join one batch, however many instances are idle.
    whole = np.clip(at.concurrency, 1, at.batch)
    patience = at.delay_ms / (at.delay_ms + outside + 0.2 * single)
    size = gathered + (whole - gathered) * patience
    busy = np.minimum(at.instances, at.concurrency / size)
    service = single * (1 - share + share * size) * busy ** sharing
    # A batch that the load can fill does not wait; one that it cannot waits in vain.
    waited = np.where(at.concurrency < at.batch, at.delay_ms, 0.0)
    # The last of a batch to arrive has all the others before it on the path.
    passing = (size - 1) / ceiling
    bounds = at.concurrency / (outside + passing + service + waited), busy * size / service, ceiling
    joined: Vector = -np.log(sum(bound ** -SHARPNESS for bound in bounds)) / SHARPNESS
    return joined


def prior_mean(alone_ms: float, outside_ms: float) -> Vector:
    """``PRIOR_MEAN`` in milliseconds, given the latency of one request alone and how much of it was outside."""
    outside = float(np.clip(outside_ms / alone_ms, *OUTSIDE_SHARE))
    mean: Vector = PRIOR_MEAN + np.log([alone_ms * (1 - outside), 1, 1, alone_ms * outside, 1 / alone_ms])
    return mean


def fit(at: Coordinates, measured: Vector, covariance: Matrix, mean: Vector) -> tuple[Vector, Matrix]:
    """The most probable parameters and their own covariance (Laplace's approximation), given logarithms of requests a
    millisecond whose errors about the model have this ``covariance``, and the prior's ``mean``."""
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))

    def residuals(parameters: Vector) -> Vector:
        off = log_throughput(parameters, at) - measured
        return np.concatenate([whiten @ off, (parameters - mean) / PRIOR_SPREAD])

    def steepness(parameters: Vector) -> Matrix:
        return np.concatenate([whiten @ slopes(parameters, at), np.diag(1 / PRIOR_SPREAD)])

    found = optimize.least_squares(residuals, mean, steepness)
    return found.x, np.linalg.inv(found.jac.T @ found.jac)


def slopes(parameters: Vector, at: Coordinates) -> Matrix:
    """Derivative of :func:`log_throughput` by each parameter, by central differences: one column each."""
    steps = 1e-4 * np.eye(len(parameters))
    above, below = log_throughput(parameters + np.stack([steps, -steps]), at)
    found: Matrix = (above - below).T / 2e-4
    return found

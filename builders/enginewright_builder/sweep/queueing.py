"""A batch server in closed loop, in closed form: what throughput a configuration should have.

Five parameters, fitted to the points measured so far: the service time of a batch is affine in its size, ``fixed +
each · batch``; instances that work at the same time slow one another by ``busy ** sharing`` (0: not at all, 1: they
share one machine fully); a request spends ``outside`` between two visits (client, wire, copies); and the path outside
the instances carries at most ``ceiling`` requests a millisecond. Throughput is then bounded by the load and by each
station (asymptotic bounds of closed networks: Denning and Buzen, "The operational analysis of queueing network
models", ACM Computing Surveys 10(3), 1978).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from enginewright_builder.sweep.space import Trial

Vector = NDArray[np.float64]
# How sharp the corner between two bounds is: the p-norm that joins them.
SHARPNESS = 8.0
# A fit believes measurements to this share of their value, as the model itself is no better.
TRUST = 0.05
# Prior of log fixed, log each, sharing, log outside, log ceiling, in units of the service time of one request alone.
PRIOR_MEAN = np.array([np.log(0.5), np.log(0.3), 0.5, np.log(0.1), np.log(10.0)])
PRIOR_SPREAD = np.array([1.0, 1.0, 0.4, 1.0, 1.2])


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
    """Logarithm of requests a millisecond. ``parameters`` as in ``PRIOR_MEAN``, times in milliseconds."""
    fixed, each, outside, ceiling = np.exp(parameters[[0, 1, 3, 4]])
    # While one batch runs the others gather: in a closed loop the load splits over the instances and the queue.
    gathered = np.clip(at.concurrency / (at.instances + 1), 1, at.batch)
    # A delay longer than a round trip outside lets those that return join: nobody is left in the queue.
    whole = np.clip(at.concurrency / at.instances, 1, at.batch)
    patience = at.delay_ms / (at.delay_ms + outside + 0.2 * (fixed + each))
    size = gathered + (whole - gathered) * patience
    busy = np.minimum(at.instances, at.concurrency / size)
    service = (fixed + each * size) * busy ** parameters[2]
    # A batch that fills at once does not wait.
    waited = at.delay_ms * (1 - np.minimum(1, at.concurrency / ((at.instances + 1) * at.batch)))
    bounds = np.stack([at.concurrency / (outside + service + waited), busy * size / service,
                       np.full_like(size, ceiling)])
    joined: Vector = -np.log((bounds ** -SHARPNESS).sum(axis=0)) / SHARPNESS
    return joined


def fit(at: Coordinates, measured: Vector) -> Vector:
    """The most probable parameters, given logarithms of requests a millisecond: least squares with the prior."""
    alone = int(np.argmin(at.concurrency))
    single = at.concurrency[alone] / np.exp(measured[alone])
    mean = PRIOR_MEAN + np.log(single) * np.array([1, 1, 0, 1, -1])

    def residuals(parameters: Vector) -> Vector:
        return np.concatenate([(log_throughput(parameters, at) - measured) / TRUST,
                               (parameters - mean) / PRIOR_SPREAD])

    found: Vector = optimize.least_squares(residuals, mean).x
    return found

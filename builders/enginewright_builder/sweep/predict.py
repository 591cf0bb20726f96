"""What every trial of the space would show, and how sure that is: the queueing model, corrected by what was measured.

The correction is a Gaussian process over the logarithm of measured ÷ modelled: a point that was faster than the model
says makes its neighbours faster, too, and a prediction is the less certain the farther it is from all measurements
(Rasmussen and Williams, "Gaussian processes for machine learning", 2006, chapter 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from enginewright_builder.sweep.queueing import Coordinates, Vector, fit, log_throughput
from enginewright_builder.sweep.result import Point
from enginewright_builder.sweep.space import Trial

# By how much the queueing model is off, as a share, and the noise of one measurement.
MODEL_ERROR, NOISE = 0.15, 0.01
# The same for the objective's percentile over the mean latency: how far it varies over the space.
TAIL_SPREAD, TAIL_NOISE = 0.3, 0.03
# Logarithm of percentile over mean where nothing is measured yet; it counts as one measurement.
TAIL_PRIOR = 0.3


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Logarithms, of requests a second and of milliseconds at the objective's percentile; ``…_spread`` is their
    standard deviation. One number for each trial of the space."""

    throughput: Vector
    throughput_spread: Vector
    latency: Vector
    latency_spread: Vector


class Predictor:
    def __init__(self, trials: Sequence[Trial]) -> None:
        self._all = Coordinates.of(trials)

    def predict(self, points: Sequence[Point]) -> Prediction:
        """At least one point. By Little's law the mean latency of a closed loop is its load ÷ its throughput, so only
        the percentile over the mean is a second unknown."""
        seen = Coordinates.of([Trial(serving=point.serving, concurrency=point.concurrency) for point in points])
        rate = np.log([point.throughput / point.batch / 1e3 for point in points])
        tail = np.log([point.objective_ms for point in points]) + rate - np.log(seen.concurrency)
        parameters = fit(seen, rate)
        scale = float(np.exp(parameters[0]) + np.exp(parameters[1]))
        everywhere, here = _features(self._all, scale), _features(seen, scale)
        throughput, throughput_spread = _condition(
            everywhere, here, log_throughput(parameters, self._all), rate - log_throughput(parameters, seen),
            MODEL_ERROR, NOISE)
        usual = (TAIL_PRIOR + tail.sum()) / (1 + len(tail))
        over, over_spread = _condition(everywhere, here, np.full(len(everywhere), usual), tail - usual,
                                       TAIL_SPREAD, TAIL_NOISE)
        return Prediction(throughput=throughput + np.log(1e3), throughput_spread=throughput_spread,
                          latency=np.log(self._all.concurrency) - throughput + over,
                          latency_spread=np.hypot(throughput_spread, over_spread))


def _features(at: Coordinates, service_ms: float) -> Vector:
    """Coordinates in which a step of 1 changes the model's error about as much in each: octaves of load, instances and
    of the batch that the load can fill, and the delay against the service time."""
    fillable = np.minimum(at.batch, at.concurrency)
    delay = np.where(fillable > 1, np.log1p(2 * at.delay_ms / service_ms), 0.0)
    return np.stack([np.log2(at.concurrency) / 1.5, np.log2(at.instances), np.log2(fillable) / 1.5, 2 * delay,
                     np.log2(at.batch) / 6], axis=1)


def _condition(everywhere: Vector, here: Vector, mean: Vector, residual: Vector, spread: float,
               noise: float) -> tuple[Vector, Vector]:
    """Mean and standard deviation everywhere, given the residuals here."""
    own = spread**2 * _matern(here, here) + noise**2 * np.eye(len(here))
    cross = spread**2 * _matern(everywhere, here)
    weights = np.linalg.solve(own, cross.T).T
    variance = spread**2 - (weights * cross).sum(axis=1)
    return mean + weights @ residual, np.sqrt(np.maximum(variance, 1e-12))


def _matern(left: Vector, right: Vector) -> NDArray[np.float64]:
    """Matérn covariance of smoothness 3/2: continuous, with corners as saturation has them."""
    distance = np.sqrt(3 * ((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2))
    correlation: NDArray[np.float64] = (1 + distance) * np.exp(-distance)
    return correlation

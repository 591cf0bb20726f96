"""What every trial of the space would show, and how sure that is: the queueing model, corrected by what was measured.

Three quantities are predicted: the median latency, by the queueing model; and the mean and the objective's percentile
over the median, which have no model. A stall in a short window (a kernel tuned, a graph captured at its first use)
moves the mean and the tail of that point twentyfold, but not its median, so it teaches the model nothing wrong.

* The correction of each is a Gaussian process over the logarithm of measured ÷ modelled: a point that was faster than
  the model says makes its neighbours faster, too, and a prediction is the less certain the farther it is from all
  measurements (Rasmussen and Williams, "Gaussian processes for machine learning", 2006, chapter 2).
* How large such corrections are is guessed, and told by the measurements as they come: where the model explains them
  badly, all that is not measured becomes less certain.
* What the measurements leave open of the model's parameters is part of the uncertainty, too (chapter 2.7, with the
  model's slopes as basis functions).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from enginewright_builder.sweep.queueing import Coordinates, Matrix, Vector, fit, log_throughput, prior_mean, slopes
from enginewright_builder.sweep.result import Point
from enginewright_builder.sweep.space import Trial


@dataclass(frozen=True, kw_only=True)
class Guess:
    """Of a logarithm before anything is measured: ``mean``, ``spread`` of its corrections over the space, and the share
    of ``noise`` of one measurement."""

    mean: float = 0.0
    spread: float
    noise: float


# Of the error of the queueing model, of mean over median, and of percentile over median.
MODEL = Guess(spread=0.12, noise=0.1)
MEAN = Guess(mean=0.05, spread=0.1, noise=0.15)
TAIL = Guess(mean=0.2, spread=0.15, noise=0.15)
# As many measurements as a guess of a spread counts.
WORTH = 3.0
# A ratio farther than so many spreads from the usual one is a stall: its neighbours are not held to be as slow.
CLIP = 3.0


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
        """At least one point. By Little's law the mean latency of a closed loop is its load ÷ its throughput."""
        seen = Coordinates.of([Trial.of(point) for point in points])
        # Two instances with batches of unlike size have two latencies, and the median is the longer: then the mean.
        middle = np.log([min(point.p50_ms, point.mean_ms) for point in points])
        alone = points[int(np.argmin(seen.concurrency))]
        alone_ms = alone.mean_ms / alone.concurrency
        kernel = _Kernel(_features(self._all, alone_ms), _features(seen, alone_ms))
        rate, rate_variance = self._rate(seen, np.log(seen.concurrency) - middle, kernel,
                                         prior_mean(alone_ms, alone.layers.transport_ms))
        mean, mean_variance = _ratio(np.log([point.mean_ms for point in points]) - middle, kernel, MEAN)
        tail, tail_variance = _ratio(np.log([point.objective_ms for point in points]) - middle, kernel, TAIL)
        return Prediction(throughput=rate - mean + np.log(1e3), latency=np.log(self._all.concurrency) - rate + tail,
                          throughput_spread=np.sqrt(rate_variance + mean_variance),
                          latency_spread=np.sqrt(rate_variance + tail_variance))

    def _rate(self, seen: Coordinates, rate: Vector, kernel: _Kernel, prior: Vector) -> tuple[Vector, Vector]:
        """Load ÷ median latency, as a logarithm, and its variance."""
        spread = MODEL.spread
        for _ in range(2):  # parameters and error depend on one another; more rounds change neither
            parameters, open_ = fit(seen, rate, spread**2 * kernel.own(MODEL), prior)
            left = rate - log_throughput(parameters, seen)
            spread = kernel.spread(left, MODEL)
        correction, variance = kernel.condition(left, spread, MODEL)
        free = slopes(parameters, self._all) - kernel.weights(MODEL) @ slopes(parameters, seen)
        return log_throughput(parameters, self._all) + correction, variance + ((free @ open_) * free).sum(axis=1)


class _Kernel:
    """Which measurements (``[n]``) say how much about which trials (``[all]``), by distance."""

    def __init__(self, everywhere: Matrix, here: Matrix) -> None:
        self._here, self._cross = _matern(here, here), _matern(everywhere, here)

    def own(self, guess: Guess) -> Matrix:
        """Correlation of measurements, noise included."""
        found: Matrix = self._here + guess.noise**2 * np.eye(len(self._here))
        return found

    def weights(self, guess: Guess) -> Matrix:
        found: Matrix = np.linalg.solve(self.own(guess), self._cross.T).T
        return found

    def spread(self, left: Vector, guess: Guess) -> float:
        """Standard deviation of the corrections: the guess, and what the residuals ``left`` say (the mean of its
        inverse-gamma posterior)."""
        misfit = float(left @ np.linalg.solve(self.own(guess), left))
        return float(np.sqrt((WORTH * guess.spread**2 + misfit) / (WORTH + len(left))))

    def condition(self, left: Vector, spread: float, guess: Guess) -> tuple[Vector, Vector]:
        """Correction of every trial and its variance, given the residuals of the measured ones."""
        weights = self.weights(guess)
        variance = spread**2 * np.maximum(1 - (weights * self._cross).sum(axis=1), 1e-9)
        return weights @ left, variance


def _ratio(seen: Vector, kernel: _Kernel, guess: Guess) -> tuple[Vector, Vector]:
    """A ratio over the whole space and its variance: what is usual, corrected near what was measured."""
    usual = float(np.median([guess.mean, *seen]))
    left = np.clip(seen - usual, -CLIP * guess.spread, CLIP * guess.spread)
    correction, variance = kernel.condition(left, kernel.spread(left, guess), guess)
    return usual + correction, variance


def _features(at: Coordinates, alone_ms: float) -> Matrix:
    """Coordinates in which a step of 1 changes the model's error about as much in each: octaves of load, instances and
    of the batch that the load can fill, and the delay against the time of one request alone."""
    fillable = np.minimum(at.batch, at.concurrency)
    delay = np.where(fillable > 1, np.log1p(2 * at.delay_ms / alone_ms), 0.0)
    return np.stack([np.log2(at.concurrency), 1.5 * np.log2(at.instances), np.log2(fillable), 3 * delay,
                     np.log2(at.batch) / 4], axis=1)


def _matern(left: Matrix, right: Matrix) -> Matrix:
    """Matérn covariance of smoothness 3/2: continuous, with corners as saturation has them."""
    distance = np.sqrt(3 * ((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2))
    correlation: Matrix = (1 + distance) * np.exp(-distance)
    return correlation

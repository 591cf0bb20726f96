"""A mean that may be looked at after every second, to stop early either way: pure statistics, no domain.

Looking often at an ordinary confidence interval finds a difference sooner or later where there is none. These hold at
all times at once: with probability ``alpha`` at most they are ever wrong, however often one looks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# The interval is narrowest about here: at one value a second the answer is due within half a minute.
SHARPEST_AT: Final = 20.0
# Fewer values say nothing of their own spread.
FEWEST_VALUES: Final = 10
# No spread at all is a coarse clock, not certainty.
LEAST_SPREAD: Final = 0.02
# A series that hangs together more than this is no series of separate values.
MOST_CORRELATION: Final = 0.95
# A correlation is taken to be so many standard errors higher than it looks: too low a one promises too much.
CORRELATION_ERRORS: Final = 1.5


@dataclass(frozen=True)
class Interval:
    """A mean that is known to lie between ``low`` and ``high``."""

    mean: float
    low: float
    high: float


def of_beginning(alpha: float, before: int) -> float:
    """The chance of a wrong word that a series may have which began again after ``before`` others, so that all of them
    have at most 1.65 times ``alpha``, however many there are (Σ 1/n² = π²/6)."""
    return alpha / (before + 1) ** 2


class Series:
    """Values one by one, with the sums that their confidence sequence is made of: one more costs the same whatever
    their number, and nothing is forgotten or approximated. Mean, spread and lag-one correlation are functions of sums
    of squares and of products of neighbours, so that an interval is that of the whole series and holds at all times.

    A value may have a ``slope``: it is ``value + tilt * slope`` for a tilt that is known only in the end. All sums are
    of distances from the first value, so that no digits are lost where values lie near each other and far from zero.
    """

    def __init__(self) -> None:
        self.count = 0
        self._first = 0.0
        self._last = (0.0, 0.0, 0.0)
        # Of values a and slopes b under weights w: the sums of w, wa, wb; and, for each with itself and for each with
        # its neighbour, of w·w' times 1, a+a', b+b', aa', ab'+ba', bb'.
        self._weighted = [0.0] * 3
        self._squares = [0.0] * 6
        self._neighbours = [0.0] * 6
        self._plain = (0.0, 0.0)

    def add(self, value: float, weight: float = 1.0, slope: float = 0.0) -> None:
        if not self.count:
            self._first = value
        a = value - self._first
        _grow(self._weighted, weight, (1.0, a, slope))
        _grow(self._squares, weight * weight, (1.0, 2 * a, 2 * slope, a * a, 2 * a * slope, slope * slope))
        self._plain = (self._plain[0] + a, self._plain[1] + a * a)
        if self.count:
            before, c, d = self._last
            _grow(self._neighbours, weight * before, (1.0, a + c, slope + d, a * c, a * d + slope * c, slope * d))
        self._last = (weight, a, slope)
        self.count += 1

    def scatter(self) -> float:
        """Sum of the squared distances of the values, without their slopes, from their weighted mean."""
        mean = self._weighted[1] / self._weighted[0]
        total, squares = self._plain
        return max(0.0, squares - 2 * mean * total + self.count * mean * mean)

    def interval(self, alpha: float, tilt: float = 0.0) -> Interval | None:
        """The asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central
        limit theory and asymptotic confidence sequences" (2021; Annals of Statistics 52, 2024), theorem 2.2 and
        equation 24 for the best rho; None before it is known::

            mean ± spread · sqrt(2 (t rho² + 1) / (t² rho²) · log(sqrt(t rho² + 1) / alpha))

        With weights, ``t`` is Kish's effective number, (Σ w)² / Σ w². The spread is widened for neighbours that
        resemble each other by (1 + φ) / (1 - φ), φ the lag-one correlation corrected for its bias in short series
        (Kendall 1954) and raised by its standard error, sqrt((1 - φ²) / n), and for short series by (t - 1) / (t - 3)
        as Student's variance.
        """
        total, squares = self._weighted[0], self._squares[0]
        if self.count < FEWEST_VALUES or total <= 0:
            return None
        times = total * total / squares
        if times < FEWEST_VALUES / 2:
            return None
        mean = (self._weighted[1] + tilt * self._weighted[2]) / total
        off = max(0.0, _about(self._squares, mean, tilt))
        variance = off / squares * (times / (times - 1)) * ((times - 1) / (times - 3))
        correlation = _correlation(off, _about(self._neighbours, mean, tilt), self.count)
        spread = max(math.sqrt(variance * (1 + correlation) / (1 - correlation)), LEAST_SPREAD)
        rho = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / SHARPEST_AT  # rho²
        grown = times * rho + 1
        half = spread * math.sqrt(2 * grown / (times * times * rho) * math.log(math.sqrt(grown) / alpha))
        middle = mean + self._first
        return Interval(middle, middle - half, middle + half)


def _grow(sums: list[float], weight: float, parts: Sequence[float]) -> None:
    for place, part in enumerate(parts):
        sums[place] += weight * part


def _about(sums: Sequence[float], mean: float, tilt: float) -> float:
    """Sum of the products of two distances from ``mean``: of each with itself, or with its neighbour."""
    ones, a, b, aa, ab, bb = sums
    return aa + tilt * ab + tilt * tilt * bb - mean * (a + tilt * b) + mean * mean * ones


def _correlation(squares: float, products: float, count: int) -> float:
    """Of neighbours, as far as the series can tell, rather too high than too low."""
    found = min(1.0, max(-1.0, products / squares)) if squares > 0 else 0.0
    found = min(MOST_CORRELATION, max(0.0, found + (1 + 3 * found) / count))
    return min(MOST_CORRELATION, found + CORRELATION_ERRORS * math.sqrt((1 - found * found) / count))

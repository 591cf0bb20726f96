"""Where the arrival rate will be when a replica that is asked for now answers.

A line through the last two horizons (least squares), damped: the trend of a rate fades (Gardner and McKenzie,
"Forecasting trends in time series", 1985). It is tracked: what it would have said at earlier moments, from what was
known then, against what came, beside the error of expecting no change. While its error is the larger one, it has no
vote.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from enginewright.core.scaling.arrivals import Interval, merged

# A trend fades to this share of itself over one horizon, so that it is carried on by less than a whole one.
DAMPING = 0.5
# Cells that a horizon is cut into: arrivals are added up in them, and a forecast of each moment is judged.
CELLS = 4
# Forecasts that must have been judged before one may vote.
JUDGED = 4
# Of so many horizons, the newest, forecasts are judged.
HORIZONS = 12
# That many horizons are looked at, at most: between two cells may be half of one, and each may be half as long again.
REACH = 2 * HORIZONS


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """``rate`` is requests a second at the horizon. ``error`` and ``naive`` are mean absolute errors of this method and
    of expecting no change, in requests a second; ``judged`` the forecasts that they are of."""

    rate: float
    error: float = math.inf
    naive: float = 0.0
    judged: int = 0

    @property
    def votes(self) -> bool:
        return self.judged >= JUDGED and self.error < self.naive


def forecast(seen: Sequence[Interval], horizon: float) -> Forecast | None:
    """None without two horizons of history."""
    cells = _cells(seen, horizon / CELLS)
    if len(cells) < 2 * CELLS:
        return None
    errors, naive = [], []
    for end in range(2 * CELLS, len(cells) - CELLS + 1):
        came = cells[end + CELLS - 1]
        errors.append(abs(_ahead(cells[end - 2 * CELLS : end]) - came))
        naive.append(abs(_flat(cells[:end]) - came))
    return Forecast(
        rate=_ahead(cells[-2 * CELLS :]),
        error=math.fsum(errors) / len(errors) if errors else math.inf,
        naive=math.fsum(naive) / len(naive) if naive else 0.0,
        judged=len(errors),
    )


def _flat(cells: Sequence[float]) -> float:
    return math.fsum(cells[-CELLS:]) / CELLS


def _ahead(cells: Sequence[float]) -> float:
    """The line's value at its end, and its damped rise over one horizon."""
    count = len(cells)
    middle = (count - 1) / 2
    mean = math.fsum(cells) / count
    slope = math.fsum((index - middle) * cell for index, cell in enumerate(cells)) / math.fsum(
        (index - middle) ** 2 for index in range(count))
    steps = CELLS * (1 - DAMPING) / -math.log(DAMPING)
    return max(0.0, mean + slope * (middle + steps))


def _cells(seen: Sequence[Interval], seconds: float) -> list[float]:
    """Rates over neighbouring cells of about ``seconds`` that end now, oldest first, as far back as there is no gap and
    what is remembered is fine enough."""
    cells = merged(seen, seconds, HORIZONS * CELLS)
    found: list[float] = []
    edge = cells[-1].time if cells else 0.0
    for cell in reversed(cells):
        if abs(edge - cell.time) > seconds / 2 or cell.seconds > 1.5 * seconds:
            break
        edge = cell.time - cell.seconds
        found.append(cell.arrived / cell.seconds)
    return found[::-1]

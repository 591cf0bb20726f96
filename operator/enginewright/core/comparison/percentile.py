"""The candidate's latency at the objective's percentile, by the quantile that its servers export."""

from __future__ import annotations

import math
from typing import Final

from enginewright.core.comparison.latency import ALPHA, TAIL_WINDOW
from enginewright.core.comparison.question import Limits
from enginewright.core.sequential import FEWEST_VALUES, Series
from enginewright.core.signals import Traffic

# What makes replicas export it.
EXPORTED_BY: Final = "config.serverArgs of the operator's chart with --metrics-config=summary_latencies=true"


class Percentile:
    """Logarithms of it in milliseconds, one of each window. A window is a minute, as in
    :class:`~enginewright.core.comparison.latency.Tail`, or as many as it takes for ``needed`` requests to each replica:
    the percentile of fewer is the slowest of them. The largest of several minutes is no less than that of their
    requests together. The first minute does not count.
    """

    def __init__(self, needed: int) -> None:
        self.needed = needed
        self.logs = Series()
        self._due: float | None = None
        self._requests = self._slowest = 0.0

    @property
    def exported(self) -> bool:
        return self._due is not None

    @property
    def known(self) -> bool:
        return self.logs.count >= FEWEST_VALUES

    def add(self, time: float, seen: Traffic) -> None:
        """What the candidate did in a round at ``time``, in seconds."""
        if self._due is None:
            self._due = time + TAIL_WINDOW if seen.p99 else None
            return
        self._requests += seen.requests
        if time < self._due or not seen.p99:
            return
        self._due = time + TAIL_WINDOW
        self._slowest = max(self._slowest, seen.p99)
        if self._requests >= self.needed * max(1, seen.replicas):
            self.logs.add(math.log(self._slowest))
            self._requests = self._slowest = 0.0


def missed(found: Percentile, limits: Limits, alpha: float = ALPHA) -> str:
    """How the objective is missed for certain, but for a chance of ``alpha``; empty where it is not, or may be."""
    interval = found.logs.interval(alpha)
    if limits.milliseconds is None or interval is None or interval.low <= math.log(limits.milliseconds):
        return ""
    return (f"{_figures(found, limits)}. Raise spec.objective.latency.milliseconds, use faster hardware, or set "
            f"spec.rollout.requireObjective to false.")


def unknown(found: Percentile, limits: Limits) -> str:
    """What is missing before the objective is known to be kept; empty where it is. What the build showed counts as
    well: then the best estimate will do, and where nothing is exported there is no other."""
    if limits.milliseconds is None:
        return ""
    name = f"p{limits.percentile:g}"
    if not found.exported:
        return "" if limits.shown else (
            f"{name} takes {found.needed} requests, of which the build measured fewer, and replicas do not export it "
            f"({EXPORTED_BY})")
    if not found.known:
        return (f"{name} is known after {FEWEST_VALUES} windows of a minute and {found.needed} requests to each "
                f"replica, and there were {found.logs.count}")
    interval, most = found.logs.interval(ALPHA), math.log(limits.milliseconds)
    if interval and (interval.high <= most or (limits.shown and interval.mean <= most)):
        return ""
    return f"{_figures(found, limits)} is too close to tell"


def _figures(found: Percentile, limits: Limits) -> str:
    interval = found.logs.interval(ALPHA)
    name = f"p{limits.percentile:g}"
    if interval is None:
        return f"{name} of {limits.milliseconds:g} ms allowed"
    mean, low, high = (math.exp(one) for one in (interval.mean, interval.low, interval.high))
    return (f"{name} {mean:.3g} ms ({low:.3g} to {high:.3g}) of {limits.milliseconds:g} ms allowed, over "
            f"{found.logs.count} windows of {found.needed} requests or more")

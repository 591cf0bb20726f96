"""Arrivals and requests in execution, from counters that replicas keep of what they have answered.

What came since the scrape before is what was answered meanwhile and what the queue grew by. Triton has no gauge of
requests in execution: their mean is the time that answered requests spent there, per second (Little's law).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from enginewright.clients.signals import ReplicaMetrics


@dataclass(frozen=True, kw_only=True)
class _Totals:
    """``answered`` are requests that succeeded or failed, ``executed`` the seconds that they spent in execution."""

    time: float
    answered: float
    queued: float
    executed: float

    @classmethod
    def of(cls, metrics: ReplicaMetrics, time: float) -> _Totals:
        answered = sum(metrics.successes.values()) + sum(metrics.failures.values())
        return cls(time=time, answered=answered, queued=metrics.queued,
                   executed=(metrics.busy - metrics.queued_for) / 1e6)  # fmt: skip


class Arrivals:
    """Of one object. A replica's counters start at any value, and at zero again with its server."""

    def __init__(self) -> None:
        self._last: dict[str, _Totals] = {}
        self._time: float | None = None

    def update(self, time: float, scraped: Mapping[str, ReplicaMetrics], pods: Iterable[str]
               ) -> tuple[float | None, float | None]:  # fmt: skip
        """(arrived since the update before, in execution on average), over all ``pods``. None and None when one of them
        did not answer, is new, or has started anew: a part is not the whole."""
        seconds = 0.0 if self._time is None else time - self._time
        self._time = time
        wanted, before = set(pods), self._last
        self._last = {name: before[name] for name in wanted & before.keys()}
        self._last |= {name: _Totals.of(metrics, time) for name, metrics in scraped.items()}
        if not wanted or wanted - scraped.keys() or wanted - before.keys() or seconds <= 0:
            return None, None
        arrived = executing = 0.0
        for name in wanted:
            old, new = before[name], self._last[name]
            if new.answered < old.answered:
                return None, None
            # One that was silent for a while tells of a longer time than the others.
            since = new.time - old.time
            arrived += max(0.0, new.answered - old.answered + new.queued - old.queued) * seconds / since
            executing += max(0.0, new.executed - old.executed) / since
        return arrived, executing

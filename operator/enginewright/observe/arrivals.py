"""Arrivals, answers and requests in execution, from counters that replicas keep of what they have answered.

What came since the scrape before is what was answered meanwhile and what the queue grew by, and where the server has a
gauge of it, what is in execution. Triton has none: the mean is the time that answered requests spent there, per second
(Little's law).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from enginewright.clients.signals import ReplicaMetrics
from enginewright.core.signals import Spent

MICROSECONDS = 1e6  # in a second


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Of a language model: input tokens that no cache answered, ``read`` by so many ``started`` requests, and output
    tokens, ``written`` for so many ``ended`` ones. A request under way counts as half of one that ended."""

    read: float = 0.0
    written: float = 0.0
    started: float = 0.0
    ended: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Totals:
    """``answered`` are requests that succeeded or failed, ``rejected`` those that waited too long in a bounded queue,
    ``spent`` is what those took that Triton counts as successes: it times no others. ``tokens`` are a language
    model's."""

    time: float
    answered: float
    rejected: float
    hits: float
    misses: float
    queued: float
    running: float
    spent: Spent
    tokens: Tokens
    inferences: float

    @classmethod
    def of(cls, metrics: ReplicaMetrics, time: float) -> _Totals:
        waited, total = metrics.queued_for / MICROSECONDS, metrics.busy / MICROSECONDS
        spent = Spent(time, metrics.timed, waited, total - waited, metrics.executions)
        return cls(time=time, answered=metrics.timed + sum(metrics.failures.values()) - metrics.rejected,
                   rejected=metrics.rejected, hits=metrics.hits, misses=metrics.misses, queued=metrics.queued,
                   running=metrics.running, spent=spent, inferences=metrics.inferences,
                   tokens=Tokens(read=max(0.0, metrics.prompt_tokens - metrics.cached_tokens),
                                 written=metrics.generated_tokens))

    @property
    def left(self) -> float:
        """Requests that have come and gone."""
        return self.answered + self.rejected

    @property
    def came(self) -> float:
        return self.left + self.queued + self.running

    def tokens_since(self, before: _Totals) -> Tokens:
        answered, running = self.answered - before.answered, self.running - before.running
        return Tokens(read=max(0.0, self.tokens.read - before.tokens.read),
                      written=max(0.0, self.tokens.written - before.tokens.written),
                      started=answered + running, ended=answered + running / 2)


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Since the update before: requests that ``arrived`` and requests ``executing`` on average, over all replicas, and
    those ``served`` by each that was asked both times, with what that ``spent``. What queues ``rejected``, as far as it
    is known, has arrived and was not served. None where one of the replicas cannot
    tell: a part is not the whole. ``tokens`` are those of each that was asked both times, ``inferences`` the batch
    elements that these computed, of a language model the tokens of answers; None where no replica answered twice.
    ``hits`` were answered from a response cache, as far as it is known: they are no work, and are neither among those
    that ``arrived`` nor those ``served``. ``misses`` are."""

    arrived: float | None = None
    rejected: float = 0.0
    executing: float | None = None
    served: Mapping[str, float] = field(default_factory=dict)
    spent: Mapping[str, Spent] = field(default_factory=dict)
    tokens: Mapping[str, Tokens] = field(default_factory=dict)
    inferences: float | None = None
    hits: float = 0.0
    misses: float = 0.0


class Arrivals:
    """Of one object. A replica's counters start at any value, and at zero again with its server."""

    def __init__(self) -> None:
        self._last: dict[str, _Totals] = {}
        self._time: float | None = None

    def update(self, time: float, scraped: Mapping[str, ReplicaMetrics], pods: Iterable[str]) -> Growth:
        """Over all ``pods``."""
        last, self._time = self._time, time
        seconds = 0.0 if last is None else time - last
        wanted, before = set(pods), self._last
        self._last = {name: before[name] for name in wanted & before.keys()}
        self._last |= {name: _Totals.of(metrics, time) for name, metrics in scraped.items()}
        known = {name: (before[name], self._last[name]) for name in sorted(wanted & before.keys() & scraped.keys())}
        known = {name: (old, new) for name, (old, new) in known.items() if old.answered <= new.answered}
        both = {name: (old, new) for name, (old, new) in known.items() if old.time == last}
        served = {name: new.answered - old.answered for name, (old, new) in both.items()}
        spent = {name: grown for name, (old, new) in both.items() if (grown := new.spent.since(old.spent)) is not None}
        grown_by = {name: new.tokens_since(old) for name, (old, new) in known.items()}
        tokens = {name: grown_by[name] for name in both}
        rejected = sum(max(0.0, new.rejected - old.rejected) for old, new in known.values())
        inferences = sum(max(0.0, new.inferences - old.inferences) + grown_by[name].written
                         for name, (old, new) in known.items()) if known else None
        hits, misses = (sum(max(0.0, getattr(new, name) - getattr(old, name)) for old, new in known.values())
                        for name in ("hits", "misses"))
        if not wanted or len(known) < len(wanted) or seconds <= 0:
            return Growth(served=served, spent=spent, rejected=rejected, tokens=tokens, inferences=inferences,
                          hits=hits, misses=misses)
        arrived = executing = 0.0
        for old, new in known.values():
            # One that was silent for a while tells of a longer time than the others.
            since = new.time - old.time
            arrived += max(0.0, new.came - old.came) * seconds / since
            executing += max(0.0, new.spent.computed - old.spent.computed) / since
        return Growth(arrived=arrived, rejected=rejected, executing=executing, served=served, spent=spent,
                      tokens=tokens, inferences=inferences, hits=hits, misses=misses)

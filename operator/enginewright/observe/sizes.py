"""How large the requests of a language model are: what comes and is answered, in requests of the size that was
measured (core/scaling/work.py)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from enginewright.clients.signals import ReplicaMetrics
from enginewright.core.scaling.work import requests_of
from enginewright.observe.arrivals import Growth, Tokens
from enginewright_builder.contract import TokenWork

# The newest requests that count, and as how many of them the measured size counts: sizes differ much, and the mean of
# a few says little.
LOOKED: Final = 200.0
PRIOR: Final = 10.0


class Sizes:
    """Of the requests of all replicas together, the newest."""

    def __init__(self) -> None:
        self._kept: deque[Tokens] = deque()
        self._sum = Tokens()

    def add(self, grown: Mapping[str, Tokens]) -> None:
        """What each replica did between two scrapes."""
        for one in grown.values():
            if one != Tokens():
                self._kept.append(one)
                self._sum = _added(self._sum, one, 1)
        while self._kept and self._sum.started - self._kept[0].started >= LOOKED:
            self._sum = _added(self._sum, self._kept.popleft(), -1)

    def mean(self, work: TokenWork) -> float:
        """The work of a request, in requests of the measured size."""
        came = self._sum
        read = (PRIOR * work.input_tokens + came.read) / (PRIOR + max(0.0, came.started))
        written = (PRIOR * work.output_tokens + came.written) / (PRIOR + max(0.0, came.ended))
        return requests_of(work, read, written)


def _added(these: Tokens, those: Tokens, sign: int) -> Tokens:
    return Tokens(read=these.read + sign * those.read, written=these.written + sign * those.written,
                  started=these.started + sign * those.started, ended=these.ended + sign * those.ended)


def in_work(grown: Growth, work: TokenWork, size: float) -> Growth:
    """``size`` is that of a request which has come: what it will take is not known before its end. What requests took
    is left out: it is not the time until the first token, which the curve has."""
    served = {pod: requests_of(work, one.read, one.written) for pod, one in grown.tokens.items()}
    arrived = None if grown.arrived is None else size * grown.arrived
    return replace(grown, arrived=arrived, served=served, spent={})


def gauges(scraped: Mapping[str, ReplicaMetrics]) -> tuple[dict[str, float], dict[str, float]]:
    """Requests under way, and the share of the KV cache in use, of replicas that tell the latter."""
    told = {pod: one for pod, one in scraped.items() if one.cache_used is not None}
    return {pod: one.running for pod, one in told.items()}, {pod: one.cache_used or 0.0 for pod, one in told.items()}

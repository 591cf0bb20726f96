"""Figures of many answers: percentiles of the times of tokens, rates, and goodput at an objective."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from enginewright_builder.generate.answer import Answer
from enginewright_builder.load.result import nearest_rank

PERCENTILES = (50.0, 90.0, 99.0)


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What one request has to keep, in milliseconds: until its first token, and for each token after it. 0: not asked
    for."""

    ttft_ms: float = 0.0
    tpot_ms: float = 0.0

    def met_by(self, answer: Answer) -> bool:
        """A request that failed meets nothing; one of a single token has no time for each token after it."""
        ttft, tpot = answer.ttft_seconds, answer.tpot_seconds
        if answer.error or ttft is None:
            return False
        return ((not self.ttft_ms or ttft * 1e3 <= self.ttft_ms)
                and (not self.tpot_ms or tpot is None or tpot * 1e3 <= self.tpot_ms))


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Milliseconds by the nearest rank, so each is one that was seen; 0 of nothing."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of the answers that were due within ``seconds``. ``failed`` and ``errors`` count all that was sent, whenever.
    Rates are a second; ``goodput`` is of requests that meet the objective, ``within`` their share of those due."""

    seconds: float
    requests: int
    failed: int
    errors: Mapping[str, int]
    finishes: Mapping[str, int]
    ttft_ms: Spread
    tpot_ms: Spread
    gap_ms: Spread
    input_tokens: int
    output_tokens: int
    output_rate: float
    request_rate: float
    goodput: float
    within: float

    @property
    def late(self) -> int:
        """Requests that did not meet the objective."""
        return self.requests - round(self.within * self.requests)


def figures(answers: Sequence[Answer], *, begin: float, end: float, objective: Objective | None = None) -> Figures:
    """``begin`` and ``end`` are on the clock of the answers. Tokens count by when they came, requests by when they
    were due. The tokens of a request that failed count for nothing: its client has no answer."""
    seconds = max(end - begin, 1e-9)
    due = [one for one in answers if begin <= one.due <= end]
    good = [one for one in due if not one.error]
    met = sum(map((objective or Objective()).met_by, due))
    came = sum(arrival.tokens for one in answers if not one.error
               for arrival in one.arrivals if begin <= arrival.seconds <= end)
    errors = Counter(_kind(one.error) for one in answers if one.error)
    return Figures(
        seconds=seconds, requests=len(due), failed=errors.total(), errors=dict(errors),
        finishes=dict(Counter(one.finish for one in good)),
        ttft_ms=_spread(one.ttft_seconds for one in good), tpot_ms=_spread(one.tpot_seconds for one in good),
        gap_ms=_spread(gap for one in good for gap in one.gaps_seconds),
        input_tokens=sum(one.prompt_tokens for one in good), output_tokens=sum(one.output_tokens for one in good),
        output_rate=came / seconds, request_rate=sum(begin <= one.end <= end for one in good) / seconds,
        goodput=met / seconds, within=met / len(due) if due else 0.0)


def _kind(error: str) -> str:
    """Messages with numbers of their own would each be counted alone."""
    return error.partition(":")[0]


def _spread(seconds: Iterable[float | None]) -> Spread:
    ordered = sorted(one * 1e3 for one in seconds if one is not None)
    p50, p90, p99 = (nearest_rank(ordered, percentile) for percentile in PERCENTILES)
    return Spread(p50=p50, p90=p90, p99=p99)

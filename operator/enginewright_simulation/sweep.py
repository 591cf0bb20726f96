"""What a build would measure of a language model's replica: rising numbers of requests in flight, until one level
breaks the objective or gains little (enginewright_builder/generate/sweep.py does so with vLLM)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from enginewright.core.scaling import Capacity
from enginewright.core.scaling.evidence import of_tokens
from enginewright.core.scaling.work import work_of
from enginewright.core.spec.engine import TokensSpec
from enginewright_simulation.results import percentile
from enginewright_simulation.server import Ledger
from enginewright_simulation.tokens import Asked, TokenReplica, TokenService

# As the builder has them: requests in flight, how many times as many are sent, and the fewest.
LEVELS, ROUNDS, FEWEST = (1, 4, 16, 64, 256), 2, 4
FULL = 1.05


class _Load(NamedTuple):
    """``at_once`` requests in flight: seconds until the first token (median), output tokens and requests in time a
    second."""

    at_once: int
    first: float
    output_rate: float
    goodput: float


def measured(service: TokenService, sizes: Sequence[Asked], asked: TokensSpec, cold_start: float) -> Capacity | None:
    """By requests of ``sizes``, again and again. None where no number in flight keeps the objective."""
    best: _Load | None = None
    for level in LEVELS:
        found = _load(service, sizes, level, asked)
        if found is None or (best and found.goodput < FULL * best.goodput):
            break
        best = found
    return _capacity(service, sizes, best, asked, cold_start) if best else None


def _load(service: TokenService, sizes: Sequence[Asked], level: int, asked: TokensSpec) -> _Load | None:
    """``level`` requests in flight, the next when one is answered; None where the objective is broken."""
    ledger = Ledger((asked.ttft_milliseconds or math.inf) / 1e3, (asked.tpot_milliseconds or math.inf) / 1e3)
    replica = TokenReplica("swept", service, ledger, 0.0, 0.0)
    wanted, sent = max(FEWEST, ROUNDS * level), 0
    while len(ledger.latencies) < wanted:
        while sent < wanted and sent - len(ledger.latencies) < level:
            one = sizes[sent % len(sizes)]
            replica.queue.append(Asked.at(replica.clock, one.read, one.written))
            sent += 1
        replica.advance(replica.clock)
    if len(ledger.late) * 100 > (100 - asked.percentile) * wanted:
        return None
    return _Load(at_once=level, first=percentile(sorted(ledger.latencies), 50),
                 output_rate=replica.metrics().generated_tokens / replica.clock,
                 goodput=(wanted - len(ledger.late)) / replica.clock)


def _capacity(service: TokenService, sizes: Sequence[Asked], load: _Load, asked: TokensSpec, cold: float
              ) -> Capacity | None:
    wanted = max(FEWEST, ROUNDS * load.at_once)
    used = [sizes[number % len(sizes)] for number in range(wanted)]
    read, written = (sum(getattr(one, name) for one in used) / wanted for name in ("read", "written"))
    return of_tokens(load.at_once, load.first, work_of(read, written, service.input_seconds, load.output_rate), asked,
                     cold)

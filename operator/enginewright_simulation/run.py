"""The loop over time: requests come, replicas become ready, and once a second the policy decides."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from enginewright.core.scaling import Capacity
from enginewright.core.signals import Spent
from enginewright_simulation.curve import Service
from enginewright_simulation.fleet import Fleet
from enginewright_simulation.luck import stream
from enginewright_simulation.policies.base import Policy, Seen
from enginewright_simulation.server import Ledger
from enginewright_simulation.tokens import TokenService

# Production scrapes once a second, and the peers may look as often.
TICK = 1.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What all policies share. ``slo`` and ``cold_start`` in seconds; ``throughput`` is the rate of one replica within
    the objective, as a build measured it, None for its capacity. Of a language model ``slo`` is of the first token and
    ``tpot`` of each after it, and ``capacity`` what a build would measure."""

    service: Service | TokenService
    throughput: float | None = None
    slo: float = 0.1
    percentile: float = 99.0
    min_replicas: int = 1
    max_replicas: int = 20
    cold_start: float = 20.0
    seed: int = 0
    tpot: float = math.inf
    capacity: Capacity | None = None

    @property
    def measured(self) -> Capacity:
        """What the operator would know of a replica: a build gives it each batch as a client sees it. An instance that
        stays taken after its answer is one that answers so much later, and may. Of a language model it is given."""
        if self.capacity is not None or isinstance(self.service, TokenService):
            return self.capacity or Capacity(throughput=1.0)
        seconds, pause = self.service.seconds, self.service.pause
        seen = self.service.transport + pause
        return Capacity(
            throughput=self.throughput or self.service.capacity,
            curve=tuple((batch, seconds[batch] + seen) for batch in range(1, len(seconds))),
            instances=self.service.instances, objective_seconds=self.slo + pause, percentile=self.percentile,
            cold_start_seconds=self.cold_start, delay_seconds=self.service.queue_delay,
        )


@dataclass(frozen=True)
class Moment:
    """At the end of one second. ``replicas`` are ready ones, ``waiting`` requests that no instance has taken up."""

    time: float
    replicas: int
    starting: int
    waiting: int


@dataclass(kw_only=True)
class Run:
    """One policy under one trace. ``changes`` are (time, from, to) replicas; ``end`` is the last arrival, up to which
    replicas are paid for."""

    ledger: Ledger
    end: float
    replica_seconds: float = 0.0
    moments: list[Moment] = field(default_factory=list)
    changes: list[tuple[float, int, int]] = field(default_factory=list)


def throw_dice(arrivals: Sequence[float], seed: int) -> list[float]:
    """One number for each request, the same for all policies: they differ by what they do, not by luck."""
    draw = stream("dispatch", seed).random
    return [draw() for _ in arrivals]


def simulate(arrivals: Sequence[float], policy: Policy, scenario: Scenario, dice: Sequence[float] | None = None) -> Run:
    """``arrivals`` are seconds from 0, sorted, at least one; all of them are answered."""
    dice = throw_dice(arrivals, scenario.seed) if dice is None else dice
    ledger = Ledger(scenario.slo, scenario.tpot)
    fleet = Fleet(scenario.service, ledger, scenario.cold_start, policy.initial)
    run = Run(ledger=ledger, end=arrivals[-1])
    sent, counted, tick = 0, 0, 0.0
    counters: dict[str, Spent] = {}
    while sent < len(arrivals) or fleet.waiting or tick <= run.end:
        now = min(tick, fleet.next_ready())
        until = bisect_right(arrivals, now, sent)
        if until > sent:
            fleet.send(arrivals[sent:until], dice[sent:until])
            sent = until
        fleet.advance(now)
        fleet.admit(now)
        if now < tick:
            continue
        _decide(run, fleet, policy, scenario, now, sent - counted, counters)
        counted = sent
        tick += TICK
        if now <= run.end < tick:
            # Paid for until the trace ends; what happens later only empties the queues.
            run.replica_seconds = fleet.replica_seconds(run.end)
    fleet.finish()
    return run


def _decide(run: Run, fleet: Fleet, policy: Policy, scenario: Scenario, now: float, arrived: int,
            counters: dict[str, Spent]) -> None:
    """``counters`` are those of each ready replica as of the second before; they are brought up to now."""
    before = dict(counters)
    counters.clear()
    counters |= {one.name: one.spent(now) for one in fleet.ready}
    spent = {name: grown for name, new in counters.items()
             if name in before and (grown := new.since(before[name])) is not None and grown.seconds > 0}
    seen = Seen(
        time=now,
        desired=fleet.desired,
        pending={one.name: float(len(one.queue)) for one in fleet.ready},
        inflight=sum(one.executing(now) for one in fleet.ready),
        arrived=arrived,
        starting=tuple(now - one.created for one in fleet.starting),
        held=len(fleet.held),
        served={name: grown.answered for name, grown in spent.items()}, spent=spent,
        metrics=fleet.metrics,
    )
    wanted = max(scenario.min_replicas, min(scenario.max_replicas, policy.decide(seen)))
    if now > run.end:
        wanted = max(1, wanted)  # else requests that are held would never be answered
    if wanted != fleet.desired:
        if now <= run.end:
            run.changes.append((now, fleet.desired, wanted))
        fleet.scale(wanted, now)
    run.moments.append(Moment(now, len(fleet.ready), len(fleet.starting), fleet.waiting))

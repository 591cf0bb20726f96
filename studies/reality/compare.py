"""One load on real replicas and on simulated ones."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from enginewright_builder.load import poisson_arrivals
from enginewright_builder.load.result import nearest_rank
from enginewright_simulation.curve import Service
from enginewright_simulation.run import Scenario, simulate, throw_dice
from enginewright_simulation.scale import scaled
from reality.replay import Replicas

# No objective decides here: replicas are fixed, and nothing is late.
NO_LIMIT = 1e6
NAMES = ("p50_ms", "p95_ms", "throughput")


class Figures(TypedDict):
    p50_ms: float
    p95_ms: float
    throughput: float


class Repeat(TypedDict):
    """``pace`` is how long the replicas took for their batches during the replay ÷ what was measured around it;
    ``at_pace`` what the simulator says of replicas that are so much slower. ``failed`` counts real requests."""

    failed: int
    real: Figures
    simulated: Figures
    pace: float
    at_pace: Figures


class Row(TypedDict):
    """``load`` is a share of what the replicas answer with full batches, ``rate`` what was sent, in requests a
    second; ``off`` and ``off_at_pace`` are medians over the repeats of simulated ÷ real less 1."""

    load: float
    rate: float
    requests: int
    repeats: list[Repeat]
    off: Figures
    off_at_pace: Figures


class Fixed:
    """A policy that never changes the number of replicas."""

    def __init__(self, replicas: int) -> None:
        self.initial = replicas

    def decide(self, _: object) -> int:
        return self.initial


def offered(trace: Sequence[float] | None, rate: float, seconds: float, seed: int) -> list[float]:
    """Arrivals of ``seconds`` at about ``rate`` a second: the beginning of ``trace``, scaled, or Poisson's."""
    if trace is None:
        return list(itertools.takewhile(lambda time: time < seconds, poisson_arrivals(rate, seed)))
    own = sum(time < seconds for time in trace) / seconds
    return [time for time in scaled(trace, rate / own, seed) if time < seconds]


def sustained(service: Service) -> float:
    """Requests a second of a replica whose queue is never empty: without a delay, all its batches are full then."""
    return service.instances * service.max_batch / (service.seconds[-1] + service.pause)


async def compare(replicas: Replicas, load: float, arrivals: Sequence[float], repeats: int, seed: int) -> Row:
    """``arrivals`` are spread over the replicas by lot, as connections are; no replica touches another. Their times
    are measured before and after each replay: other work of the machine comes and goes."""
    count, end = len(replicas.servers), arrivals[-1]
    dice = throw_dice(arrivals, seed)
    shares = [[came for came, die in zip(arrivals, dice, strict=True) if int(die * count) == number]
              for number in range(count)]
    found: list[Repeat] = []
    before = await replicas.measured()
    for _ in range(repeats):
        replayed = await replicas.replay(shares, end)
        after = await replicas.measured()
        service = between(before, after)
        pace = slower(replayed.batches, service)
        paced = replace(service, seconds=tuple(one * pace for one in service.seconds), wake=0.0)  # it is in the pace
        latencies = [one for result in replayed.results for one in result.latencies_ms]
        found.append({"failed": sum(result.failed for result in replayed.results),
                      "real": figures(latencies, sum(result.throughput for result in replayed.results)),
                      "simulated": simulated(shares, service, end), "pace": pace,
                      "at_pace": simulated(shares, paced, end)})
        before = after
    return {"load": load, "rate": len(arrivals) / end, "requests": len(arrivals), "repeats": found,
            "off": off([(one["simulated"], one["real"]) for one in found]),
            "off_at_pace": off([(one["at_pace"], one["real"]) for one in found])}


def between(one: Service, other: Service) -> Service:
    seconds = tuple((early + late) / 2 for early, late in zip(one.seconds, other.seconds, strict=True))
    return replace(one, seconds=seconds, wake=(one.wake + other.wake) / 2,
                   transport=(one.transport + other.transport) / 2)


def slower(batches: Mapping[int, tuple[int, float]], service: Service) -> float:
    """How many times as long these batches took as ``service`` says."""
    expected = sum(count * service.seconds[batch] for batch, (count, _) in batches.items())
    return sum(spent for _, spent in batches.values()) / expected if expected else 1.0


def off(pairs: Sequence[tuple[Figures, Figures]]) -> Figures:
    p50, p95, throughput = (statistics.median(simulated[name] / real[name] - 1 for simulated, real in pairs)
                            for name in ("p50_ms", "p95_ms", "throughput"))
    return {"p50_ms": p50, "p95_ms": p95, "throughput": throughput}


def simulated(shares: Sequence[Sequence[float]], service: Service, end: float) -> Figures:
    latencies = [one_replica(share, service) for share in shares]
    answered = sum(1 for share, own in zip(shares, latencies, strict=True)
                   for came, latency in zip(share, own, strict=True) if came + latency <= end)
    return figures([one * 1e3 for own in latencies for one in own], answered / end)


def one_replica(arrivals: Sequence[float], service: Service) -> list[float]:
    """Seconds to each answer of one replica, in the order of the arrivals: that is how they are taken up."""
    scenario = Scenario(service=service, slo=NO_LIMIT, min_replicas=1, max_replicas=1)
    return list(simulate(arrivals, Fixed(1), scenario).ledger.latencies)


def figures(latencies_ms: Sequence[float], throughput: float) -> Figures:
    ordered_ms = sorted(latencies_ms)
    return {"p50_ms": nearest_rank(ordered_ms, 50.0), "p95_ms": nearest_rank(ordered_ms, 95.0),
            "throughput": throughput}

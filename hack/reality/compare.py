"""One load on real replicas and on simulated ones."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from tritonclient.utils import triton_to_np_dtype

from enginewright.simulation.curve import Service, of_points
from enginewright.simulation.run import Scenario, simulate, throw_dice
from enginewright.simulation.scale import scaled
from enginewright_builder.contract import MODEL_REPOSITORY, SMOKE_FILE
from enginewright_builder.load import Channels, LoadResult, Request, closed_loop, encode, open_loop, poisson_arrivals
from enginewright_builder.load.result import nearest_rank
from enginewright_builder.sweep.bench import CALL_TIMEOUT, curve_batches, resized
from enginewright_builder.triton.server import TritonServer

# No objective decides here: replicas are fixed, and nothing is late.
NO_LIMIT = 1e6
CONNECTIONS = 4
# Of each batch of the service curve.
CURVE_SECONDS = 3.0


class Figures(TypedDict):
    p50_ms: float
    p95_ms: float
    throughput: float


class Row(TypedDict):
    """``rate`` is of what was sent, in requests a second; ``failed`` counts real requests."""

    rate: float
    requests: int
    failed: int
    real: Figures
    simulated: Figures


class Fixed:
    """A policy that never changes the number of replicas."""

    def __init__(self, replicas: int) -> None:
        self.initial = replicas

    def decide(self, _: object) -> int:
        return self.initial


@dataclass(frozen=True)
class Places:
    """The cores of the client and of each replica."""

    client: frozenset[int]
    replicas: tuple[frozenset[int], ...]


def places(cores: Sequence[int], replicas: int) -> Places:
    """The first core for the client, the others dealt out evenly; all for everybody where there are too few."""
    if len(cores) <= replicas:
        return Places(frozenset(cores), (frozenset(cores),) * replicas)
    each = (len(cores) - 1) // replicas
    return Places(frozenset(cores[:1]), tuple(frozenset(cores[1 + each * number:1 + each * (number + 1)])
                                              for number in range(replicas)))  # fmt: skip


def offered(trace: Sequence[float] | None, rate: float, seconds: float, seed: int) -> list[float]:
    """Arrivals of ``seconds`` at about ``rate`` a second: the beginning of ``trace``, scaled, or Poisson's."""
    if trace is None:
        return list(itertools.takewhile(lambda time: time < seconds, poisson_arrivals(rate, seed)))
    own = sum(time < seconds for time in trace) / seconds
    return [time for time in scaled(trace, rate / own, seed) if time < seconds]


async def measured(engine: Path, service: Service, places: Places) -> Service:
    """``service`` with the time of each batch as one replica takes it where it is to stand: a build's own curve is of
    a server that shared its cores with the client that asked it."""
    repository, model = _model(engine)
    samples = _samples(engine)
    points = {}
    async with started(repository, model, places.replicas[0]) as channels:
        for batch in curve_batches(service.max_batch):
            request = [encode(model, resized(samples, batch), batch=batch)]
            for seconds in (CURVE_SECONDS / 5, CURVE_SECONDS):  # the first answers are slow
                result = await closed_loop(channels, request, concurrency=service.instances, seconds=seconds,
                                           timeout=CALL_TIMEOUT)  # fmt: skip
            points[batch] = result.p50_ms / 1e3
    return replace(service, seconds=of_points(points, service.max_batch, "the curve measured here"))


async def compare(engine: Path, service: Service, arrivals: Sequence[float], places: Places, seed: int) -> Row:
    """``arrivals`` are spread over the replicas by lot, as connections are; no replica touches another."""
    replicas = len(places.replicas)
    dice, end = throw_dice(arrivals, seed), arrivals[-1]
    shares = [[came for came, die in zip(arrivals, dice, strict=True) if int(die * replicas) == number]
              for number in range(replicas)]  # fmt: skip
    results = await _replayed(engine, shares, places, end)
    simulated = [_simulated(share, service) for share in shares]
    answered = sum(1 for share, latencies in zip(shares, simulated, strict=True)
                   for came, latency in zip(share, latencies, strict=True) if came + latency <= end)  # fmt: skip
    return {"rate": len(arrivals) / end, "requests": len(arrivals),
            "failed": sum(result.failed for result in results),
            "real": _figures([one for result in results for one in result.latencies_ms],
                             sum(result.throughput for result in results)),
            "simulated": _figures([one * 1e3 for latencies in simulated for one in latencies], answered / end)}


def _simulated(arrivals: Sequence[float], service: Service) -> list[float]:
    """Seconds to each answer of one replica, in the order of the arrivals: that is how they are taken up."""
    scenario = Scenario(service=service, slo=NO_LIMIT, min_replicas=1, max_replicas=1)
    return list(simulate(arrivals, Fixed(1), scenario).ledger.latencies)


def _figures(latencies_ms: Sequence[float], throughput: float) -> Figures:
    ordered_ms = sorted(latencies_ms)
    return {"p50_ms": nearest_rank(ordered_ms, 50.0), "p95_ms": nearest_rank(ordered_ms, 95.0),
            "throughput": throughput}  # fmt: skip


async def _replayed(engine: Path, shares: Sequence[Sequence[float]], places: Places,
                    seconds: float) -> list[LoadResult]:  # fmt: skip
    repository, model = _model(engine)
    requests = _requests(model, _samples(engine))
    async with contextlib.AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(started(repository, model, cores)) for cores in places.replicas]
        for each in channels:  # the first answers of a server are slow
            await open_loop(each, requests, iter([0.1 * number for number in range(10)]), seconds=1.0)
        return await asyncio.gather(*(open_loop(each, requests, iter(share), seconds=seconds)
                                      for each, share in zip(channels, shares, strict=True)))  # fmt: skip


@contextlib.asynccontextmanager
async def started(repository: Path, model: str, cores: frozenset[int]) -> AsyncIterator[Channels]:
    """Channels to a replica that runs on ``cores`` alone, as a pod with cores of its own does."""
    async with contextlib.AsyncExitStack() as stack:
        own = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores)
        try:
            server = await stack.enter_async_context(TritonServer(repository, models=(model,)))
        finally:
            os.sched_setaffinity(0, own)
        yield await stack.enter_async_context(Channels(server.grpc_url, count=CONNECTIONS))


def _model(engine: Path) -> tuple[Path, str]:
    repository = engine / MODEL_REPOSITORY
    return repository, next(one.name for one in repository.iterdir() if one.is_dir())


def _samples(engine: Path) -> dict[str, NDArray[Any]]:
    """Those recorded for the smoke test."""
    recorded: dict[str, Any] = json.loads((engine / SMOKE_FILE).read_text(encoding="utf-8"))
    return {one["name"]: np.frombuffer(base64.b64decode(one["data"]), triton_to_np_dtype(one["datatype"]))
            .reshape(-1, *one["shape"]) for one in recorded["inputs"]}  # fmt: skip


def _requests(model: str, samples: Mapping[str, NDArray[Any]]) -> list[Request]:
    """Single samples, in an order drawn by lot."""
    count = len(next(iter(samples.values())))
    order = random.Random(0).sample(range(count), count)  # noqa: S311 - not a secret
    return [encode(model, {name: rows[[row]] for name, rows in samples.items()}, batch=1) for row in order]

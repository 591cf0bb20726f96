"""One load on real replicas and on simulated ones."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from tritonclient.utils import triton_to_np_dtype

from enginewright.simulation.curve import Service
from enginewright.simulation.run import Scenario, simulate, throw_dice
from enginewright.simulation.scale import scaled
from enginewright_builder.contract import MODEL_REPOSITORY, SMOKE_FILE
from enginewright_builder.load import Channels, LoadResult, Request, encode, open_loop, poisson_arrivals
from enginewright_builder.load.result import nearest_rank
from enginewright_builder.triton.server import TritonServer

# No objective decides here: replicas are fixed, and nothing is late.
NO_LIMIT = 1e6
CONNECTIONS = 4


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


def offered(trace: Sequence[float] | None, rate: float, seconds: float, seed: int) -> list[float]:
    """Arrivals of ``seconds`` at about ``rate`` a second: the beginning of ``trace``, scaled, or Poisson's."""
    if trace is None:
        return list(itertools.takewhile(lambda time: time < seconds, poisson_arrivals(rate, seed)))
    own = sum(time < seconds for time in trace) / seconds
    return [time for time in scaled(trace, rate / own, seed) if time < seconds]


async def compare(engine: Path, service: Service, arrivals: Sequence[float], replicas: int, seed: int) -> Row:
    """``arrivals`` are spread over the replicas by lot, as connections are; no replica touches another."""
    dice, end = throw_dice(arrivals, seed), arrivals[-1]
    shares = [[came for came, die in zip(arrivals, dice, strict=True) if int(die * replicas) == number]
              for number in range(replicas)]  # fmt: skip
    results = await _replayed(engine, shares, end)
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


async def _replayed(engine: Path, shares: Sequence[Sequence[float]], seconds: float) -> list[LoadResult]:
    repository = engine / MODEL_REPOSITORY
    model = next(one.name for one in repository.iterdir() if one.is_dir())
    requests = _requests(engine, model)
    async with contextlib.AsyncExitStack() as stack:
        channels = []
        for _ in shares:
            server = await stack.enter_async_context(TritonServer(repository, models=(model,)))
            channels.append(await stack.enter_async_context(Channels(server.grpc_url, count=CONNECTIONS)))
        for each in channels:  # the first answers of a server are slow
            await open_loop(each, requests, iter([0.1 * number for number in range(10)]), seconds=1.0)
        return await asyncio.gather(*(open_loop(each, requests, iter(share), seconds=seconds)
                                      for each, share in zip(channels, shares, strict=True)))  # fmt: skip


def _requests(engine: Path, model: str) -> list[Request]:
    """Single samples, in an order drawn by lot, of those recorded for the smoke test."""
    recorded: dict[str, Any] = json.loads((engine / SMOKE_FILE).read_text(encoding="utf-8"))
    columns = {one["name"]: np.frombuffer(base64.b64decode(one["data"]), triton_to_np_dtype(one["datatype"]))
               .reshape(-1, *one["shape"]) for one in recorded["inputs"]}  # fmt: skip
    count = len(next(iter(columns.values())))
    order = random.Random(0).sample(range(count), count)  # noqa: S311 - not a secret
    return [encode(model, {name: rows[[row]] for name, rows in columns.items()}, batch=1) for row in order]

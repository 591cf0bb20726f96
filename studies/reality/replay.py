"""Real replicas: what each batch takes on one, and what the clients of a load see."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.utils import triton_to_np_dtype

from enginewright_builder.contract import MODEL_REPOSITORY, SMOKE_FILE, ServingChoice
from enginewright_builder.load import Channels, LoadResult, Request, encode, open_loop
from enginewright_builder.sweep.curve import service_curve
from enginewright_builder.triton.client import Server
from enginewright_builder.triton.server import TritonServer
from enginewright_simulation.curve import Service, levelled, of_points
from reality.places import Places, put_replica_first

CONNECTIONS = 4
# Of each batch of the service curve.
CURVE_SECONDS = 1.0
# The first answers after a silence are slow.
WARMUP = [0.1 * number for number in range(10)]


@dataclass(frozen=True)
class Engine:
    repository: Path
    model: str
    samples: Mapping[str, NDArray[Any]]

    @classmethod
    def of(cls, folder: Path) -> Engine:
        """An engine in a store, with the samples that were recorded for its smoke test."""
        repository = folder / MODEL_REPOSITORY
        recorded: dict[str, Any] = json.loads((folder / SMOKE_FILE).read_text(encoding="utf-8"))
        samples = {one["name"]: np.frombuffer(base64.b64decode(one["data"]), triton_to_np_dtype(one["datatype"]))
                   .reshape(-1, *one["shape"]) for one in recorded["inputs"]}
        return cls(repository, next(one.name for one in repository.iterdir() if one.is_dir()), samples)

    def requests(self) -> list[Request]:
        """Single samples, in an order drawn by lot."""
        count = len(next(iter(self.samples.values())))
        order = random.Random(0).sample(range(count), count)  # noqa: S311 - not a secret
        return [encode(self.model, {name: rows[[row]] for name, rows in self.samples.items()}, batch=1)
                for row in order]


@dataclass(frozen=True)
class Replayed:
    """``batches``: by size, how many Triton executed and the seconds of all of them together."""

    results: Sequence[LoadResult]
    batches: Mapping[int, tuple[int, float]]


@dataclass(frozen=True)
class Replicas:
    """``service`` is what the build's report says; its times are of another place and day."""

    engine: Engine
    service: Service
    servers: Sequence[Server]
    channels: Sequence[Channels]

    async def measured(self) -> Service:
        """``service`` with the times of one replica here and now, as a build measures them."""
        serving = ServingChoice(max_batch_size=self.service.max_batch, instance_count=self.service.instances)
        curve = await service_curve(self.servers[0], self.engine.model, dict(self.engine.samples), serving,
                                    seconds=float("inf"), each=CURVE_SECONDS)
        points = levelled({one.batch: one.compute_ms / 1e3 for one in curve.points})
        alone = curve.alone or curve.points[0]
        seconds = of_points(points, self.service.max_batch, "the curve measured here")
        return replace(self.service, seconds=seconds, wake=max(0.0, alone.compute_ms / 1e3 - points[1]),
                       transport=alone.transport_ms / 1e3)

    async def replay(self, shares: Sequence[Sequence[float]], seconds: float) -> Replayed:
        """``shares`` are the arrivals of each replica, in seconds from the start."""
        requests = self.engine.requests()
        for each in self.channels:
            await open_loop(each, requests, iter(WARMUP), seconds=1.0)
        before = await self._counted()
        results = await asyncio.gather(*(open_loop(each, requests, iter(share), seconds=seconds)
                                         for each, share in zip(self.channels, shares, strict=True)))
        after = await self._counted()
        grown = {batch: (count - before.get(batch, (0, 0.0))[0], spent - before.get(batch, (0, 0.0))[1])
                 for batch, (count, spent) in after.items()}
        return Replayed(results, {batch: (count, spent) for batch, (count, spent) in grown.items() if count})

    async def _counted(self) -> dict[int, tuple[int, float]]:
        counted: dict[int, tuple[int, float]] = {}
        for server in self.servers:
            for one in (await server.statistics(self.engine.model)).get("batch_stats", ()):
                count, spent = counted.get(one["batch_size"], (0, 0.0))
                parts = [one[f"compute_{part}"]["ns"] / 1e9 for part in ("input", "infer", "output")]
                counted[one["batch_size"]] = (count + one["compute_infer"]["count"], spent + sum(parts))
        return counted


@contextlib.asynccontextmanager
async def started(engine: Engine, service: Service, places: Places, *, first: bool) -> AsyncIterator[Replicas]:
    """Each replica runs on cores of its own, as a pod with cores of its own does; ``first``: before all else there."""
    async with contextlib.AsyncExitStack() as stack:
        servers, channels = [], []
        for cores in places.replicas:
            own = os.sched_getaffinity(0)
            os.sched_setaffinity(0, cores)
            try:
                server = await stack.enter_async_context(TritonServer(engine.repository, models=(engine.model,)))
            finally:
                os.sched_setaffinity(0, own)
            if first:
                put_replica_first(server.pid)
            servers.append(server)
            channels.append(await stack.enter_async_context(Channels(server.grpc_url, count=CONNECTIONS)))
        yield Replicas(engine, service, servers, channels)

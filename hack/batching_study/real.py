"""The same on a real tritonserver: each arm in turn gets the same phases; what the rule wants is loaded under load."""

from __future__ import annotations

import asyncio
import itertools
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from batching_study.model import WIDTH, perceptron
from batching_study.study import LONG, SHORT, percentile
from batching_study.traffic import Phase
from enginewright.clients.model_control import ModelControl
from enginewright.clients.triton import TritonClient
from enginewright.core.batching import SafeSet, Setting, State, begin, follow
from enginewright.core.batching.safe import MICROSECONDS
from enginewright.core.observed import Spent
from enginewright_builder.contract import ServingChoice
from enginewright_builder.load import Channels, Request, closed_loop, encode
from enginewright_builder.sweep.bench import curve_batches
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import HOST, TritonServer

MODEL, MAX_BATCH, SCRAPE = "model", 16, 1.0
TIMEOUT = 30.0
# Of a phase, left out of what is called settled: a rule needs some seconds to see the shift.
SHIFT = 12.0


@dataclass
class Arm:
    """``calls`` are (phase, seconds since its start, latency); ``failed`` counts requests without an answer."""

    name: str
    setting: Setting
    follows: bool = False
    calls: list[tuple[str, float, float]] = field(default_factory=list)
    failed: int = 0
    loads: list[float] = field(default_factory=list)
    why: list[str] = field(default_factory=list)


async def study(rounds: int, seconds: float, say: Callable[[str], None] = print) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="enginewright-batching-") as folder:
        root = Path(folder) / "repository"
        artifact = perceptron(Path(folder))
        write_model(root, MODEL, artifact, ServingChoice(max_batch_size=MAX_BATCH), cores=1,
                    warmup={"x": np.ones((1, WIDTH), np.float32)})  # fmt: skip
        async with (TritonServer(root, models=(MODEL,)) as server, Channels(server.grpc_url, count=4) as channels,
                    ModelControl() as control, TritonClient() as metrics):  # fmt: skip
            bench = Bench(server, channels, control, metrics)
            safe = await bench.measure()
            say(f"curve, ms: {', '.join(f'{batch}: {one * 1e3:.1f}' for batch, one in safe.curve)}")
            arms, phases = _arms(safe), _phases(safe, seconds)
            for number in range(rounds):
                for arm in arms:
                    await bench.play(arm, phases, safe, number)
                    say(f"round {number + 1}: {arm.name}: " + _words(arm))
            return {"curve_ms": {str(batch): round(one * 1e3, 2) for batch, one in safe.curve},
                    "phases": [phase.name for phase in phases], "seconds": seconds, "rounds": rounds,
                    "arms": [_row(arm) for arm in arms]}  # fmt: skip


def _arms(safe: SafeSet) -> list[Arm]:
    alone = safe.curve[0][1] * MICROSECONDS
    short, long = round(SHORT * alone), round(LONG * safe.seconds(4) * MICROSECONDS)
    fixed = [safe.default, Setting(delay_us=short), Setting(delay_us=long, preferred=(4, MAX_BATCH)),
             Setting(delay_us=long, preferred=(8, MAX_BATCH))]  # fmt: skip
    return [*(Arm(f"fixed {one}", one) for one in fixed), Arm("follows", safe.default, follows=True)]


def _phases(safe: SafeSet, seconds: float) -> list[Phase]:
    alone = safe.curve[0][1]
    lone = Phase(name="lone requests", seconds=seconds, rate=0.15 / alone)
    return [lone, *(Phase(name=f"crowd of {clients}", seconds=seconds, clients=clients) for clients in (4, 8))]


class Bench:
    def __init__(self, server: TritonServer, channels: Channels, control: ModelControl, metrics: TritonClient) -> None:
        self._channels, self._control, self._metrics = channels, control, metrics
        self._http, self._scraped = (int(url.rsplit(":", 1)[1]) for url in (server.http_url, server.metrics_address))
        self._load_seconds = server.start_seconds
        self._request = _request(1)

    async def measure(self) -> SafeSet:
        """As a build does it: each batch alone."""
        curve: list[tuple[int, float]] = []
        for batch in curve_batches(MAX_BATCH):
            result = await closed_loop(self._channels, [_request(batch)], concurrency=1, seconds=1.0,
                                       warmup_seconds=0.3)  # fmt: skip
            curve.append((batch, max(result.p50_ms / 1e3, curve[-1][1] if curve else 0.0)))
        return SafeSet(default=Setting(), curve=tuple(curve), max_batch=MAX_BATCH, load_seconds=self._load_seconds,
                       longest_delay_us=round(2 * curve[-1][1] * MICROSECONDS))  # fmt: skip

    async def play(self, arm: Arm, phases: list[Phase], safe: SafeSet, seed: int) -> None:
        await self._control.apply(HOST, MODEL, arm.setting, self._http)
        follower = asyncio.create_task(self._follow(arm, safe)) if arm.follows else None
        try:
            for number, phase in enumerate(phases):
                await self._phase(arm, phase, 100 * seed + number)
        finally:
            if follower is not None:
                follower.cancel()
                await asyncio.wait({follower})

    async def _follow(self, arm: Arm, safe: SafeSet) -> None:
        began = before_time = time.monotonic()
        before = await self._spent()
        state: State = begin(0.0, safe)
        for tick in itertools.count(1):
            await asyncio.sleep(max(0.0, began + tick * SCRAPE - time.monotonic()))
            now, spent = time.monotonic(), await self._spent()
            after = follow(state, now - began, (spent + Spent(seconds=now - before_time)).since(before), safe)
            before, before_time = spent, now
            if after.setting != state.setting:
                start = time.monotonic()
                await self._control.apply(HOST, MODEL, after.setting, self._http)
                arm.loads.append(time.monotonic() - start)
                arm.why.append(f"{now - began:.0f} s: {after.setting}: {after.why}")
            state = after

    async def _spent(self) -> Spent:
        seen = await self._metrics.scrape(HOST, self._scraped)
        waited, answered = seen.queued_for / MICROSECONDS, sum(seen.successes.values())
        return Spent(0.0, answered, waited, seen.busy / MICROSECONDS - waited, seen.executions)

    async def _phase(self, arm: Arm, phase: Phase, seed: int) -> None:
        draw, start = random.Random(seed), time.monotonic()  # noqa: S311 - not a secret
        tasks: set[asyncio.Task[None]] = set()

        async def ask() -> None:
            asked = time.monotonic()
            try:
                await self._channels.call(self._request.payload, TIMEOUT)
            except grpc.aio.AioRpcError:
                arm.failed += 1
            else:
                arm.calls.append((phase.name, asked - start, time.monotonic() - asked))

        async def client() -> None:
            while time.monotonic() - start < phase.seconds:
                await ask()
                await asyncio.sleep(phase.pause(draw))

        if phase.clients:
            await asyncio.gather(*(client() for _ in range(phase.clients)))
            return
        for offset in phase.arrivals(seed):
            if offset >= phase.seconds:
                break
            await asyncio.sleep(max(0.0, start + offset - time.monotonic()))
            tasks.add(asyncio.create_task(ask()))
        await asyncio.gather(*tasks)


def _request(batch: int) -> Request:
    return encode(MODEL, {"x": np.random.default_rng(batch).standard_normal((batch, WIDTH)).astype(np.float32)})


def _row(arm: Arm) -> dict[str, Any]:
    names = list(dict.fromkeys(name for name, _, _ in arm.calls))
    figures: dict[str, Any] = {"arm": arm.name, "requests": len(arm.calls), "failed": arm.failed}
    for name in names:
        whole = [latency for one, _, latency in arm.calls if one == name]
        settled = [latency for one, since, latency in arm.calls if one == name and since >= SHIFT]
        figures[name] = {
            "requests": len(whole), "p50_ms": percentile(whole, 0.5), "p99_ms": percentile(whole),
            "settled_p50_ms": percentile(settled, 0.5), "settled_p95_ms": percentile(settled, 0.95),
            "settled_p99_ms": percentile(settled),
        }  # fmt: skip
    return {**figures, "load_seconds": [round(one, 2) for one in arm.loads], "changes": arm.why}


def _words(arm: Arm) -> str:
    row = _row(arm)
    return f"{arm.failed} failed; " + "; ".join(
        f"{name} p50 {one['settled_p50_ms']:.1f}, p95 {one['settled_p95_ms']:.1f}, p99 {one['settled_p99_ms']:.1f} ms"
        for name, one in row.items() if isinstance(one, dict))  # fmt: skip

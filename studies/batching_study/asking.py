"""Asks a server as a phase says, and keeps what each request took."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field

import grpc

from batching_study.traffic import Phase
from enginewright_builder.load import Channels

TIMEOUT = 30.0


@dataclass
class Calls:
    """Of each request that was answered, when it was due and how long it took, both in seconds; ``due`` counts from the
    start of the phase. ``failed`` counts the other requests."""

    latencies: list[float] = field(default_factory=list)
    due: list[float] = field(default_factory=list)
    failed: int = 0


async def ask(channels: Channels, payload: bytes, phase: Phase, seed: int, calls: Calls) -> Calls:
    """Adds to ``calls``, and returns them once the phase is over and all its requests are answered. A request that is
    sent late counts from when it was due."""
    draw, start = random.Random(seed), time.monotonic()  # noqa: S311 - not a secret
    tasks: set[asyncio.Task[None]] = set()

    async def one(due: float) -> None:
        try:
            await channels.call(payload, TIMEOUT)
        except grpc.aio.AioRpcError:
            calls.failed += 1
        else:
            calls.latencies.append(time.monotonic() - start - due)
            calls.due.append(due)

    async def client() -> None:
        while (now := time.monotonic() - start) < phase.seconds:
            await one(now)
            await asyncio.sleep(phase.pause(draw))

    if phase.clients:
        await asyncio.gather(*(client() for _ in range(phase.clients)))
        return calls
    for offset in phase.arrivals(seed):
        if offset >= phase.seconds:
            break
        await asyncio.sleep(max(0.0, start + offset - time.monotonic()))
        task = asyncio.create_task(one(offset))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    return calls

"""Clients in processes of their own: one process of Python sends some thousand requests a second, which is less than an
engine on a GPU answers."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from batching_study.asking import Calls, ask
from batching_study.traffic import Phase
from enginewright_builder.load import Channels, run_on_time

# Until a process of clients answers that it is connected, and until it answers a phase that is over.
PATIENCE = 60.0


@dataclass(frozen=True, kw_only=True)
class Order:
    """What one process is to ask."""

    payload: bytes
    phase: Phase
    seed: int


@dataclass(kw_only=True)
class Asked:
    """``busiest`` is the share of one core that the busiest process used: near 1, the clients are what was measured."""

    calls: Calls = field(default_factory=Calls)
    busiest: float = 0.0

    def add(self, calls: Calls, busy: float) -> None:
        self.calls.latencies += calls.latencies
        self.calls.due += calls.due
        self.calls.failed += calls.failed
        self.busiest = max(self.busiest, busy)


class Crowd:
    """``processes`` that ask the server at ``url``; those who ask are shared out among them."""

    def __init__(self, url: str, processes: int) -> None:
        self._url = url
        self._context = multiprocessing.get_context("spawn")
        self._ends: list[Connection] = []
        self._children = [self._start() for _ in range(processes)]

    async def __aenter__(self) -> Self:
        """Raises ``TimeoutError`` where a process does not come up."""
        for end in self._ends:
            await _received(end, PATIENCE)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        for end, child in zip(self._ends, self._children, strict=True):
            end.close()
            child.join(5.0)
            child.kill()

    async def ask(self, payload: bytes, phase: Phase, seed: int) -> Asked:
        """Raises ``TimeoutError`` where a process does not answer, ``EOFError`` where one ended."""
        busy = [(end, Order(payload=payload, phase=share, seed=1000 * seed + number))
                for number, (end, share) in enumerate(zip(self._ends, shares(phase, len(self._ends)), strict=True))
                if share.clients or share.rate]
        for end, order in busy:
            end.send(order)
        asked = Asked()
        for end, _ in busy:
            asked.add(*await _received(end, phase.seconds + PATIENCE))
        return asked

    def _start(self) -> multiprocessing.context.SpawnProcess:
        here, there = self._context.Pipe()
        child = self._context.Process(target=serve, args=(there, self._url), daemon=True)
        child.start()
        there.close()
        self._ends.append(here)
        return child


def shares(phase: Phase, processes: int) -> list[Phase]:
    """Clients dealt out one by one; arrivals in equal parts, which together are as random as the whole."""
    if not phase.clients:
        return [replace(phase, rate=phase.rate / processes)] * processes
    return [replace(phase, clients=len(range(number, phase.clients, processes))) for number in range(processes)]


async def _received(end: Connection, seconds: float) -> tuple[Calls, float]:
    if not await asyncio.to_thread(end.poll, seconds):
        raise TimeoutError(f"a process of clients did not answer within {seconds:.0f} s")
    found: tuple[Calls, float] = end.recv()
    return found


def serve(end: Connection, url: str) -> None:
    """The process's own program: it answers each order with its calls, until the other end is closed."""
    run_on_time(_serve(end, url))


async def _serve(end: Connection, url: str) -> None:
    async with Channels(url, count=2) as channels:
        end.send((Calls(), 0.0))
        while True:
            try:
                order: Order = await asyncio.to_thread(end.recv)
            except EOFError:
                return
            used, began = time.process_time(), time.monotonic()
            calls = await ask(channels, order.payload, order.phase, order.seed, Calls())
            end.send((calls, (time.process_time() - used) / (time.monotonic() - began)))


def pooled(all_asked: Sequence[Asked]) -> Asked:
    """Several pieces as one."""
    whole = Asked()
    for asked in all_asked:
        whole.add(asked.calls, asked.busiest)
    return whole

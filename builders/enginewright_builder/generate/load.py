"""The two ways to drive load in tokens. Both end what is in flight, and lose no failure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator

from enginewright_builder.generate.answer import Answer
from enginewright_builder.generate.client import Ask, Client

NOT_SENT = "NotSent"


async def closed_loop(client: Client, asks: Iterable[Ask], *, concurrency: int, requests: int) -> list[Answer]:
    """Keeps ``concurrency`` requests in flight until ``requests`` were sent, or ``asks`` are at their end."""
    left: Iterator[Ask] = iter(asks)
    answers: list[Answer] = []
    sent = 0

    async def worker() -> None:
        nonlocal sent
        while sent < requests and (ask := next(left, None)) is not None:
            sent += 1
            answers.append(await client.stream(ask))

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return answers


async def open_loop(client: Client, asks: Iterable[Ask], arrivals: Iterable[float], *, seconds: float,
                    max_outstanding: int = 1024) -> list[Answer]:
    """Sends at ``arrivals`` (seconds from the start, ascending), whatever the server does. An arrival that finds
    ``max_outstanding`` requests in flight is not sent, and is the error ``NotSent``."""
    start = time.monotonic()
    sent: list[asyncio.Task[Answer]] = []
    not_sent: list[Answer] = []
    for offset, ask in zip(arrivals, asks, strict=False):
        if offset >= seconds:
            break
        await asyncio.sleep(max(0.0, start + offset - time.monotonic()))
        if sum(not task.done() for task in sent) >= max_outstanding:
            not_sent.append(Answer(due=start + offset, end=time.monotonic(), error=NOT_SENT))
        else:
            sent.append(asyncio.create_task(client.stream(ask, due=start + offset)))
    return [*await asyncio.gather(*sent), *not_sent]

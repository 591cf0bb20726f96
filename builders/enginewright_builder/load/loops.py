"""The two ways to drive load. Both end by themselves (time or count), finish what is in flight, and lose no failure."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence

import grpc

from enginewright_builder.load.channels import Channels
from enginewright_builder.load.requests import Request, in_sequence, new_sequence
from enginewright_builder.load.result import REJECTIONS, Call, LoadResult, Progress, Recorder

# One request and its time limit, to its answer.
Ask = Callable[[bytes, float], Awaitable[bytes]]
# Only an unreachable server is worth a second try: the request was not served.
RETRYABLE = frozenset({"UNAVAILABLE"})
# Before the second try, then twice as long each time: the time counts as the request's latency.
RETRY_SECONDS = 0.05
# The loop calls ``enough`` after so many seconds, and again whenever the window has grown by this share.
CHECK_SECONDS, CHECK_SHARE = 0.25, 0.25


async def closed_loop(channels: Channels, requests: Sequence[Request], *, concurrency: int, seconds: float,
                      warmup_seconds: float = 0.0, max_requests: int = 0, timeout: float = 30.0, retries: int = 0,  # noqa: ASYNC109
                      stop: asyncio.Event | None = None,
                      enough: Callable[[Progress], bool] | None = None) -> LoadResult:
    """Keeps ``concurrency`` requests in flight for ``seconds`` after ``warmup_seconds`` that are not measured; where
    requests are sequences, so many of these, with one request of each in flight.

    Ends earlier after ``max_requests`` (0: no limit), when ``stop`` is set, or when ``enough`` says so of the figures
    so far: asked four times in the first second, and less often the longer the load goes on.
    """
    recorder, halt = Recorder(), asyncio.Event()
    payloads = itertools.cycle(requests)
    budget = itertools.count(1)

    def halted() -> bool:
        return halt.is_set() or bool(stop and stop.is_set())

    async def worker() -> None:
        while not halted():
            if max_requests and next(budget) > max_requests:
                halt.set()
                return
            request = next(payloads)
            if request.steps:
                await _send_steps(channels, request, timeout, recorder, halted)
            else:
                await _send(channels.call, request, time.monotonic(), timeout, retries, recorder)

    workers = [asyncio.create_task(worker()) for _ in range(concurrency)]
    recorder.begin = time.monotonic() + warmup_seconds
    finish = recorder.begin + seconds
    while (now := time.monotonic()) < finish and not halted():
        if enough and now > recorder.begin and enough(recorder.so_far(now)):
            break
        await asyncio.wait(workers, timeout=min(pause(now - recorder.begin), finish - now),
                           return_when=asyncio.FIRST_EXCEPTION)
        if all(task.done() for task in workers):
            break
    ended = min(time.monotonic(), finish)
    if ended == finish and await _one_measured(workers, recorder, halted, finish + timeout):
        ended = time.monotonic()
    halt.set()
    await asyncio.gather(*workers)
    return recorder.result("closed", max(ended, recorder.first_answer))


async def _one_measured(workers: Collection[asyncio.Task[None]], recorder: Recorder, halted: Callable[[], bool],
                        latest: float) -> bool:
    """Waits until a request ends that was sent since the window opened, and returns whether none had. Those in flight
    then may outlast it, as all of a slow model do."""
    waited = False
    while not (recorder.has_measured or halted() or all(task.done() for task in workers)) and time.monotonic() < latest:
        waited = True
        await asyncio.wait(workers, timeout=CHECK_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
    return waited


def pause(elapsed: float) -> float:
    """Seconds until the loop calls ``enough`` again, of a window that has been open for ``elapsed``."""
    return max(CHECK_SECONDS, CHECK_SHARE * elapsed)


async def open_loop(channels: Channels, requests: Sequence[Request], arrivals: Iterable[float], *, seconds: float,
                    warmup_seconds: float = 0.0, max_outstanding: int = 10_000, timeout: float = 30.0,  # noqa: ASYNC109
                    retries: int = 0, stop: asyncio.Event | None = None) -> LoadResult:
    """Sends at ``arrivals`` (seconds from the start, ascending), whatever the server does; latency counts from the
    arrival.

    An arrival that finds ``max_outstanding`` requests in flight is not sent and counts as error ``NOT_SENT``. Raises
    ``ValueError`` for sequences, of which each request waits for the one before.
    """
    if any(request.steps for request in requests):
        raise ValueError("sequences are sent in a closed loop alone: each request waits for the one before")
    recorder = Recorder()
    payloads = itertools.cycle(requests)
    pending: set[asyncio.Task[bool]] = set()
    start = time.monotonic()
    recorder.begin = start + warmup_seconds
    finish = recorder.begin + seconds
    for offset in arrivals:
        due = start + offset
        if due >= finish or (stop and stop.is_set()):
            break
        await _sleep_until(due, stop)
        if stop and stop.is_set():
            break
        request = next(payloads)
        if len(pending) >= max_outstanding:
            recorder.add(Call(due, time.monotonic(), request.batch, "NOT_SENT"))
            continue
        task = asyncio.create_task(_send(channels.call, request, due, timeout, retries, recorder))
        pending.add(task)
        task.add_done_callback(pending.discard)
    if not (stop and stop.is_set()):
        await _sleep_until(finish, stop)
    ended = min(time.monotonic(), finish)
    await asyncio.gather(*pending)
    return recorder.result("open", ended)


def constant_arrivals(rate: float) -> Iterator[float]:
    return (index / rate for index in itertools.count())


def poisson_arrivals(rate: float, seed: int = 0) -> Iterator[float]:
    """Exponential gaps; the same seed gives the same arrivals."""
    generator = random.Random(seed)  # noqa: S311 - not a secret
    now = 0.0
    while True:
        now += generator.expovariate(rate)
        yield now


async def _send(call: Ask, request: Request, due: float, limit: float, retries: int,
                recorder: Recorder) -> bool:
    """Whether it was answered."""
    error = message = ""
    for attempt in range(retries + 1):
        try:
            await call(request.payload, limit)
            error = ""
            break
        except grpc.aio.AioRpcError as failure:
            error, message = _rejection(failure) or failure.code().name, failure.details() or ""
            if error not in RETRYABLE or attempt == retries:
                break
            recorder.retried += 1
            await asyncio.sleep(RETRY_SECONDS * 2**attempt)
    recorder.add(Call(due, time.monotonic(), request.batch, error), message)
    return not error


async def _send_steps(channels: Channels, request: Request, limit: float, recorder: Recorder,
                      halted: Callable[[], bool]) -> None:
    """One sequence. It is ended where the load ends, so that the server keeps none of it; what follows a request that
    failed would not be what was recorded."""
    sequence, last = new_sequence(), False
    with channels.held() as call:
        for number, payload in enumerate(request.steps):
            last = halted() or number == len(request.steps) - 1
            sent = Request(in_sequence(payload, sequence, first=number == 0, last=last), request.batch)
            # Never a second time: the server may have taken the step, and only its answer was lost.
            if not await _send(call, sent, time.monotonic(), limit, 0, recorder) or last:
                return


def _rejection(failure: grpc.aio.AioRpcError) -> str:
    """Empty where it is none. Another try would only add to the load that the queue is protected from."""
    details = failure.details() or ""
    return next((kind for words, kind in REJECTIONS.items() if details.endswith(words)), "")


async def _sleep_until(moment: float, stop: asyncio.Event | None) -> None:
    delay = moment - time.monotonic()
    if delay <= 0:
        # Late: still let the calls in flight move, or a burst would starve them.
        await asyncio.sleep(0)
    elif stop is None:
        await asyncio.sleep(delay)
    else:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await stop.wait()

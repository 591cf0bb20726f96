"""The queue signal from a Prometheus server, for clusters where the operator may not reach pods, or must not.

``prometheus-api-client`` is synchronous, so it runs in threads of its own; what goes over the wire is the loop's. Users
write the address: whatever answers there, however slowly and however much, must cost the other objects nothing.
Prometheus repeats the last value of a series for up to five minutes, so every value is asked for together with the age
of its sample, on Prometheus' own clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Final, Self, TypeVar

import requests
from prometheus_api_client.prometheus_connect import PrometheusConnect

from enginewright.clients.bounded import LATE, BoundedSession, Sender
from enginewright.clients.errors import RefusedError, TransientError
from enginewright.clients.page import LARGEST_VALUE
from enginewright.clients.signals import NoSignalError
from enginewright.core import promql
from enginewright.core.servers.triton import TRITON

THREADS: Final = 32
# Queries of one address at a time: one that is slow leaves threads for others.
AT_ONCE: Final = 2
# Bytes. Two samples of some 300 bytes each for a replica.
LARGEST_ANSWER: Final = 1 << 20
# Seconds: times of a range may be asked for in whole ones.
ROUNDED: Final = 1.0
# Without a query or a fragment, which would take in the path that is added. The plugin's may hold a password.
_ADDRESS: Final = re.compile(r"https?://[^\s/?#\\\x00-\x1f]+(/[^\s?#\\\x00-\x1f]*)?")
_MARK: Final = "enginewright_sample"
Series = list[tuple[float, float]]
"""Seconds since 1970, and values."""
Read = TypeVar("Read")


class PrometheusClient:
    """``deadline`` is seconds for one query; a sample older than ``stale_after`` seconds is not believed."""

    def __init__(self, *, deadline: float = 2.0, stale_after: float = 10.0) -> None:
        self._deadline = deadline
        self._stale_after = stale_after
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="prometheus")
        self._sender: Sender | None = None
        self._turns = _Turns()

    async def __aenter__(self) -> Self:
        self._sender = Sender(deadline=self._deadline, largest=LARGEST_ANSWER)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._sender is not None:
            await self._sender.close()

    async def pending(self, url: str, namespace: str, model: str, matchers: str = "",
                      gauge: str = TRITON.metrics.pending) -> Mapping[str, float]:
        """Queued requests by pod, without pods whose sample is stale. ``matchers`` are further label matchers, comma
        separated; ``gauge`` is the servers' name of the figure. Raises :class:`TransientError` and
        :class:`RefusedError`, the latter for matchers that are none and for a query that Prometheus rejects."""
        try:
            query = pending_query(namespace, model, matchers, gauge)
        except promql.MatcherError as error:
            raise RefusedError(f"spec.autoscaling.prometheus.labels {error}") from error
        return await self._asked(url, lambda server: read_pending(server.custom_query(query), self._stale_after))

    async def over_time(self, url: str, query: str, start: datetime, end: datetime, step: float) -> Series:
        """Of a query with one series or none, a value each ``step`` seconds where there is one. Raises as
        :meth:`pending`, and :class:`NoSignalError` for an answer that cannot be read."""
        return await self._asked(
            url, lambda server: _series(server.custom_query_range(query, start, end, f"{step:g}s"), start, end))

    async def _asked(self, url: str, question: Callable[[PrometheusConnect], Read]) -> Read:
        call = f"query {public(url)}"
        if not _ADDRESS.fullmatch(url):
            raise NoSignalError("this is not the base address of a Prometheus, such as http://prometheus.monitoring:9090",
                                call=call)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._deadline):
                await self._turns.take(url)
            running = self._pool.submit(self._question, url, call, question)
            running.add_done_callback(lambda _: _in_loop(loop, self._turns.give, url))
            async with asyncio.timeout(self._deadline + LATE):
                return await asyncio.wrap_future(running)
        except TimeoutError as error:
            raise TransientError(f"no answer within {self._deadline:g} s", call=call) from error
        except (KeyError, TypeError, requests.RequestException, RecursionError) as error:
            # JSON of something else, or none. The error's text may quote it.
            raise NoSignalError("this does not answer as a Prometheus does", call=call) from error

    def _question(self, url: str, call: str, question: Callable[[PrometheusConnect], Read]) -> Read:
        if self._sender is None:
            raise RuntimeError("the client was not entered")
        with BoundedSession(self._sender, call) as session:
            return question(PrometheusConnect(url=url.rstrip("/"), session=session))


class _Turns:
    """:data:`AT_ONCE` threads for each address. A turn ends with its thread: the caller may have given up before."""

    def __init__(self) -> None:
        self._free: dict[str, asyncio.Semaphore] = {}
        self._users: dict[str, int] = {}

    async def take(self, url: str) -> None:
        self._users[url] = self._users.get(url, 0) + 1
        try:
            await self._free.setdefault(url, asyncio.Semaphore(AT_ONCE)).acquire()
        except BaseException:
            self._leave(url)
            raise

    def give(self, url: str) -> None:
        self._free[url].release()
        self._leave(url)

    def _leave(self, url: str) -> None:
        """Users change addresses: what is kept of one goes with its last query."""
        self._users[url] -= 1
        if not self._users[url]:
            del self._users[url], self._free[url]


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[str], None], url: str) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended before the thread
        loop.call_soon_threadsafe(call, url)


def pending_query(namespace: str, model: str, matchers: str = "", gauge: str = TRITON.metrics.pending) -> str:
    """Values and, marked by a label, the times of the same samples, in one instant query: one moment, one clock.

    The pods of a model are named ``<model>-<revision>-<hash>-<suffix>``; the regular expression is anchored by
    Prometheus.
    """
    series = f"{gauge}{{{selector(namespace, model, matchers)}}}"
    return f'{series} or label_replace(timestamp({series}), "{_MARK}", "time", "", "")'


def public(url: str) -> str:
    """Without a user and password that it may have in it: for messages."""
    return re.sub(r"(?<=://)[^/@]*@", "", url)


def selector(namespace: str, model: str, matchers: str = "") -> str:
    """Label matchers of the model's pods. Raises :class:`~enginewright.core.promql.MatcherError`."""
    ours = (promql.Matcher("namespace", "=", namespace),
            promql.Matcher("pod", "=~", f"{model}-[0-9a-f]+-[a-z0-9]+-[a-z0-9]+"))
    return promql.selector((*ours, *promql.matchers_of(matchers)))


def read_pending(answer: list[dict[str, Any]], stale_after: float) -> dict[str, float]:
    """Sums by pod of the values whose sample is fresh at the moment of the query, without those that are not a number.
    Raises :class:`NoSignalError`, also for a value that no queue has."""
    values: dict[tuple[tuple[str, str], ...], tuple[str, float]] = {}
    ages: dict[tuple[tuple[str, str], ...], float] = {}
    try:
        for series in answer:
            labels = dict(series["metric"])
            evaluated, value = float(series["value"][0]), float(series["value"][1])
            mark = labels.pop(_MARK, None)
            labels.pop("__name__", None)
            key = tuple(sorted(labels.items()))
            if mark is None:
                values[key] = (labels["pod"], value)
            else:
                ages[key] = evaluated - value
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise NoSignalError("Prometheus' answer does not have the form of query") from error
    pending: dict[str, float] = {}
    for key, (pod, value) in values.items():
        # An age that is not a number is no proof of a fresh sample.
        if not ages.get(key, math.inf) <= stale_after or math.isnan(value):
            continue
        if not 0 <= value <= LARGEST_VALUE:
            raise NoSignalError(f"Prometheus' answer has a queue of {value:g} requests")
        pending[pod] = pending.get(pod, 0.0) + value
    return pending


def _series(answer: list[dict[str, Any]], start: datetime, end: datetime) -> Series:
    """Without values that are not a number: there is none then, as where the series has a gap. Raises
    :class:`NoSignalError`, also for a time that was not asked for and for a value that no count has."""
    try:
        found = [(float(at), float(value)) for one in answer for at, value in one["values"]]
    except (KeyError, TypeError, ValueError) as error:
        raise NoSignalError("Prometheus' answer does not have the form of query_range") from error
    first, last = start.timestamp() - ROUNDED, end.timestamp() + ROUNDED
    for at, value in found:
        if not first <= at <= last:
            raise NoSignalError(f"Prometheus' answer has a value at {at:g} s, which was not asked for")
        if not (math.isnan(value) or 0 <= value <= LARGEST_VALUE):
            raise NoSignalError(f"Prometheus' answer has a value of {value:g}, which no number of requests has")
    return [(at, value) for at, value in found if not math.isnan(value)]

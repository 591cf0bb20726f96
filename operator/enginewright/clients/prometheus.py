"""The queue signal from a Prometheus server, for clusters where the operator may not reach pods, or must not.

``prometheus-api-client`` is synchronous, so it runs in threads of its own. Users write the address: whatever answers
there, however slowly and however much, must cost the other objects nothing. Prometheus repeats the last value of a
series for up to five minutes, so every value is asked for together with the age of its sample, on Prometheus' own
clock.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Final, Self

import requests
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from urllib3.util.retry import Retry

from enginewright.clients.bounded import BoundedSession, TooLargeError
from enginewright.clients.errors import RefusedError, TransientError
from enginewright.clients.signals import PENDING, NoSignalError

THREADS: Final = 32
# Queries of one address at a time: one that is slow leaves threads for others.
AT_ONCE: Final = 2
LARGEST_ANSWER: Final = 4 << 20  # bytes
_MARK: Final = "enginewright_sample"
Series = list[tuple[float, float]]
"""Seconds since 1970, and values."""


class PrometheusClient:
    """``deadline`` is seconds for one query; a sample older than ``stale_after`` seconds is not believed."""

    def __init__(self, *, deadline: int = 2, stale_after: float = 10.0) -> None:
        self._deadline = deadline
        self._stale_after = stale_after
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="prometheus")
        self._connections: dict[str, PrometheusConnect] = {}
        self._turns: dict[str, asyncio.Semaphore] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for connection in self._connections.values():
            connection.close()

    async def pending(self, url: str, namespace: str, model: str, matchers: str = "") -> Mapping[str, float]:
        """Queued requests by pod, without pods whose sample is stale. ``matchers`` are further label matchers, comma
        separated. Raises :class:`TransientError` and :class:`RefusedError`, the latter for a query that Prometheus
        rejects."""
        query = pending_query(namespace, model, matchers)
        answer = await self._asked(url, lambda connection: connection.custom_query(query))
        return read_pending(answer, self._stale_after)

    async def over_time(self, url: str, query: str, start: datetime, end: datetime, step: float) -> Series:
        """Of a query with one series or none, a value each ``step`` seconds where there is one. Raises as
        :meth:`pending`, and :class:`NoSignalError` for an answer that cannot be read."""
        span = (start, end, f"{step:g}s")
        answer = await self._asked(url, lambda connection: connection.custom_query_range(query, *span))
        try:
            return [(float(at), float(value)) for one in answer for at, value in one["values"]]
        except (KeyError, TypeError, ValueError) as error:
            raise NoSignalError(f"answer of Prometheus cannot be read: {error!r}") from error

    async def _asked(self, url: str, question: Callable[[PrometheusConnect], Any]) -> list[dict[str, Any]]:
        call = f"query {public(url)}"
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._deadline + 0.5), self._turns.setdefault(url, asyncio.Semaphore(AT_ONCE)):
                answer = await loop.run_in_executor(self._pool, lambda: question(self._connection(url)))
        except TooLargeError as error:
            raise NoSignalError(str(error), call=call) from error
        except PrometheusApiClientException as error:
            kind = RefusedError if "HTTP Status Code 4" in str(error) else TransientError
            raise kind(str(error), call=call) from error
        except (KeyError, TypeError, requests.JSONDecodeError) as error:  # JSON of something else, or none
            raise NoSignalError(f"{public(url)} does not answer as a Prometheus does: {error!r}") from error
        except (TimeoutError, requests.RequestException, OSError) as error:
            raise TransientError(f"{type(error).__name__}: {error}", call=call) from error
        except ValueError as error:  # no URL
            raise NoSignalError(f"{public(url)} is no address: {error!r}") from error
        return list(answer)

    def _connection(self, url: str) -> PrometheusConnect:
        connection = self._connections.get(url)
        if connection is None:
            # The queue is asked again in a second: retries here would only pile up.
            session = BoundedSession(deadline=self._deadline, largest=LARGEST_ANSWER)
            connection = PrometheusConnect(
                url=url.rstrip("/"), retry=Retry(total=0), timeout=self._deadline, session=session
            )
            self._connections[url] = connection
        return connection


def pending_query(namespace: str, model: str, matchers: str = "") -> str:
    """Values and, marked by a label, the times of the same samples, in one instant query: one moment, one clock.

    The pods of a model are named ``<model>-<revision>-<hash>-<suffix>``; the regular expression is anchored by
    Prometheus.
    """
    series = f"{PENDING}{{{selector(namespace, model, matchers)}}}"
    return f'{series} or label_replace(timestamp({series}), "{_MARK}", "time", "", "")'


def public(url: str) -> str:
    """Without a user and password that it may have in it: for messages."""
    return re.sub(r"(?<=://)[^/@]*@", "", url)


def selector(namespace: str, model: str, matchers: str = "") -> str:
    """Label matchers of the model's pods."""
    wanted = [f"namespace={_quoted(namespace)}", f"pod=~{_quoted(f'{model}-[0-9a-f]+-[a-z0-9]+-[a-z0-9]+')}"]
    if matchers.strip(" ,"):
        wanted.append(matchers.strip(" ,"))
    return ",".join(wanted)


def read_pending(answer: list[dict[str, Any]], stale_after: float) -> dict[str, float]:
    """Sums by pod of the values whose sample is fresh at the moment of the query. Raises :class:`NoSignalError`."""
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
        raise NoSignalError(f"answer of Prometheus cannot be read: {error!r}") from error
    pending: dict[str, float] = {}
    for key, (pod, value) in values.items():
        if ages.get(key, float("inf")) <= stale_after and value == value:
            pending[pod] = pending.get(pod, 0.0) + value
    return pending


def _quoted(text: str) -> str:
    """A PromQL string literal; JSON escapes are a subset of its own."""
    return json.dumps(text)

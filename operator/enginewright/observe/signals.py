"""Queue depth, once a second for each object that wants it, and a wake-up as soon as it asks for other replicas.

One task an object. A round asks all its ready replicas at once and gives up on the slow ones; what is missing is
counted as missing, never as zero. Between passes the pure scaling rule runs on every new sample, so that a pass
runs when there is something to do and a quiet queue costs the apiserver nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from enginewright.clients.errors import ClientError
from enginewright.clients.prometheus import PrometheusClient
from enginewright.clients.signals import ReplicaMetrics
from enginewright.clients.triton import TritonClient
from enginewright.core.observed import Sample, SignalWindow
from enginewright.core.reasons import Reason
from enginewright.core.scaling import ScaleLimits, decide_replicas
from enginewright.observe.keys import Key
from enginewright.observe.window import Window

PERIOD: Final = 1.0
log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Target:
    """What to scrape for one object: ``replicas`` maps ready pods to their addresses, ``current`` is how many
    replicas are asked for. Without ``limits`` samples are only kept. ``prometheus`` is the server's URL, empty for
    direct scraping; ``matchers`` narrow its query."""

    replicas: Mapping[str, str]
    current: int
    limits: ScaleLimits | None = None
    prometheus: str = ""
    matchers: str = ""


class _Watched:
    def __init__(self, target: Target, started: float) -> None:
        self.target = target
        self.window = Window(started)
        self.reason: Reason | None = None
        self.task: asyncio.Task[None] | None = None


class Signals:
    """``wake`` puts a key into the work queue; ``scraped`` is told the source and whether each replica answered."""

    def __init__(
        self, triton: TritonClient, prometheus: PrometheusClient, *, wake: Callable[[Key], None],
        clock: Callable[[], float], scraped: Callable[[str, bool], None], period: float = PERIOD,
    ) -> None:  # fmt: skip
        self._triton = triton
        self._prometheus = prometheus
        self._wake = wake
        self._clock = clock
        self._scraped = scraped
        self._period = period
        self._watched: dict[Key, _Watched] = {}

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, key: Key, target: Target) -> None:
        """Starts scraping, or changes what is scraped; the window goes on."""
        watched = self._watched.get(key)
        if watched is not None:
            watched.target = target
            return
        watched = self._watched[key] = _Watched(target, self._clock())
        watched.task = asyncio.create_task(self._scrape_on(key, watched), name=f"scraper of {key}")

    async def forget(self, key: Key) -> None:
        """Stops scraping and drops the window."""
        watched = self._watched.pop(key, None)
        if watched is None or watched.task is None:
            return
        watched.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watched.task

    async def close(self) -> None:
        for key in list(self._watched):
            await self.forget(key)

    def window(self, key: Key) -> SignalWindow | None:
        watched = self._watched.get(key)
        return None if watched is None else watched.window.view()

    def recommend(self, key: Key, replicas: int) -> None:
        """Remembers what a pass wished for."""
        watched = self._watched.get(key)
        if watched is not None:
            watched.window.recommend(self._clock(), replicas)

    async def _scrape_on(self, key: Key, watched: _Watched) -> None:
        due = self._clock()
        while True:
            try:
                await self.round(key, watched.target, watched.window)
                self._judge(key, watched)
            except Exception:
                # A defect in one round must not blind the scaler for good: the next sample is a second away.
                log.exception("scrape round failed", object=str(key))
            # From due time to due time, so that rounds do not drift; rounds that were missed are not made up for.
            now = self._clock()
            due = max(due + self._period, now)
            await asyncio.sleep(due - now)

    async def round(self, key: Key, target: Target, window: Window) -> None:
        """One sample. ``time`` is when the round began: a slow answer is an old one."""
        began = self._clock()
        if target.prometheus:
            pending, failures = await self._ask_prometheus(key, target), {}
        else:
            metrics = await self._ask_replicas(target)
            pending = {pod: answer.queued for pod, answer in metrics.items()}
            failures = {pod: answer.broken for pod, answer in metrics.items()}
        missing = len(target.replicas.keys() - pending.keys())
        window.add(Sample(time=began, ready=len(target.replicas), pending=pending, missing=missing))
        window.count_failures(failures, target.replicas)

    def _judge(self, key: Key, watched: _Watched) -> None:
        target = watched.target
        if target.limits is None:
            return
        now = self._clock()
        decision = decide_replicas(watched.window.view(), target.current, target.limits, now)
        watched.window.recommend(now, decision.recommendation)
        if decision.replicas != target.current or decision.reason != watched.reason:
            self._wake(key)
        watched.reason = decision.reason

    async def _ask_replicas(self, target: Target) -> Mapping[str, ReplicaMetrics]:
        names = sorted(target.replicas)
        answers = await asyncio.gather(
            *(self._triton.scrape(target.replicas[name]) for name in names), return_exceptions=True
        )
        found = {}
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, ClientError):
                raise answer
            self._scraped("direct", isinstance(answer, ReplicaMetrics))
            if isinstance(answer, ReplicaMetrics):
                found[name] = answer
        return found

    async def _ask_prometheus(self, key: Key, target: Target) -> Mapping[str, float]:
        try:
            pending = await self._prometheus.pending(target.prometheus, key.namespace, key.name, target.matchers)
        except ClientError as error:
            self._scraped("prometheus", False)
            log.warning("prometheus gave no queue depth", object=str(key), error=str(error))
            return {}
        self._scraped("prometheus", True)
        # Pods that are gone stay in Prometheus for a while; those that are not ready yet are not asked.
        return {pod: value for pod, value in pending.items() if pod in target.replicas}

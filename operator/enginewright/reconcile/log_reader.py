"""Reads logs of Jobs' pods beside the passes, so that a node that does not answer holds up no pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from enginewright.clients.errors import ClientError
from enginewright.clients.kube import KubeClient
from enginewright.core.backoff import Backoff
from enginewright.observe.keys import Key
from enginewright.observe.reports import PodLog, Said, newest, outcome_in
from enginewright.reconcile.queue import WorkQueue
from enginewright_builder.contract import Progress

LINES: Final = 40
DEADLINE: Final = 3.0
# Seconds between two looks at the log of a pod that runs: no watch tells of a line.
PERIOD: Final = 5.0
# After a node did not answer, for each pod.
BACKOFF: Final = Backoff(first=5.0, most=300.0)
AT_ONCE: Final = 16
log = structlog.get_logger(__name__)


@dataclass
class _Followed:
    key: Key
    log: PodLog
    said: Said = field(default_factory=Said)


class LogReader:
    """``wake`` gets the key of an object when a log that it wants tells something new."""

    def __init__(self, kube: KubeClient, wake: Callable[[Key], None]) -> None:
        self._kube = kube
        self._wake = wake
        self._queue: WorkQueue[str] = WorkQueue()
        self._followed: dict[str, _Followed] = {}
        self._wanted: dict[Key, frozenset[str]] = {}

    def follow(self, key: Key, wanted: Mapping[str, PodLog]) -> None:
        for uid in self._wanted.pop(key, frozenset()) - wanted.keys():
            self._followed.pop(uid, None)
            self._queue.forget(uid)
        if wanted:
            self._wanted[key] = frozenset(wanted)
        for uid, one in wanted.items():
            known = self._followed.get(uid)
            if known is None or known.log != one:
                self._followed[uid] = _Followed(key, one, replace(known.said, tried=False) if known else Said())
                self._queue.succeeded(uid)
                self._queue.add(uid)

    def said(self, uid: str) -> Said:
        followed = self._followed.get(uid)
        return followed.said if followed else Said()

    async def run(self) -> None:
        """Forever, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(AT_ONCE):
                group.create_task(self._work(), name=f"log reader {number}")
        self._queue.close()

    async def _work(self) -> None:
        while True:
            uid = await self._queue.get()
            try:
                await self._step(uid)
            finally:
                self._queue.done(uid)

    async def _step(self, uid: str) -> None:
        followed = self._followed.get(uid)
        if followed is None:
            return
        lines = await self._read(followed.log)
        if self._followed.get(uid) is not followed:  # no pass wants it any more, or the pod has ended meanwhile
            return
        if lines is None:
            self._queue.retry(uid, BACKOFF)
        else:
            self._queue.succeeded(uid)
            if not followed.log.ended:
                self._queue.add_after(uid, PERIOD)
        said = _said(followed, lines or [])
        if said != followed.said:
            followed.said = said
            self._wake(followed.key)

    async def _read(self, one: PodLog) -> list[str] | None:
        """The newest line first; None when it cannot be read."""
        try:
            text = await self._kube.logs(one.namespace, one.pod, one.container, tail=LINES, deadline=DEADLINE)
        except ClientError as error:
            log.info("cannot read the log of a pod", pod=f"{one.namespace}/{one.pod}", error=str(error))
            return None
        return text.splitlines()[::-1]


def _said(followed: _Followed, lines: list[str]) -> Said:
    before = followed.said
    if followed.log.ended:
        return replace(before, outcome=outcome_in(lines, well=followed.log.well), tried=True)
    return replace(before, progress=newest(Progress, "progress", lines) or before.progress)

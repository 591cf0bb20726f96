"""Reports of the replicas' quality monitors, for a pass: read at most every so often, as passes come in bursts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import structlog

from enginewright.clients.errors import ClientError
from enginewright.core.observed import ObjectView, PodView
from enginewright.observe.keys import Key
from enginewright.observe.pauses import Pauses
from enginewright_builder.contract import QualityReport

FRESH: Final = 10.0  # seconds that a reading serves
LONGEST: Final = 300.0  # seconds between two readings of a monitor that does not report: each holds up a pass
log = structlog.get_logger(__name__)


class Reporting(Protocol):
    async def report(self, address: str) -> QualityReport: ...


class QualityReader:
    """``clock`` is monotonic, in seconds."""

    def __init__(self, client: Reporting, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._read: dict[Key, tuple[float, frozenset[str], Mapping[str, QualityReport]]] = {}
        self._pauses: dict[Key, tuple[float, Pauses]] = {}

    async def reports(self, view: ObjectView, pods: Iterable[PodView]) -> Mapping[str, QualityReport]:
        """By pod, of those that are ready; one that does not answer is left out: no pass fails for lack of it."""
        asked = {pod.name: pod.ip for pod in pods if pod.ready and pod.ip and not pod.deleting}
        key, now = Key(view.namespace, view.name), self._clock()
        self._read = {one: read for one, read in self._read.items() if now - read[0] < FRESH}
        known = self._read.get(key)
        if known and known[1] == frozenset(asked):
            return known[2]
        self._pauses = {one: kept for one, kept in self._pauses.items() if now - kept[0] <= 2 * LONGEST}
        pauses = self._pauses[key][1] if key in self._pauses else Pauses(first=2 * FRESH, longest=LONGEST)
        self._pauses[key] = (now, pauses)
        places = {f"{name} {ip}": (name, ip) for name, ip in asked.items()}
        due = pauses.due(places, now)
        answers = await asyncio.gather(*(self._ask(*places[one]) for one in due))
        for one, (_, report) in zip(due, answers, strict=True):
            pauses.note(one, report is not None, now)
        found = {name: report for name, report in answers if report is not None}
        self._read[key] = (now, frozenset(asked), found)
        return found

    async def _ask(self, name: str, address: str) -> tuple[str, QualityReport | None]:
        try:
            return name, await self._client.report(address)
        except ClientError as error:
            log.info("quality monitor does not report", pod=name, error=str(error))
            return name, None
